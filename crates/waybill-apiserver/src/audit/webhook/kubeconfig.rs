//! Where the service is and how both sides prove who they are: a file of a kubeconfig's form, as upstream has it.
//!
//! Files that it names are read again for each connection, so certificates and tokens may be exchanged.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderValue, Uri};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde::Deserialize;
use waybill_core::secret::SecretBytes;
use zeroize::Zeroizing;

use crate::pki::TrustedLeaf;

/// A service for audit events.
pub(crate) struct WebhookTarget {
    host: String,
    port: u16,
    path: String,
    tls: Option<Tls>,
    credential: Credential,
}

struct Tls {
    name: ServerName<'static>,
    /// Whom to believe.
    authority: Source,
    identity: Option<(Source, Source)>,
}

enum Credential {
    None,
    Token(Source),
    Password { user: String, password: SecretBytes },
}

/// Bytes that are in the file itself, or in another one.
enum Source {
    Here(SecretBytes),
    File(PathBuf),
}

/// Why a file names no service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookConfigError {
    #[error("cannot read it")]
    Read(#[source] io::Error),
    /// Without what the parser says, which may show a token.
    #[error("line {line}: it is not of the form of a kubeconfig")]
    Syntax { line: u64 },
    #[error("{what} {name:?} is not there")]
    Missing { what: &'static str, name: String },
    #[error("server: expected https://HOST[:PORT][/PATH], found {0:?}")]
    Server(String),
    #[error("server: {0} would show the events to the network; use https://")]
    Plain(String),
    #[error("{0} cannot be used here; {1}")]
    Unsupported(&'static str, &'static str),
    #[error("{0}: it is not base64")]
    Base64(&'static str),
    #[error("a certificate of the client needs its key, and a key its certificate")]
    HalfIdentity,
    #[error("the certificates and keys cannot be used")]
    Tls(#[source] io::Error),
}

#[derive(Deserialize)]
struct Kubeconfig {
    #[serde(default)]
    clusters: Vec<Named<ClusterEntry>>,
    #[serde(default)]
    users: Vec<Named<UserEntry>>,
    #[serde(default)]
    contexts: Vec<Named<ContextEntry>>,
    #[serde(rename = "current-context", default)]
    current_context: String,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    entry: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    proxy_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct UserEntry {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct ContextEntry {
    cluster: String,
    #[serde(default)]
    user: String,
}

impl WebhookTarget {
    /// Reads the file at `path`. What it names is read too, once, so that faults are found now.
    pub(crate) fn read(path: &Path) -> Result<Self, WebhookConfigError> {
        let text =
            fs::read_to_string(path).map(Zeroizing::new).map_err(WebhookConfigError::Read)?;
        let beside = path.parent().unwrap_or(Path::new("."));
        let target = Self::parse(&text, beside)?;
        target.tls().map_err(WebhookConfigError::Tls)?;
        target.authorization().map_err(WebhookConfigError::Read)?;
        Ok(target)
    }

    fn parse(text: &str, beside: &Path) -> Result<Self, WebhookConfigError> {
        let file: Kubeconfig = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            WebhookConfigError::Syntax { line }
        })?;
        let context = pick("context", &file.contexts, &file.current_context)?;
        let cluster = pick("cluster", &file.clusters, &context.cluster)?;
        let nobody = UserEntry::default();
        let user = match context.user.as_str() {
            "" => &nobody,
            name => pick("user", &file.users, name)?,
        };
        refuse_unsupported(cluster, user)?;
        let (host, port, path, secure) = split(&cluster.server)?;
        let tls = match secure {
            true => Some(Tls::of(&host, cluster, user, beside)?),
            false => None,
        };
        Ok(Self { host, port, path, tls, credential: Credential::of(user, beside) })
    }

    /// For `Host`, and for people.
    pub(super) fn place(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// How to speak TLS, and whom we expect; `None` if there is no TLS.
    pub(super) fn tls(&self) -> io::Result<Option<(Arc<ClientConfig>, ServerName<'static>)>> {
        let Some(tls) = &self.tls else { return Ok(None) };
        Ok(Some((Arc::new(tls.config()?), tls.name.clone())))
    }

    /// The header that says who we are.
    pub(super) fn authorization(&self) -> io::Result<Option<HeaderValue>> {
        let text = match &self.credential {
            Credential::None => return Ok(None),
            Credential::Token(token) => {
                let token = token.bytes()?;
                let token = String::from_utf8_lossy(token.expose()).into_owned();
                Zeroizing::new(format!("Bearer {}", Zeroizing::new(token).trim()))
            }
            Credential::Password { user, password } => {
                let mut pair = Zeroizing::new(format!("{user}:").into_bytes());
                pair.extend_from_slice(password.expose());
                Zeroizing::new(format!("Basic {}", BASE64_STANDARD.encode(pair.as_slice())))
            }
        };
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| io::Error::other("it has characters that no header can have"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl Tls {
    fn of(
        host: &str,
        cluster: &ClusterEntry,
        user: &UserEntry,
        beside: &Path,
    ) -> Result<Self, WebhookConfigError> {
        let name = cluster.tls_server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| WebhookConfigError::Server(cluster.server.clone()))?;
        let authority = source(
            "certificate-authority-data",
            cluster.certificate_authority_data.as_deref(),
            cluster.certificate_authority.as_deref(),
            beside,
        )?;
        let without = "name who signs the certificate of the service, as certificate-authority";
        let authority = authority
            .ok_or(WebhookConfigError::Unsupported("a server without an authority", without))?;
        let certificate = source(
            "client-certificate-data",
            user.client_certificate_data.as_deref(),
            user.client_certificate.as_deref(),
            beside,
        )?;
        let data = user.client_key_data.as_deref();
        let key = source("client-key-data", data, user.client_key.as_deref(), beside)?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(WebhookConfigError::HalfIdentity),
        };
        Ok(Self { name, authority, identity })
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let bundle = chain(&self.authority)?;
        let mut roots = RootCertStore::empty();
        for certificate in &bundle {
            roots.add(certificate.clone()).map_err(io::Error::other)?;
        }
        let verifier = TrustedLeaf::new(roots, bundle).map_err(io::Error::other)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key.bytes()?.expose()).map_err(io::Error::other)?;
        builder.with_client_auth_cert(chain(certificate)?, key).map_err(io::Error::other)
    }
}

impl Credential {
    fn of(user: &UserEntry, beside: &Path) -> Self {
        match user {
            // As clients have it: the file wins, since it may be exchanged.
            UserEntry { token_file: Some(file), .. } => {
                Self::Token(Source::File(beside.join(file)))
            }
            UserEntry { token: Some(token), .. } => {
                Self::Token(Source::Here(SecretBytes::copy_of(token.as_bytes())))
            }
            UserEntry { username: Some(user), password, .. } => {
                let password = password.as_deref().unwrap_or_default();
                let password = SecretBytes::copy_of(password.as_bytes());
                Self::Password { user: user.clone(), password }
            }
            _ => Self::None,
        }
    }
}

impl Source {
    fn bytes(&self) -> io::Result<SecretBytes> {
        match self {
            Self::Here(bytes) => Ok(SecretBytes::copy_of(bytes.expose())),
            Self::File(path) => {
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                };
                fs::read(path).map(SecretBytes::from).map_err(named)
            }
        }
    }
}

fn chain(source: &Source) -> io::Result<Vec<CertificateDer<'static>>> {
    let bytes = source.bytes()?;
    let chain = CertificateDer::pem_slice_iter(bytes.expose()).collect::<Result<Vec<_>, _>>();
    chain.map_err(io::Error::other)
}

/// Data wins over a path, as for every client; a path is relative to the file.
fn source(
    field: &'static str,
    data: Option<&str>,
    path: Option<&Path>,
    beside: &Path,
) -> Result<Option<Source>, WebhookConfigError> {
    match (data, path) {
        (Some(data), _) => {
            let bytes = BASE64_STANDARD.decode(data.trim());
            let bytes = bytes.map_err(|_| WebhookConfigError::Base64(field))?;
            Ok(Some(Source::Here(SecretBytes::from(bytes))))
        }
        (None, Some(path)) => Ok(Some(Source::File(beside.join(path)))),
        (None, None) => Ok(None),
    }
}

fn pick<'a, T>(
    what: &'static str,
    entries: &'a [Named<T>],
    name: &str,
) -> Result<&'a T, WebhookConfigError> {
    let found = entries.iter().find(|entry| entry.name == name).map(|entry| &entry.entry);
    found.ok_or_else(|| WebhookConfigError::Missing { what, name: name.to_owned() })
}

fn refuse_unsupported(cluster: &ClusterEntry, user: &UserEntry) -> Result<(), WebhookConfigError> {
    let refused = |what, advice| Err(WebhookConfigError::Unsupported(what, advice));
    if cluster.insecure_skip_tls_verify {
        return refused("insecure-skip-tls-verify", "name an authority");
    }
    if cluster.proxy_url.is_some() {
        return refused("proxy-url", "name a service that this machine reaches");
    }
    if user.exec.is_some() {
        return refused("exec", "use a certificate, tokenFile or token");
    }
    Ok(())
}

/// Host, port, path, and whether there is TLS. Without it the service must be on this machine.
fn split(server: &str) -> Result<(String, u16, String, bool), WebhookConfigError> {
    let wrong = || WebhookConfigError::Server(server.to_owned());
    let uri: Uri = server.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|it| !it.as_str().contains('@')).ok_or_else(wrong)?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") if is_here(&host) => false,
        Some("http") => return Err(WebhookConfigError::Plain(server.to_owned())),
        _ => return Err(wrong()),
    };
    let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |it| it.as_str()).to_owned();
    Ok((host, port, path, secure))
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'SERVER', CLUSTER}}]
users: [{name: u, user: {USER}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";

    fn parse(server: &str, cluster: &str, user: &str) -> Result<WebhookTarget, WebhookConfigError> {
        let text = FILE.replace("SERVER", server);
        let text = text.replace("CLUSTER", cluster).replace("USER", user);
        WebhookTarget::parse(&text, Path::new("/etc/waybill"))
    }

    #[track_caller]
    fn check_refused(server: &str, cluster: &str, user: &str, words: &str) {
        let told = parse(server, cluster, user).err().unwrap().to_string();
        assert!(told.contains(words), "{told}");
    }

    #[test]
    fn a_service_is_named_as_in_a_kubeconfig() {
        let target = parse(
            "https://audit.example:8443/events?x=1",
            "certificate-authority: ca.crt",
            "tokenFile: token",
        );
        let target = target.unwrap();
        assert_eq!(target.place(), "audit.example:8443");
        assert_eq!(target.path(), "/events?x=1");
        let missing = target.authorization().unwrap_err().to_string();
        assert!(missing.starts_with("/etc/waybill/token: "), "{missing}");
        let missing = target.tls().unwrap_err().to_string();
        assert!(missing.starts_with("/etc/waybill/ca.crt: "), "{missing}");
        let plain = parse("http://127.0.0.1:9", "", "username: a, password: b").unwrap();
        assert!(plain.tls().unwrap().is_none());
        assert_eq!(plain.authorization().unwrap().unwrap(), "Basic YTpi");
        let value = plain.authorization().unwrap().unwrap();
        assert!(!format!("{value:?}").contains("YTpi"), "{value:?}");
    }

    #[test]
    fn what_would_be_unsafe_or_is_not_there_is_refused_with_what_to_do() {
        check_refused("http://audit.example/", "", "", "use https://");
        check_refused("https://a@b/", "certificate-authority: x", "", "expected https://HOST");
        check_refused("https://audit.example", "", "", "certificate-authority");
        check_refused("https://a", "insecure-skip-tls-verify: true", "", "name an authority");
        check_refused("https://a", "certificate-authority-data: '!'", "", "not base64");
        let ca = "certificate-authority: x";
        check_refused("https://a", ca, "client-key: k", "needs its key, and a key its certificate");
        check_refused("https://a", ca, "exec: {command: x}", "exec cannot be used here");
        check_refused("https://a", "proxy-url: http://p", "", "proxy-url cannot be used here");
        let text = FILE.replace("current-context: x", "current-context: y");
        let refused = WebhookTarget::parse(&text, Path::new("/")).err().unwrap().to_string();
        assert_eq!(refused, "context \"y\" is not there");
        check_refused("https://a", ca, "token: [hunter2]", "line 5: it is not of the form");
    }
}
