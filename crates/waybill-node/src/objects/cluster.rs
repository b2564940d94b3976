//! Objects from the API server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{ConfigMap as ConfigMapObject, Secret as SecretObject, ServiceAccount},
    },
};
use kube::{Api, Client, api::PostParams};
use waybill_core::secret::SecretBytes;

use super::{
    Answer, ConfigMap, ObjectError, ObjectKind, ObjectSource, Secret, Token, Wanted, WantedToken,
};

/// The API server is near, or the pod is tried again.
const LONGEST: Duration = Duration::from_secs(10);

/// What the API server has.
#[derive(Clone)]
pub(crate) struct ClusterObjects {
    client: Client,
}

impl ClusterObjects {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    async fn read_config_map(&self, wanted: Wanted<'_>) -> Result<Arc<ConfigMap>, ObjectError> {
        let about = About { kind: ObjectKind::ConfigMap, name: wanted.name };
        let api: Api<ConfigMapObject> = Api::namespaced(self.client.clone(), wanted.namespace);
        let object = about.await_answer(api.get(wanted.name)).await?;
        let text = object.data.unwrap_or_default().into_iter();
        Ok(Arc::new(ConfigMap {
            data: text.map(|(key, value)| (key, value.into_bytes().into())).collect(),
            binary_data: content(object.binary_data),
        }))
    }

    async fn read_secret(&self, wanted: Wanted<'_>) -> Result<Arc<Secret>, ObjectError> {
        let about = About { kind: ObjectKind::Secret, name: wanted.name };
        let api: Api<SecretObject> = Api::namespaced(self.client.clone(), wanted.namespace);
        let object = about.await_answer(api.get(wanted.name)).await?;
        Ok(Arc::new(Secret { data: content(object.data) }))
    }

    async fn request_token(&self, wanted: WantedToken<'_>) -> Result<Token, ObjectError> {
        let about = About { kind: ObjectKind::ServiceAccountToken, name: wanted.service_account };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), wanted.namespace);
        let request = token_request(wanted);
        let parameters = PostParams::default();
        let asked = api.create_token_request(wanted.service_account, &parameters, &request);
        let status = about.await_answer(asked).await?.status;
        let (text, expires) = status
            .and_then(|status| status.token.zip(status.expiration_timestamp))
            .ok_or_else(|| about.unreadable())?;
        Ok(Token { text: text.into_bytes().into(), expires: expires.0 })
    }
}

impl ObjectSource for ClusterObjects {
    fn config_map<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<ConfigMap>> {
        Box::pin(self.read_config_map(wanted))
    }

    fn secret<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<Secret>> {
        Box::pin(self.read_secret(wanted))
    }

    fn token<'a>(&'a self, wanted: WantedToken<'a>) -> Answer<'a, Token> {
        Box::pin(self.request_token(wanted))
    }
}

fn content(data: Option<BTreeMap<String, ByteString>>) -> BTreeMap<String, SecretBytes> {
    data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0.into())).collect()
}

/// The token ends with the pod that it is bound to.
fn token_request(wanted: WantedToken<'_>) -> TokenRequest {
    let audience = Some(wanted.audience).filter(|audience| !audience.is_empty());
    TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: audience.map(|audience| vec![audience.to_owned()]),
            expiration_seconds: Some(wanted.expiration_seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(wanted.pod_name.to_owned()),
                uid: Some(wanted.pod.as_str().to_owned()),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    }
}

/// What an error is about.
#[derive(Clone, Copy)]
struct About<'a> {
    kind: ObjectKind,
    name: &'a str,
}

impl About<'_> {
    async fn await_answer<T>(
        self,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ObjectError> {
        match tokio::time::timeout(LONGEST, answer).await {
            Ok(answer) => answer.map_err(|error| self.explain(error)),
            Err(_) => Err(self.refused(format!("no answer from the API server in {LONGEST:?}"))),
        }
    }

    fn explain(self, error: kube::Error) -> ObjectError {
        match error {
            kube::Error::Api(status) if status.code == 404 => {
                ObjectError::NotFound { kind: self.kind, name: self.name.to_owned() }
            }
            kube::Error::Api(status) => self.refused(status.message),
            kube::Error::Service(error) => {
                self.refused(waybill_core::chain::Chain(&*error).to_string())
            }
            kube::Error::HyperError(error) => self.refused(error.to_string()),
            _ => self.unreadable(),
        }
    }

    fn refused(self, message: String) -> ObjectError {
        ObjectError::Refused { kind: self.kind, name: self.name.to_owned(), message }
    }

    fn unreadable(self) -> ObjectError {
        ObjectError::Unreadable { kind: self.kind, name: self.name.to_owned() }
    }
}
