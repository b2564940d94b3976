//! Tokens of the pod's service account, for drivers whose CSIDriver object asks for them (OP-41).

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use k8s_openapi::api::storage::v1::{CSIDriver, TokenRequest};
use serde::Serialize;
use waybill_core::secret::SecretBytes;

use super::{access::service_account, error::CsiError};
use crate::{
    objects::{ObjectSource, Token, WantedToken},
    pod::Pod,
};

/// The key of the pod's context under which drivers look for them.
pub(super) const CONTEXT_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// How long a token is good for if the driver does not say, as for volumes.
const DEFAULT_SECONDS: i64 = 3600;

/// The tokens that `driver` asks for, as JSON; nothing if it asks for none. Each ends with the pod.
pub(super) async fn tokens(
    objects: &dyn ObjectSource,
    pod: &Pod,
    driver: &CSIDriver,
) -> Result<Option<SecretBytes>, CsiError> {
    let requests = driver.spec.token_requests.as_deref().unwrap_or_default();
    if requests.is_empty() {
        return Ok(None);
    }
    let asked = try_join_all(requests.iter().map(|request| token(objects, pod, request)));
    let asked = asked.await?;
    let mut all = BTreeMap::new();
    for (request, token) in requests.iter().zip(&asked) {
        let text = std::str::from_utf8(token.text.expose());
        let text = text.map_err(|_| failed(pod, request, "it is not text".to_owned()))?;
        let expires = token.expires.to_string();
        all.insert(&*request.audience, TokenView { token: text, expiration_timestamp: expires });
    }
    // Large enough from the start: a buffer that grows leaves copies behind.
    let room = asked.iter().map(|token| token.text.len() + 256).sum();
    let mut text = Vec::with_capacity(room);
    let written = serde_json::to_writer(&mut text, &all);
    let text = SecretBytes::from(text);
    match (written, requests.first()) {
        (Err(error), Some(request)) => Err(failed(pod, request, error.to_string())),
        _ => Ok(Some(text)),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenView<'a> {
    token: &'a str,
    expiration_timestamp: String,
}

async fn token(
    objects: &dyn ObjectSource,
    pod: &Pod,
    request: &TokenRequest,
) -> Result<Token, CsiError> {
    let token = objects.token(WantedToken {
        pod: pod.uid(),
        pod_name: pod.name(),
        namespace: pod.namespace(),
        service_account: service_account(pod),
        audience: &request.audience,
        expiration_seconds: request.expiration_seconds.unwrap_or(DEFAULT_SECONDS),
    });
    token.await.map_err(|error| failed(pod, request, error.to_string()))
}

fn failed(pod: &Pod, request: &TokenRequest, why: String) -> CsiError {
    CsiError::Token {
        account: service_account(pod).to_owned(),
        audience: request.audience.clone(),
        why,
    }
}
