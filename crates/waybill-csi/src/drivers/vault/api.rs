//! The requests of Vault's API that the driver makes.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::debug;
use waybill_core::secret::SecretBytes;

use super::{
    class::{SecretPath, VaultClass},
    login::Login,
};
use crate::{
    driver::{FetchError, PodToken},
    drivers::sessions::Timed,
    http::{HttpClient, Question, Reply},
};

/// A secret may have a megabyte; its answer some more.
const ANSWER_BYTES: usize = 2 << 20;

/// How long a login vouches for a pod, however often it is renewed: as long as the token of a pod that it was
/// made with. Then the pod proves again who it is, and a role that was taken away ends.
const LONGEST_LOGIN: Duration = Duration::from_secs(60 * 60);

/// Agents and proxies may insist on it, so that no web page can make a browser ask.
const REQUEST: HeaderName = HeaderName::from_static("x-vault-request");
const NAMESPACE: HeaderName = HeaderName::from_static("x-vault-namespace");
const TOKEN: HeaderName = HeaderName::from_static("x-vault-token");

/// One backend, as one class describes it.
pub(super) struct VaultApi<'a> {
    client: HttpClient,
    class: &'a VaultClass,
}

impl<'a> VaultApi<'a> {
    pub(super) fn new(client: HttpClient, class: &'a VaultClass) -> Self {
        Self { client, class }
    }

    /// Logs in. Kubernetes and JWT auth take the same question.
    pub(super) async fn login(&self, token: &PodToken) -> Result<Timed<Login>, FetchError> {
        let VaultClass { address, role, auth_path, .. } = self.class;
        let uri = address.join(&format!("v1/auth/{auth_path}/login"), &[])?;
        let jwt = std::str::from_utf8(token.token.expose())
            .map_err(|_| FetchError::invalid("the token of the pod is not text"))?;
        // Room for the whole, because a vector that grows leaves copies behind.
        let mut body = Vec::with_capacity(jwt.len() + 6 * role.len() + 64);
        serde_json::to_writer(&mut body, &LoginBody { role, jwt })
            .map_err(|_| FetchError::backend("the login cannot be written as JSON"))?;
        let question = self.question(Question::new(Method::POST, uri, body.into()))?;
        let reply = self.client.ask(question, ANSWER_BYTES).await?;
        let what = format!("the login as role {role:?} at auth/{auth_path}");
        match reply.status {
            StatusCode::OK => granted(&reply, &what, Instant::now() + LONGEST_LOGIN),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(FetchError::denied(format!(
                    "Vault refused {what} ({}); see which service accounts, namespaces and audience \
                     the role is bound to",
                    reply.status.as_u16()
                )))
            }
            StatusCode::NOT_FOUND => Err(FetchError::invalid(format!(
                "Vault has no auth method at auth/{auth_path}; see vaultAuthPath"
            ))),
            status => Err(refusal(status, &what)),
        }
    }

    /// Makes a login last longer.
    pub(super) async fn renew(&self, login: &Login) -> Result<Timed<Login>, FetchError> {
        let uri = self.class.address.join("v1/auth/token/renew-self", &[])?;
        let question = Question::new(Method::POST, uri, b"{}".to_vec().into());
        let question = self.question(question)?.header(TOKEN, login.header()?);
        let reply = self.client.ask(question, ANSWER_BYTES).await?;
        match reply.status {
            StatusCode::OK => granted(&reply, "the renewal of a login", login.until),
            status => Err(refusal(status, "the renewal of a login")),
        }
    }

    /// Gives a login back. It ends anyway, so that nobody waits for what came of it.
    pub(super) async fn revoke(&self, login: &Login) {
        let Ok(uri) = self.class.address.join("v1/auth/token/revoke-self", &[]) else { return };
        let question = Question::new(Method::POST, uri, b"{}".to_vec().into());
        if let (Ok(question), Ok(token)) = (self.question(question), login.header())
            && self.client.ask(question.header(TOKEN, token), ANSWER_BYTES).await.is_err()
        {
            debug!("a login could not be given back");
        }
    }

    /// The answer to a read, which [`super::secret`] understands.
    pub(super) async fn read(
        &self,
        login: &Login,
        path: &SecretPath,
    ) -> Result<SecretBytes, FetchError> {
        let SecretPath { key, version } = path;
        let version = version.map(|version| version.to_string());
        let query: Vec<_> = version.iter().map(|version| ("version", version.as_str())).collect();
        let uri = self.class.address.join(&format!("v1/{key}"), &query)?;
        let question = self
            .question(Question::new(Method::GET, uri, Vec::new().into()))?
            .header(TOKEN, login.header()?);
        let reply = self.client.ask(question, ANSWER_BYTES).await?;
        match reply.status {
            StatusCode::OK => Ok(reply.body),
            StatusCode::FORBIDDEN => Err(FetchError::denied(format!(
                "Vault does not let role {:?} read {key}",
                self.class.role
            ))),
            StatusCode::NOT_FOUND => Err(FetchError::not_found(missing(key, version.as_deref()))),
            status => Err(refusal(status, &format!("the read of {key}"))),
        }
    }

    fn question(&self, question: Question) -> Result<Question, FetchError> {
        let question = question
            .header(REQUEST, HeaderValue::from_static("true"))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let Some(namespace) = &self.class.namespace else { return Ok(question) };
        let value = HeaderValue::from_str(namespace)
            .map_err(|_| FetchError::invalid("vaultNamespace is not the name of a namespace"))?;
        Ok(question.header(NAMESPACE, value))
    }
}

#[derive(Serialize)]
struct LoginBody<'a> {
    role: &'a str,
    jwt: &'a str,
}

#[derive(Deserialize)]
struct AuthBody<'a> {
    #[serde(borrow)]
    auth: Auth<'a>,
}

#[derive(Deserialize)]
struct Auth<'a> {
    /// Borrowed, so that there is no copy beside the answer and ours.
    client_token: &'a str,
    lease_duration: u64,
    #[serde(default)]
    renewable: bool,
}

fn granted(reply: &Reply, what: &str, until: Instant) -> Result<Timed<Login>, FetchError> {
    let body: AuthBody<'_> = serde_json::from_slice(reply.body.expose()).map_err(|_| {
        FetchError::backend(format!("Vault's answer to {what} is not that of an auth method"))
    })?;
    let Auth { client_token, lease_duration, renewable } = body.auth;
    let token = SecretBytes::copy_of(client_token.as_bytes());
    let login = Login { token, is_renewable: renewable, until };
    // Vault says zero of what does not end by itself.
    let lease = Some(Duration::from_secs(lease_duration)).filter(|lease| !lease.is_zero());
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
    Ok(Timed::new(login, lease.map_or(left, |lease| lease.min(left))))
}

fn missing(key: &str, version: Option<&str>) -> String {
    let version = version.map(|version| format!(" in version {version}")).unwrap_or_default();
    let hint = if key.split('/').any(|segment| segment == "data") {
        ""
    } else {
        "; secrets of KV version 2 are at <mount>/data/<name>"
    };
    format!("Vault has no secret at {key}{version}{hint}")
}

/// Statuses as Vault's documentation explains them. What it says besides is not repeated.
fn refusal(status: StatusCode, what: &str) -> FetchError {
    let code = status.as_u16();
    match code {
        400 | 405 => FetchError::invalid(format!("Vault does not understand {what} ({code})")),
        401 | 403 => FetchError::denied(format!("Vault refused {what} ({code})")),
        300..=399 => FetchError::unavailable(format!(
            "Vault answered {what} with a redirect, which is not followed; let vaultAddr name the \
             active server"
        )),
        // Behind its data, too many requests, standby, sealed.
        412 | 429 | 472 | 473 | 502..=504 => {
            FetchError::unavailable(format!("Vault cannot answer {what} now ({code})"))
        }
        _ => FetchError::backend(format!("Vault failed at {what} ({code})")),
    }
}
