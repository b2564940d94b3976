//! Keeps the gate's own certificate: makes it, renews it, and tells API servers what to believe.
//!
//! Replicas share their authority in a Secret; whoever is first makes it. The bundle is written into our own webhook configurations
//! and our APIService, again whenever somebody has put something else there.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use waybill_core::chain::Chain;

use super::{
    Clock,
    authority::{Authorities, AuthorityError, LEAF_SECONDS},
    siblings::Shared,
    tls::{Tls, TlsError},
};

/// The Secret.
const SECRET: &str = "waybill-gate-ca";

/// Where the bundle goes. What is not installed is passed over.
const CONFIGURATIONS: [&str; 5] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/waybill-enforce",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/waybill-record",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/waybill-providerclasses",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/waybill-pods",
    "/apis/apiregistration.k8s.io/v1/apiservices/v1.exec.waybill.dev",
];

/// How often all of it is looked at.
const REFRESH: Duration = Duration::from_secs(15);

/// How long one look may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The certificate of this replica.
pub(super) struct Certificates {
    pub(super) client: Client,
    /// Of the Secret.
    pub(super) namespace: String,
    /// What API servers call us.
    pub(super) names: Vec<String>,
    /// What replicas believe of one another.
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
}

/// What is shown at the moment.
#[derive(Default)]
struct Shown {
    /// The authority that signed it.
    authority: String,
    since: i64,
}

impl Certificates {
    /// Keeps `tls` supplied, for ever.
    pub(super) async fn keep(&self, tls: Arc<Tls>) {
        let mut shown = Shown::default();
        loop {
            let turn = timeout(LIMIT, self.turn(&tls, &mut shown)).await;
            let turn = turn.unwrap_or(Err(CertificatesError::Slow));
            if let Err(error) = turn {
                tracing::warn!(error = %Chain(&error), "the certificate of this gate is not in order");
            }
            sleep(if shown.authority.is_empty() { Duration::from_secs(1) } else { REFRESH }).await;
        }
    }

    async fn turn(&self, tls: &Tls, shown: &mut Shown) -> Result<(), CertificatesError> {
        let now = (self.clock)();
        let authorities = self.authorities(now).await?;
        let is_old = now.saturating_sub(shown.since) > LEAF_SECONDS / 2;
        if shown.authority != authorities.current() || is_old {
            let issued = authorities.issue(&self.names, now)?;
            tls.show(issued.chain, issued.key)?;
            *shown = Shown { authority: authorities.current().to_owned(), since: now };
            tracing::info!("a new certificate is shown");
        }
        let bundle = authorities.bundle();
        self.shared.set(&bundle);
        let bundle = STANDARD.encode(bundle);
        let mut told = Ok(());
        for path in CONFIGURATIONS {
            // One that is closed to us keeps the others from nothing.
            told = told.and(self.tell(path, &bundle).await);
        }
        told
    }

    /// The authorities of all replicas, made or renewed if that is due.
    async fn authorities(&self, now: i64) -> Result<Authorities, CertificatesError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let parameters = PostParams::default();
        let Some(mut secret) = api.get_opt(SECRET).await.map_err(api_error)? else {
            let made = Authorities::generate(now)?;
            let mut secret = Secret { data: Some(made.to_data()), ..Secret::default() };
            secret.metadata.name = Some(SECRET.to_owned());
            // If another replica was first, this fails and the next turn reads what that one made.
            api.create(&parameters, &secret).await.map_err(api_error)?;
            return Ok(made);
        };
        let data = secret.data.take().unwrap_or_default();
        let Some(renewed) = Authorities::read(&data)?.renewed(now)? else {
            return Ok(Authorities::read(&data)?);
        };
        // The version of what was read goes along, so of two replicas one fails.
        secret.data = Some(renewed.to_data());
        api.replace(SECRET, &parameters, &secret).await.map_err(api_error)?;
        tracing::info!("the authority of the gate's certificates was renewed");
        Ok(renewed)
    }

    /// Writes the bundle into one configuration, if it is there and says something else.
    async fn tell(&self, path: &str, bundle: &str) -> Result<(), CertificatesError> {
        let request = Request::get(path).body(Vec::new()).map_err(|_| CertificatesError::Slow)?;
        let found: Value = match self.client.request(request).await {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND => return Ok(()),
            Err(error) => return Err(api_error(error)),
        };
        let patch = bundle_patch(&found, bundle);
        if patch.is_empty() {
            return Ok(());
        }
        let request = Request::patch(path).header("content-type", "application/json-patch+json");
        let request = request.body(json!(patch).to_string().into_bytes());
        let request = request.map_err(|_| CertificatesError::Slow)?;
        self.client.request::<Value>(request).await.map_err(api_error)?;
        tracing::info!(path, "the authority of the gate was written");
        Ok(())
    }
}

/// What is to change in a webhook configuration or an APIService, so that it believes `bundle`.
fn bundle_patch(found: &Value, bundle: &str) -> Vec<Value> {
    if let Some(spec) = found.get("spec") {
        let is_ours = spec.get("service").is_some_and(|service| !service.is_null());
        let is_told = spec.get("caBundle").and_then(Value::as_str) == Some(bundle);
        return if is_ours && !is_told {
            vec![json!({"op": "add", "path": "/spec/caBundle", "value": bundle})]
        } else {
            Vec::new()
        };
    }
    let webhooks = found.get("webhooks").and_then(Value::as_array).into_iter().flatten();
    let mut patch = Vec::new();
    for (at, webhook) in webhooks.enumerate() {
        let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
        if is_api_server(client) || client.get("caBundle").and_then(Value::as_str) == Some(bundle) {
            continue;
        }
        // Somebody may have changed the list since.
        patch.push(
            json!({"op": "test", "path": format!("/webhooks/{at}/name"), "value": webhook["name"]}),
        );
        let path = format!("/webhooks/{at}/clientConfig/caBundle");
        patch.push(json!({"op": "add", "path": path, "value": bundle}));
    }
    patch
}

/// Whether an API server is to call itself, which it knows without us.
fn is_api_server(client: &Value) -> bool {
    let text = |pointer: &str| client.pointer(pointer).and_then(Value::as_str);
    (text("/service/namespace"), text("/service/name")) == (Some("default"), Some("kubernetes"))
}

fn api_error(error: kube::Error) -> CertificatesError {
    CertificatesError::Api(Box::new(error))
}

/// Why the certificate is not in order.
#[derive(Debug, thiserror::Error)]
enum CertificatesError {
    #[error("the API server refused it")]
    Api(#[source] Box<kube::Error>),
    #[error("the authority that replicas share is not usable")]
    Authority(#[from] AuthorityError),
    #[error("the API server did not answer")]
    Slow,
    #[error("the certificate is not usable")]
    Tls(#[from] TlsError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_written_where_it_is_missing_and_nowhere_else() {
        let ours = |bundle: Value| {
            json!({"name": "a", "clientConfig": {"service": {
            "namespace": "waybill-system", "name": "waybill-gate"}, "caBundle": bundle}})
        };
        let own = json!({"name": "b", "clientConfig": {"service": {
            "namespace": "default", "name": "kubernetes"}}});
        let found =
            json!({"webhooks": [ours(json!("new")), own, ours(json!("old")), ours(json!(null))]});
        let patch = bundle_patch(&found, "new");
        let paths: Vec<_> = patch.iter().map(|change| change["path"].as_str().unwrap()).collect();
        assert_eq!(
            paths,
            [
                "/webhooks/2/name",
                "/webhooks/2/clientConfig/caBundle",
                "/webhooks/3/name",
                "/webhooks/3/clientConfig/caBundle"
            ]
        );
        let service = json!({"spec": {"service": {"name": "waybill-gate"}}});
        assert_eq!(bundle_patch(&service, "new").len(), 1);
        assert!(bundle_patch(&json!({"spec": {"service": null}}), "new").is_empty());
        assert!(
            bundle_patch(&json!({"spec": {"service": {}, "caBundle": "new"}}), "new").is_empty()
        );
    }
}
