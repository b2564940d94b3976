//! The other side: what a plugin needs to read its question and to answer.
//!
//! A plugin prints its answer and nothing else on standard output, talks to people on standard error, never
//! edits the kubeconfig, and answers with a time of expiry that lies before the real one.

use std::{env::VarError, fmt};

use jiff::Timestamp;
use kube::Config;
use serde::{Deserialize, Serialize};
use waybill_core::secret::SecretBytes;

use crate::{
    ApiVersion, ClusterInfo,
    cluster::certificates,
    message::{EXEC_INFO, KIND},
};

/// The group of every version.
const GROUP: &str = "client.authentication.k8s.io";

/// What a client wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// In which version to answer.
    pub api_version: ApiVersion,
    /// Whether standard input is ours, so that we can ask a person.
    pub interactive: bool,
    /// The cluster, if the kubeconfig says `provideClusterInfo`.
    pub cluster: Option<ClusterInfo>,
}

/// Reads the question from our environment, with an anonymous configuration for the cluster.
pub fn load_exec_credential_from_env() -> Result<(ExecRequest, Config), LoadError> {
    load_exec_credential(from_env()?.as_bytes())
}

/// The same for plugins that can do without a cluster.
pub fn load_exec_request_from_env() -> Result<(ExecRequest, Option<Config>), LoadError> {
    load_exec_request(from_env()?.as_bytes())
}

/// Reads a question, with an anonymous configuration for its cluster.
pub fn load_exec_credential(text: &[u8]) -> Result<(ExecRequest, Config), LoadError> {
    let (request, config) = load_exec_request(text)?;
    Ok((request, config.ok_or(LoadError::NoCluster)?))
}

/// Reads a question, with an anonymous configuration if it names a cluster.
pub fn load_exec_request(text: &[u8]) -> Result<(ExecRequest, Option<Config>), LoadError> {
    let request = parse_request(text)?;
    let config = request.cluster.as_ref().map(ClusterInfo::to_config).transpose()?;
    Ok((request, config))
}

/// Reads a question and makes nothing of its cluster.
pub(crate) fn parse_request(text: &[u8]) -> Result<ExecRequest, LoadError> {
    let message: Message = serde_json::from_slice(text).map_err(LoadError::Decode)?;
    let group = message.api_version.split_once('/').map_or("", |(group, _)| group);
    if group != GROUP || message.kind != KIND {
        let got = format!("{}.{group}", message.kind);
        return Err(LoadError::GroupKind { got: got.trim_end_matches('.').to_owned() });
    }
    let unknown = |_| LoadError::Version { found: message.api_version.clone() };
    let api_version = ApiVersion::parse(&message.api_version).map_err(unknown)?;
    let Spec { interactive, cluster } = message.spec;
    Ok(ExecRequest { api_version, interactive, cluster })
}

#[expect(clippy::disallowed_methods, reason = "the variable is the protocol")]
fn from_env() -> Result<String, LoadError> {
    match std::env::var(EXEC_INFO) {
        Ok(text) if !text.is_empty() => Ok(text),
        Ok(_) | Err(VarError::NotPresent | VarError::NotUnicode(_)) => Err(LoadError::Unset),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    interactive: bool,
    cluster: Option<ClusterInfo>,
}

impl ClusterInfo {
    /// A configuration without credentials.
    pub fn to_config(&self) -> Result<Config, LoadError> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut config = Config::new(self.server.parse().map_err(|_| LoadError::Server)?);
        config.tls_server_name = text(&self.tls_server_name);
        config.accept_invalid_certs = self.insecure_skip_tls_verify;
        config.disable_compression = self.disable_compression;
        if !self.certificate_authority_data.is_empty() {
            let found = certificates(&self.certificate_authority_data);
            config.root_cert = Some(found.ok_or(LoadError::Authority)?);
        }
        let proxy = text(&self.proxy_url).map(|url| url.parse());
        config.proxy_url = proxy.transpose().map_err(|_| LoadError::Proxy)?;
        Ok(config)
    }

    /// The cluster of a configuration, without its credentials.
    pub fn from_config(config: &Config) -> Self {
        let proxy = config.proxy_url.as_ref().map(ToString::to_string).unwrap_or_default();
        Self { proxy_url: proxy, ..Self::of(config) }
    }
}

/// What a plugin answers. It has neither `Debug` nor `Clone`, because it holds the credential.
#[derive(Default)]
pub struct ExecAnswer {
    /// A bearer token.
    pub token: Option<SecretBytes>,
    /// A certificate, with its intermediates, and its key, in PEM form.
    pub certificate: Option<(SecretBytes, SecretBytes)>,
    /// Until when clients use it; for the life of their process if it is absent.
    pub expires: Option<Timestamp>,
}

impl ExecAnswer {
    /// As it is printed on standard output.
    pub fn to_json(&self, api_version: ApiVersion) -> Result<SecretBytes, AnswerError> {
        let text = |secret: &'_ SecretBytes| {
            str::from_utf8(secret.expose()).map(str::to_owned).map_err(|_| AnswerError)
        };
        let (certificate, key) = self.certificate.as_ref().map(|(a, b)| (a, b)).unzip();
        let status = Status {
            expiration_timestamp: self.expires,
            token: self.token.as_ref().map(text).transpose()?,
            client_certificate_data: certificate.map(text).transpose()?,
            client_key_data: key.map(text).transpose()?,
        };
        let answer = Answer { kind: KIND, api_version: api_version.as_str(), status };
        serde_json::to_vec(&answer).map(SecretBytes::from).map_err(|_| AnswerError)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    kind: &'static str,
    api_version: &'static str,
    status: Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    expiration_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
}

fn as_text<S: serde::Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => to.collect_str(time),
        None => to.serialize_none(),
    }
}

/// Why a question cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Nobody asked.
    #[error("{EXEC_INFO} env var is unset or empty")]
    Unset,
    /// It is no JSON.
    #[error("decode")]
    Decode(#[source] serde_json::Error),
    /// It is something else.
    #[error("invalid group/kind: wanted {KIND}.{GROUP}, got {got}")]
    GroupKind {
        /// What it is.
        got: String,
    },
    /// It is of another version.
    #[error("unknown version {found}")]
    Version {
        /// Which one.
        found: String,
    },
    /// The kubeconfig does not say `provideClusterInfo`.
    #[error("ExecCredential does not contain cluster information")]
    NoCluster,
    /// The server has no URL.
    #[error("server is no URL")]
    Server,
    /// The certificates are not PEM.
    #[error("certificate-authority-data is not PEM")]
    Authority,
    /// The proxy has no URL.
    #[error("proxy-url is no URL")]
    Proxy,
}

/// A token, certificate or key is not text.
#[derive(Debug)]
pub struct AnswerError;

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token, certificate or key is not text")
    }
}

impl std::error::Error for AnswerError {}

#[cfg(test)]
/// CRED-41..43, CRED-51.
mod tests;
