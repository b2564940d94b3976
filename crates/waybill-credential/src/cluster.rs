//! What a plugin is told of the cluster.
//!
//! The type mirrors `Cluster` of kubeconfigs, except that certificates are always data, and that of all
//! extensions only the one that is reserved for plugins is passed on.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{Config, config::ExecAuthCluster};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::stanza::REDACTED;

/// `spec.cluster` of an `ExecCredential`.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ClusterInfo {
    /// Where the API server is.
    pub server: String,
    /// The name in its certificate, if it is not the host of `server`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls_server_name: String,
    /// Whether its certificate is not checked at all.
    #[serde(skip_serializing_if = "is_false")]
    pub insecure_skip_tls_verify: bool,
    /// The certificates that vouch for it, in PEM form; in base64 on the wire.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "to_base64")]
    #[serde(deserialize_with = "from_base64")]
    pub certificate_authority_data: Vec<u8>,
    /// The proxy in between.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy_url: String,
    /// Whether answers shall not be compressed.
    #[serde(skip_serializing_if = "is_false")]
    pub disable_compression: bool,
    /// The kubeconfig's extension `client.authentication.k8s.io/exec` of the cluster, as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

impl ClusterInfo {
    /// The cluster that `config` leads to, whatever the kubeconfig said at first.
    pub(crate) fn of(config: &Config) -> Self {
        let written = config.auth_info.exec.as_ref().and_then(|exec| exec.cluster.clone());
        let written = written.unwrap_or_default();
        Self {
            server: server(config, &written),
            tls_server_name: config.tls_server_name.clone().unwrap_or_default(),
            insecure_skip_tls_verify: config.accept_invalid_certs,
            certificate_authority_data: authorities(config, &written),
            // A proxy from the client's environment reaches the plugin by its own environment.
            proxy_url: written.proxy_url.unwrap_or_default(),
            disable_compression: config.disable_compression,
            config: written.config,
        }
    }
}

impl fmt::Debug for ClusterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterInfo")
            .field("server", &self.server)
            .field("tls_server_name", &self.tls_server_name)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("config", &REDACTED)
            .finish_non_exhaustive()
    }
}

/// As it was written, if it still holds; `Uri` adds a slash.
fn server(config: &Config, written: &ExecAuthCluster) -> String {
    match &written.server {
        Some(server) if server.parse().is_ok_and(|url: http::Uri| url == config.cluster_url) => {
            server.clone()
        }
        _ => config.cluster_url.to_string().trim_end_matches('/').to_owned(),
    }
}

fn authorities(config: &Config, written: &ExecAuthCluster) -> Vec<u8> {
    let used = config.root_cert.as_deref().unwrap_or_default();
    let written = written.certificate_authority_data.as_deref().unwrap_or_default();
    if certificates(written).is_some_and(|found| found == used) {
        return written.to_owned();
    }
    used.iter().flat_map(|der| to_pem(der).into_bytes()).collect()
}

/// What a bundle holds, or `None` if it is not PEM.
pub(crate) fn certificates(pem: &[u8]) -> Option<Vec<Vec<u8>>> {
    CertificateDer::pem_slice_iter(pem)
        .map(|found| found.map(|der| der.as_ref().to_vec()))
        .collect::<Result<_, _>>()
        .ok()
}

fn to_pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in encoded.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    STANDARD.decode(text).map_err(|_| serde::de::Error::custom("not base64"))
}

#[cfg(test)]
/// CRED-06, CRED-12..15, CRED-26.
mod tests;
