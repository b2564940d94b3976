//! Keys and certificates of the cluster, in one private directory.
//!
//! The first start makes them, later starts load them: an identity never changes by restarting. File
//! names are those of kubeadm. What the user supplies by path is used as it is and never written.
//!
//! | Files | What for |
//! |---|---|
//! | `ca.crt`, `ca.key` | cluster authority: signs the server's, nodes' and admins' certificates |
//! | `front-proxy-ca.crt`, `.key` | vouches for front proxies only |
//! | `apiserver.crt`, `.key` | shown to clients |
//! | `apiserver-kubelet-client.crt`, `.key` | shown to nodes |
//! | `sa.key` | signs service account tokens |
//! | `exec-session.key` | signs tokens of exec sessions, for nodes; remove it to get a new one |

mod authority;
pub(crate) mod files;
mod node;
mod pair;
pub(crate) mod tls;
mod trusted_leaf;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rcgen::KeyPair;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use waybill_core::secret::SecretBytes;

pub(crate) use self::authority::{IssueError, Issued};
pub use self::node::{NodeFiles, NodeIdentity, NodeIdentityError, issue_node};
pub(crate) use self::trusted_leaf::TrustedLeaf;
use self::{
    authority::{Authority, Subject, Usage},
    files::{Audience, FileError},
    pair::{own_pair, pair_of, paths, required_pair},
    tls::{ServingCertificate, TlsError},
};
use crate::authz::NODE_CLIENTS_GROUP;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// User and group of the API server towards nodes.
///
/// The group is not `system:masters`: bootstrap RBAC binds it to `system:kubelet-api-admin`, which is
/// the node API and nothing else, for nodes that ask back with a SubjectAccessReview.
const NODE_CLIENT: (&str, &str) = ("kube-apiserver-kubelet-client", NODE_CLIENTS_GROUP);

/// Names under which every cluster reaches its own API server.
const OWN_NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Where the PKI lives and what it must offer.
#[derive(Clone, Debug, Default)]
pub(crate) struct PkiConfig {
    /// The directory, made if it is missing.
    pub(crate) dir: PathBuf,
    /// DNS names and IP addresses of the server besides the usual ones: host name, listen address.
    pub(crate) names: Vec<String>,
    pub(crate) supplied: Supplied,
}

/// Files of the user that take the place of generated ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supplied {
    pub(crate) cluster_ca: Option<PairPaths>,
    /// Certificates only: the server never signs with this authority.
    pub(crate) front_proxy_ca: Option<PathBuf>,
    pub(crate) serving: Option<PairPaths>,
    pub(crate) node_client: Option<PairPaths>,
    pub(crate) service_account_key: Option<PathBuf>,
}

/// Paths of a certificate chain and its key, both in PEM.
#[derive(Clone, Debug)]
pub(crate) struct PairPaths {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// All keys and certificates, loaded.
pub(crate) struct Pki {
    config: PkiConfig,
    cluster: Authority,
    cluster_pem: String,
    front_proxy: Vec<CertificateDer<'static>>,
    front_proxy_pem: String,
    serving: Arc<ServingCertificate>,
    node_client: ArcSwap<Issued>,
    service_account_key: SecretBytes,
    exec_session_key: SecretBytes,
}

impl Pki {
    /// Loads the PKI, making what is missing and renewing what ends soon.
    pub(crate) fn open(config: PkiConfig, now: Timestamp) -> Result<Self, PkiError> {
        files::private_dir(&config.dir)?;
        let supplied = &config.supplied;
        let (cluster, cluster_pem) = match &supplied.cluster_ca {
            Some(paths) => load_authority(paths, required_pair(paths)?)?,
            None => own_authority(&config.dir, "ca", "kubernetes", now)?,
        };
        let (front_proxy, front_proxy_pem) = match &supplied.front_proxy_ca {
            Some(path) => {
                let pem = files::read_existing(path)?;
                (certificates(path, &pem)?, String::from_utf8_lossy(&pem).into_owned())
            }
            None => {
                let (authority, pem) =
                    own_authority(&config.dir, "front-proxy-ca", "front-proxy-ca", now)?;
                (vec![authority.certificate().clone()], pem)
            }
        };
        let serving = serving_pair(&config, &cluster, now)?;
        let serving = ServingCertificate::new(&serving.issued).map_err(tls_at(&serving.path))?;
        let node_client = ArcSwap::from_pointee(node_pair(&config, &cluster, now)?);
        let service_account_key = match &config.supplied.service_account_key {
            Some(path) => SecretBytes::from(files::read_existing(path)?),
            None => own_key(&config.dir, "sa.key")?,
        };
        let exec_session_key = own_key(&config.dir, "exec-session.key")?;
        let serving = Arc::new(serving);
        Ok(Self {
            config,
            cluster,
            cluster_pem,
            front_proxy,
            front_proxy_pem,
            serving,
            node_client,
            service_account_key,
            exec_session_key,
        })
    }

    /// Renews the server's certificates that end soon, and reads the user's files again.
    ///
    /// To be called now and then, such as every hour; connections already open keep what they have.
    pub(crate) fn refresh(&self, now: Timestamp) -> Result<Refreshed, PkiError> {
        let mut refreshed = Refreshed::Unchanged;
        let pair = serving_pair(&self.config, &self.cluster, now)?;
        let found = certificates(&pair.path, pair.issued.certificate.as_bytes())?;
        if found != self.serving.chain() {
            self.serving.replace(&pair.issued).map_err(tls_at(&pair.path))?;
            refreshed = Refreshed::Replaced;
        }
        let node_client = node_pair(&self.config, &self.cluster, now)?;
        if node_client.certificate != self.node_client.load().certificate {
            self.node_client.store(Arc::new(node_client));
            refreshed = Refreshed::Replaced;
        }
        Ok(refreshed)
    }

    /// A client certificate for `user` in `groups`, signed by the cluster authority.
    pub(crate) fn issue_client(
        &self,
        user: &str,
        groups: &[&str],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Issued, IssueError> {
        self.cluster.issue(&Subject { name: user, groups, usage: Usage::Client, lifetime }, now)
    }

    /// The authority that vouches for clients.
    pub(crate) fn cluster_authority(&self) -> &CertificateDer<'static> {
        self.cluster.certificate()
    }

    /// The same in PEM, for kubeconfigs and for pods.
    pub(crate) fn cluster_authority_pem(&self) -> &str {
        &self.cluster_pem
    }

    /// The authorities that vouch for front proxies.
    pub(crate) fn front_proxy_authorities(&self) -> &[CertificateDer<'static>] {
        &self.front_proxy
    }

    /// The same in PEM, for servers that stand behind such proxies too.
    pub(crate) fn front_proxy_authorities_pem(&self) -> &str {
        &self.front_proxy_pem
    }

    /// What the server shows to clients.
    pub(crate) fn serving(&self) -> Arc<ServingCertificate> {
        Arc::clone(&self.serving)
    }

    /// What the server shows to nodes, as of now.
    pub(crate) fn node_client(&self) -> Arc<Issued> {
        self.node_client.load_full()
    }

    /// The PEM key that signs service account tokens.
    pub(crate) fn service_account_key(&self) -> &SecretBytes {
        &self.service_account_key
    }

    /// The PEM key that signs tokens of exec sessions.
    pub(crate) fn exec_session_key(&self) -> &SecretBytes {
        &self.exec_session_key
    }
}

/// What [`Pki::refresh`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refreshed {
    Replaced,
    Unchanged,
}

/// Why the PKI cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PkiError {
    #[error("{} is missing; put it back, or remove {} as well to start a new authority \
        (every certificate it signed becomes invalid)", missing.display(), present.display())]
    AuthorityKeyMissing { missing: PathBuf, present: PathBuf },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot use {}", path.display())]
    Issue {
        path: PathBuf,
        #[source]
        source: IssueError,
    },
    #[error("cannot use {}: no certificate in it; expected PEM", path.display())]
    NoCertificate { path: PathBuf },
    #[error("cannot use {}", path.display())]
    Tls {
        path: PathBuf,
        #[source]
        source: TlsError,
    },
}

/// The serving certificate as the files have it.
struct ServingPair {
    issued: Issued,
    path: PathBuf,
}

fn serving_pair(
    config: &PkiConfig,
    cluster: &Authority,
    now: Timestamp,
) -> Result<ServingPair, PkiError> {
    if let Some(paths) = &config.supplied.serving {
        return Ok(ServingPair { issued: required_pair(paths)?, path: paths.certificate.clone() });
    }
    let mut names: Vec<String> = OWN_NAMES.map(str::to_owned).to_vec();
    for name in &config.names {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let subject = Subject {
        name: "kube-apiserver",
        groups: &[],
        usage: Usage::Server(&names),
        lifetime: YEAR,
    };
    let issued = own_pair(&config.dir, "apiserver", cluster, &subject, now)?;
    Ok(ServingPair { issued, path: config.dir.join("apiserver.crt") })
}

fn node_pair(config: &PkiConfig, cluster: &Authority, now: Timestamp) -> Result<Issued, PkiError> {
    if let Some(paths) = &config.supplied.node_client {
        return required_pair(paths);
    }
    let (name, group) = NODE_CLIENT;
    let subject = Subject { name, groups: &[group], usage: Usage::Client, lifetime: YEAR };
    own_pair(&config.dir, "apiserver-kubelet-client", cluster, &subject, now)
}

fn own_authority(
    dir: &Path,
    stem: &str,
    name: &str,
    now: Timestamp,
) -> Result<(Authority, String), PkiError> {
    let paths = paths(dir, stem);
    let certificate = files::read(&paths.certificate)?;
    let key = files::read_key(&paths.key)?;
    let pair = match (certificate, key) {
        (Some(certificate), Some(key)) => pair_of(&certificate, key),
        (Some(_), None) => {
            return Err(PkiError::AuthorityKeyMissing {
                missing: paths.key,
                present: paths.certificate,
            });
        }
        // A key alone is what a crash during the first start leaves; nothing was signed with it.
        (None, _) => {
            let issued = Authority::generate(name, AUTHORITY_LIFETIME, now)
                .map_err(issue_at(&paths.certificate))?;
            files::write(&paths.key, issued.key.expose(), Audience::Owner)?;
            files::write(&paths.certificate, issued.certificate.as_bytes(), Audience::Everyone)?;
            issued
        }
    };
    load_authority(&paths, pair)
}

fn load_authority(paths: &PairPaths, pair: Issued) -> Result<(Authority, String), PkiError> {
    let authority = Authority::load(pair.certificate.as_bytes(), &pair.key)
        .map_err(issue_at(&paths.certificate))?;
    Ok((authority, pair.certificate))
}

/// A key without certificate, made if it is missing.
fn own_key(dir: &Path, name: &str) -> Result<SecretBytes, PkiError> {
    let path = dir.join(name);
    if let Some(key) = files::read_key(&path)? {
        return Ok(key);
    }
    let key = KeyPair::generate().map_err(|error| issue_at(&path)(error.into()))?;
    let pem = SecretBytes::from(key.serialize_pem().into_bytes());
    files::write(&path, pem.expose(), Audience::Owner)?;
    Ok(pem)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| issue_at(path)(error.into()))?;
    if found.is_empty() {
        return Err(PkiError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}

fn issue_at(path: &Path) -> impl FnOnce(IssueError) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::Issue { path, source }
}

fn tls_at(path: &Path) -> impl FnOnce(TlsError) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::Tls { path, source }
}

#[cfg(test)]
mod tests;
