//! Who asks. A verdict of the gate is a signature, so only API servers may ask for one.
//!
//! By the aggregator an API server calls itself, and what arrives here carries the front-proxy certificate and the user
//! `system:apiserver`. Anybody may send a request that way, and then carries the certificate with their own name: so both are
//! asked for. Where an operator gave API servers a client certificate for webhooks, that one is. See ADR 0060.

use std::path::PathBuf;

use http::{HeaderMap, HeaderName};
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::records::UserInfo;

/// As which an API server calls itself.
pub(super) const API_SERVER: &str = "system:apiserver";

/// Whose questions are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caller {
    /// API servers through their own aggregator, which shows the front-proxy certificate.
    Aggregator,
    /// Clients with a certificate of this authority whose common name is one of these.
    Mtls {
        /// The authority, in PEM; read again when it changes.
        authority: PathBuf,
        /// The common names.
        names: Vec<String>,
    },
    /// Whoever reaches the port: can have sessions signed for anybody's exec.
    Anyone,
}

/// What an API server tells extension servers about its front proxy, in the ConfigMap `extension-apiserver-authentication`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FrontProxy {
    /// In PEM.
    pub(super) authorities: String,
    /// Any if empty.
    names: Vec<String>,
    user_headers: Vec<String>,
    group_headers: Vec<String>,
    uid_headers: Vec<String>,
    extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Reads the data of the ConfigMap; `None` if the API server has no front proxy.
    pub(super) fn read(data: &Value) -> Option<Self> {
        let text = |key: &str| data.get(key).and_then(Value::as_str);
        let list = |key: &str| -> Vec<String> {
            text(key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        let authorities = text("requestheader-client-ca-file")?.to_owned();
        Some(Self {
            authorities,
            names: list("requestheader-allowed-names"),
            user_headers: list("requestheader-username-headers"),
            group_headers: list("requestheader-group-headers"),
            uid_headers: list("requestheader-uid-headers"),
            extra_prefixes: list("requestheader-extra-headers-prefix"),
        })
    }

    /// The user that a request is made for; `None` unless exactly one is named.
    fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let all = |names: &[String]| -> Vec<String> {
            let names = names.iter().filter_map(|name| name.parse::<HeaderName>().ok());
            let values = names.flat_map(|name| headers.get_all(name));
            values.filter_map(|value| Some(value.to_str().ok()?.to_owned())).collect()
        };
        let users = all(&self.user_headers);
        let [username] = users.as_slice() else { return None };
        if username.is_empty() {
            return None;
        }
        let mut user = UserInfo {
            username: username.clone(),
            uid: all(&self.uid_headers).into_iter().next().unwrap_or_default(),
            groups: all(&self.group_headers),
            ..UserInfo::default()
        };
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                let Some(key) = name.as_str().strip_prefix(&prefix) else { continue };
                let Ok(value) = value.to_str() else { continue };
                let values: &mut Vec<String> = user.extra.entry(unescaped(key)).or_default();
                values.push(value.to_owned());
            }
        }
        Some(user)
    }
}

/// Keys of extra fields are percent-encoded in the names of their headers.
fn unescaped(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key.as_bytes();
    while let [first, tail @ ..] = rest {
        let pair = tail.first_chunk::<2>().filter(|_| *first == b'%');
        let pair = pair.and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whose questions are answered at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trusted {
    /// Nobody yet: what to trust has not been read.
    Nobody,
    FrontProxy(FrontProxy),
    Names(Vec<String>),
    Anyone,
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// One that may ask for verdicts.
    ApiServer,
    /// Somebody else, whom an API server has authenticated.
    User(UserInfo),
}

impl Trusted {
    /// Who sent a request with these headers, by a client that proved to be `client`: the common name of a certificate that
    /// TLS has verified.
    pub(super) fn asker(&self, client: Option<&str>, headers: &HeaderMap) -> Option<Asker> {
        match self {
            Self::Nobody => None,
            Self::Anyone => Some(Asker::ApiServer),
            Self::Names(names) => {
                let client = client?;
                names.iter().any(|name| name == client).then_some(Asker::ApiServer)
            }
            Self::FrontProxy(proxy) => {
                let client = client?;
                if !proxy.names.is_empty() && !proxy.names.iter().any(|name| name == client) {
                    return None;
                }
                let user = proxy.user(headers)?;
                Some(if user.username == API_SERVER { Asker::ApiServer } else { Asker::User(user) })
            }
        }
    }
}

/// The common name of a certificate; `None` if there is none, or more than one.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_owned();
    names.next().is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use serde_json::json;

    use super::*;

    fn proxy() -> FrontProxy {
        let data = json!({
            "client-ca-file": "other",
            "requestheader-client-ca-file": "PEM",
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]"});
        FrontProxy::read(&data).unwrap()
    }

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    const FRONT: Option<&str> = Some("front-proxy-client");

    #[test]
    fn an_api_server_is_known_by_the_certificate_and_its_own_name_together() {
        let trusted = Trusted::FrontProxy(proxy());
        let own = headers(&[("x-remote-user", API_SERVER)]);
        assert_eq!(trusted.asker(FRONT, &own), Some(Asker::ApiServer));
        assert_eq!(trusted.asker(None, &own), None, "without a certificate");
        assert_eq!(trusted.asker(Some("system:node:n"), &own), None, "with another certificate");
        assert_eq!(trusted.asker(FRONT, &headers(&[])), None, "without a user");
        let two = headers(&[("x-remote-user", API_SERVER), ("x-remote-user", "ann")]);
        assert_eq!(trusted.asker(FRONT, &two), None, "with two users");
        assert_eq!(Trusted::Nobody.asker(FRONT, &own), None);
    }

    #[test]
    fn anybody_else_who_comes_through_the_aggregator_is_themselves() {
        let sent = headers(&[
            ("x-remote-user", "ann"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-uid", "u-1"),
            ("x-remote-extra-authentication.kubernetes.io%2fcredential-id", "JTI=1"),
        ]);
        let Some(Asker::User(ann)) = Trusted::FrontProxy(proxy()).asker(FRONT, &sent) else {
            panic!("a user is expected")
        };
        assert_eq!((&*ann.username, &*ann.uid), ("ann", "u-1"));
        assert_eq!(ann.groups, ["dev", "system:authenticated"]);
        assert_eq!(ann.extra["authentication.kubernetes.io/credential-id"], ["JTI=1"]);
    }

    #[test]
    fn without_a_list_of_names_every_certificate_of_the_front_proxy_is_one() {
        let mut proxy = proxy();
        proxy.names.clear();
        let own = headers(&[("x-remote-user", API_SERVER)]);
        assert_eq!(Trusted::FrontProxy(proxy).asker(Some("x"), &own), Some(Asker::ApiServer));
        assert_eq!(FrontProxy::read(&json!({"client-ca-file": "x"})), None);
    }

    #[test]
    fn with_mutual_tls_the_name_counts_and_headers_do_not() {
        let trusted = Trusted::Names(vec!["kube-apiserver".to_owned()]);
        let own = headers(&[("x-remote-user", API_SERVER)]);
        assert_eq!(trusted.asker(Some("kube-apiserver"), &headers(&[])), Some(Asker::ApiServer));
        assert_eq!(trusted.asker(Some("ann"), &own), None);
        assert_eq!(trusted.asker(None, &own), None);
    }

    #[test]
    fn a_certificate_has_one_common_name_or_none() {
        let name = |names: &[&str]| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            let kinds = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
            for (kind, name) in kinds.into_iter().zip(names) {
                params.distinguished_name.push(kind, *name);
            }
            common_name(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
        };
        assert_eq!(name(&["a"]).as_deref(), Some("a"));
        assert_eq!(name(&[]), None);
        assert_eq!(name(&["a", "b"]), None);
    }
}
