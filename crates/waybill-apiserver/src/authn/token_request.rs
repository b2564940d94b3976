//! `TokenRequest`, the `token` subresource of service accounts: a request body in, the body with a
//! token out.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    jwt::JwtError,
    rfc3339,
    service_account::{Binding, IssuedToken, Objects, Reference, ServiceAccountTokens},
};

const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;
const DEFAULT_SECONDS: i64 = 3600;

/// The account of the request's URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// What is answered: 201 with `body`.
pub(crate) struct TokenAnswer {
    /// The `TokenRequest` with its status; contains the token.
    pub(crate) body: Value,
    /// Text for a `Warning` header, if less was granted than asked for.
    pub(crate) warning: Option<String>,
    /// The token's `jti`, for the audit event of this request.
    pub(crate) credential_id: String,
}

/// Answers a `TokenRequest`; no token outlives `longest`.
pub(crate) fn token_request(
    tokens: &ServiceAccountTokens,
    objects: &dyn Objects,
    account: Account<'_>,
    body: &Value,
    longest: Duration,
    now: Timestamp,
) -> Result<TokenAnswer, TokenRequestError> {
    let request = Request::deserialize(body).map_err(|_| TokenRequestError::Undecodable)?;
    request.metadata.matches(account)?;
    let asked = request.spec.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
    let allowed = check_seconds(asked)?;
    let binding = binding(objects, account, request.spec.bound_object_ref.as_ref())?;
    let granted = allowed.min(longest);
    let warning = (granted < allowed).then(|| {
        let longest = longest.as_secs();
        format!("requested expiration of {asked} seconds shortened to {longest} seconds")
    });
    let issued = tokens.issue(binding, &request.spec.audiences, granted, now)?;
    let body = answer(body, account, &request.spec, tokens, granted, &issued, now);
    Ok(TokenAnswer { body, warning, credential_id: format!("JTI={}", issued.id) })
}

/// Why no token is issued, with upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenRequestError {
    /// 400.
    #[error(
        "cannot bind token for serviceaccount {0:?} to pod running with different \
        serviceaccount name."
    )]
    AnotherAccountsPod(String),
    /// 400.
    #[error("cannot bind token to object of type {0}")]
    BoundKind(String),
    /// 409.
    #[error(
        "Operation cannot be fulfilled on {kind} {name:?}: the UID in the bound object reference \
        ({uid}) does not match the UID in record. The object might have been deleted and then \
        recreated"
    )]
    BoundUid { kind: &'static str, name: String, uid: String },
    /// 422, with the cause's field and message.
    #[error("TokenRequest.authentication.k8s.io \"\" is invalid: {}: {}", Self::SECONDS_FIELD, seconds_fault(*seconds, detail))]
    Seconds { seconds: i64, detail: &'static str },
    /// 400.
    #[error("the {what} of the object ({found}) does not match the {what} on the URL ({url})")]
    Mismatch { what: &'static str, found: String, url: String },
    /// 404.
    #[error("{resource} {name:?} not found")]
    NotFound { resource: &'static str, name: String },
    /// 500.
    #[error("failed to generate token")]
    Sign(#[from] JwtError),
    /// 400.
    #[error("the request body is not a TokenRequest")]
    Undecodable,
}

impl TokenRequestError {
    /// The field of [`Self::Seconds`].
    pub(crate) const SECONDS_FIELD: &str = "spec.expirationSeconds";
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(deserialize_with = "null_is_default")]
    audiences: Vec<String>,
    bound_object_ref: Option<BoundObject>,
    expiration_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BoundObject {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

impl Metadata {
    fn matches(&self, account: Account<'_>) -> Result<(), TokenRequestError> {
        for (what, found, url) in
            [("name", &self.name, account.name), ("namespace", &self.namespace, account.namespace)]
        {
            if !found.is_empty() && found != url {
                let (found, url) = (found.clone(), url.to_owned());
                return Err(TokenRequestError::Mismatch { what, found, url });
            }
        }
        Ok(())
    }
}

fn check_seconds(seconds: i64) -> Result<Duration, TokenRequestError> {
    if seconds < MIN_SECONDS {
        let detail = "may not specify a duration less than 10 minutes";
        return Err(TokenRequestError::Seconds { seconds, detail });
    }
    if seconds > MAX_SECONDS {
        let detail = "may not specify a duration larger than 2^32 seconds";
        return Err(TokenRequestError::Seconds { seconds, detail });
    }
    Ok(Duration::from_secs(seconds.unsigned_abs()))
}

fn seconds_fault(seconds: i64, detail: &str) -> String {
    format!("Invalid value: {seconds}: {detail}")
}

fn binding(
    objects: &dyn Objects,
    account: Account<'_>,
    bound: Option<&BoundObject>,
) -> Result<Binding, TokenRequestError> {
    let Account { namespace, name } = account;
    let found = objects
        .service_account(namespace, name)
        .ok_or_else(|| not_found("serviceaccounts", name))?;
    let mut binding = Binding {
        namespace: namespace.to_owned(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: Reference { name: name.to_owned(), uid: found.uid },
    };
    let Some(bound) = bound else { return Ok(binding) };
    let (group, version) =
        bound.api_version.split_once('/').unwrap_or(("", bound.api_version.as_str()));
    match (group, bound.kind.as_str()) {
        ("", "Pod") => {
            let pod = objects
                .pod(namespace, &bound.name)
                .ok_or_else(|| not_found("pods", &bound.name))?;
            if pod.service_account != name {
                return Err(TokenRequestError::AnotherAccountsPod(name.to_owned()));
            }
            binding.pod = Some(bound.reference("Pod", pod.existing.uid)?);
            if !pod.node.is_empty() {
                // A node that is not registered is still worth naming.
                let uid = objects.node(&pod.node).map(|node| node.uid).unwrap_or_default();
                binding.node = Some(Reference { name: pod.node, uid });
            }
        }
        ("", "Secret") => {
            let secret = objects
                .secret(namespace, &bound.name)
                .ok_or_else(|| not_found("secrets", &bound.name))?;
            binding.secret = Some(bound.reference("Secret", secret.uid)?);
        }
        ("", "Node") => {
            let node = objects.node(&bound.name).ok_or_else(|| not_found("nodes", &bound.name))?;
            binding.node = Some(bound.reference("Node", node.uid)?);
        }
        (group, kind) => {
            return Err(TokenRequestError::BoundKind(format!("{group}/{version}, Kind={kind}")));
        }
    }
    Ok(binding)
}

impl BoundObject {
    fn reference(&self, kind: &'static str, uid: String) -> Result<Reference, TokenRequestError> {
        if !self.uid.is_empty() && self.uid != uid {
            let (name, uid) = (self.name.clone(), self.uid.clone());
            return Err(TokenRequestError::BoundUid { kind, name, uid });
        }
        Ok(Reference { name: self.name.clone(), uid })
    }
}

fn not_found(resource: &'static str, name: &str) -> TokenRequestError {
    TokenRequestError::NotFound { resource, name: name.to_owned() }
}

fn answer(
    body: &Value,
    account: Account<'_>,
    spec: &Spec,
    tokens: &ServiceAccountTokens,
    granted: Duration,
    issued: &IssuedToken,
    now: Timestamp,
) -> Value {
    let audiences =
        if spec.audiences.is_empty() { tokens.audiences() } else { spec.audiences.as_slice() };
    let bound = body.pointer("/spec/boundObjectRef").cloned().unwrap_or(Value::Null);
    json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": account.name,
            "namespace": account.namespace,
            "creationTimestamp": rfc3339(now),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": granted.as_secs(),
            "boundObjectRef": bound,
        },
        "status": {
            "token": String::from_utf8_lossy(issued.token.expose()),
            "expirationTimestamp": rfc3339(issued.expires),
        },
    })
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
