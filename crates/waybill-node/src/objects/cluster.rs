//! Objects from the API server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{ConfigMap as ConfigMapObject, Secret as SecretObject, ServiceAccount},
    },
};
use kube::{
    Client, Resource,
    api::{GetParams, PostParams},
    core::Request,
};
use serde::de::DeserializeOwned;
use waybill_core::{chain::Chain, secret::SecretBytes};

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
        let object: ConfigMapObject = self.get(about, wanted).await?;
        let text = object.data.unwrap_or_default().into_iter();
        Ok(Arc::new(ConfigMap {
            data: text.map(|(key, value)| (key, value.into_bytes().into())).collect(),
            binary_data: content(object.binary_data),
        }))
    }

    async fn read_secret(&self, wanted: Wanted<'_>) -> Result<Arc<Secret>, ObjectError> {
        let about = About { kind: ObjectKind::Secret, name: wanted.name };
        let object: SecretObject = self.get(about, wanted).await?;
        Ok(Arc::new(Secret { data: content(object.data) }))
    }

    async fn request_token(&self, wanted: WantedToken<'_>) -> Result<Token, ObjectError> {
        let about = About { kind: ObjectKind::ServiceAccountToken, name: wanted.service_account };
        let body = serde_json::to_vec(&token_request(wanted)).map_err(|_| about.unreadable())?;
        let path = ServiceAccount::url_path(&(), Some(wanted.namespace));
        let request = Request::new(path).create_subresource(
            "token",
            wanted.service_account,
            &PostParams::default(),
            body,
        );
        let answer: TokenRequest = self.ask(about, request).await?;
        let (text, expires) = answer
            .status
            .and_then(|status| status.token.zip(status.expiration_timestamp))
            .ok_or_else(|| about.unreadable())?;
        Ok(Token { text: text.into_bytes().into(), expires: expires.0 })
    }

    async fn get<T>(&self, about: About<'_>, wanted: Wanted<'_>) -> Result<T, ObjectError>
    where
        T: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let path = T::url_path(&(), Some(wanted.namespace));
        self.ask(about, Request::new(path).get(wanted.name, &GetParams::default())).await
    }

    /// Reads the answer itself: `kube` logs the whole of what it cannot read.
    async fn ask<T: DeserializeOwned>(
        &self,
        about: About<'_>,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ObjectError> {
        let request = request.map_err(|error| about.refused(error.to_string()))?;
        let text = tokio::time::timeout(LONGEST, self.client.request_text(request));
        let text = match text.await {
            Ok(answer) => answer.map_err(|error| about.explain(error))?,
            Err(_) => {
                let message = format!("no answer from the API server in {LONGEST:?}");
                return Err(about.refused(message));
            }
        };
        let text = SecretBytes::from(text.into_bytes());
        serde_json::from_slice(text.expose()).map_err(|_| about.unreadable())
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
    fn explain(self, error: kube::Error) -> ObjectError {
        match error {
            kube::Error::Api(status) if status.code == 404 => {
                ObjectError::NotFound { kind: self.kind, name: self.name.to_owned() }
            }
            kube::Error::Api(status) => self.refused(status.message),
            kube::Error::Service(error) => self.refused(Chain(&*error).to_string()),
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

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
        thread::{self, JoinHandle},
    };

    use serde_json::{Value, json};
    use waybill_core::id::PodUid;

    use super::*;
    use crate::fake_log::Log;

    const CANARY: &str = "hunter2";

    /// Answers one request and returns what it was: its first line and its body.
    fn serve(code: u16, answer: String) -> (ClusterObjects, JoinHandle<(String, Value)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let server = thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let (mut first, mut length) = (String::new(), 0);
            stream.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                match line.trim_end().to_ascii_lowercase().split_once(": ") {
                    Some(("content-length", value)) => length = value.parse().unwrap(),
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            write!(
                stream.get_mut(),
                "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
            (first, serde_json::from_slice(&body).unwrap_or_default())
        });
        let client = Client::try_from(kube::Config::new(uri)).unwrap();
        (ClusterObjects::new(client), server)
    }

    async fn secret(code: u16, answer: Value) -> Result<Arc<Secret>, ObjectError> {
        let (objects, server) = serve(code, answer.to_string());
        let pod = PodUid::parse("uid").unwrap();
        let found = objects.secret(Wanted { pod: &pod, namespace: "shop", name: "db" }).await;
        let (first, _) = server.join().unwrap();
        assert_eq!(first.trim_end(), "GET /api/v1/namespaces/shop/secrets/db HTTP/1.1");
        found
    }

    #[tokio::test]
    async fn secrets_are_decoded() {
        let found = secret(200, json!({"metadata": {}, "data": {"key": "aHVudGVyMg=="}})).await;
        assert!(found.unwrap().data["key"].constant_time_eq(CANARY.as_bytes()));
    }

    /// Errors say what the API server says, and nothing of an object; so does the log, whose lines
    /// `kube` writes as well.
    #[tokio::test]
    async fn errors_say_why_and_show_no_content() {
        let log = Log::default();
        let _logging = tracing::subscriber::set_default(log.clone());
        let status = |code: u16, message: &str| {
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "code": code, "reason": "X", "message": message})
        };
        let missing = secret(404, status(404, "secrets \"db\" not found")).await.err().unwrap();
        assert_eq!(missing.to_string(), r#"secret "db" not found"#);
        assert!(missing.is_not_found());
        let forbidden = secret(403, status(403, "no relationship found")).await.err().unwrap();
        assert_eq!(forbidden.to_string(), r#"failed to fetch secret "db": no relationship found"#);
        assert!(!forbidden.is_not_found());
        for odd in [
            json!({"metadata": {}, "data": {"key": [CANARY]}}),
            json!({"metadata": {}, "data": CANARY}),
            json!({"metadata": {}, "data": {"key": "hunter2!"}}),
            json!(CANARY),
        ] {
            let error = secret(200, odd).await.err().unwrap();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains(CANARY), "{shown}");
            assert!(shown.contains("the API server's answer cannot be read"), "{shown}");
        }
        let logged = log.text();
        assert!(logged.contains("requesting"), "{logged}");
        assert!(!logged.contains(CANARY), "{logged}");
    }

    #[tokio::test]
    async fn config_maps_have_text_and_binary_data() {
        let answer = json!({"metadata": {}, "data": {"a": "1"}, "binaryData": {"b": "AAE="}});
        let (objects, server) = serve(200, answer.to_string());
        let pod = PodUid::parse("uid").unwrap();
        let wanted = Wanted { pod: &pod, namespace: "shop", name: "cm" };
        let found = objects.config_map(wanted).await.unwrap();
        server.join().unwrap();
        assert_eq!(found.data["a"].expose(), b"1");
        assert_eq!(found.binary_data["b"].expose(), [0, 1]);
    }

    #[tokio::test]
    async fn tokens_are_bound_to_their_pod() {
        let answer = json!({"metadata": {}, "spec": {"audiences": []}, "status": {
            "token": CANARY, "expirationTimestamp": "2026-11-16T03:25:00Z"}});
        let (objects, server) = serve(201, answer.to_string());
        let pod = PodUid::parse("uid").unwrap();
        let token = objects
            .token(WantedToken {
                pod: &pod,
                pod_name: "web",
                namespace: "shop",
                service_account: "robot",
                audience: "vault",
                expiration_seconds: 600,
            })
            .await
            .unwrap();
        assert!(token.text.constant_time_eq(CANARY.as_bytes()));
        assert_eq!(token.expires.to_string(), "2026-11-16T03:25:00Z");
        let (first, body) = server.join().unwrap();
        assert!(first.starts_with("POST /api/v1/namespaces/shop/serviceaccounts/robot/token"));
        assert_eq!(
            body["spec"],
            json!({
                "audiences": ["vault"],
                "expirationSeconds": 600,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid"},
            })
        );
    }
}
