//! The identity of a node: two certificates of the cluster authority, and a kubeconfig that names them.
//!
//! For a node on the machine of its API server, whose keys are at hand. The certificates are made
//! anew when they end soon, or when the node has another name or address.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde_json::json;

use super::{
    PairPaths, PkiError, YEAR,
    authority::{Subject, Usage},
    files::{self, Audience},
    own_authority,
    pair::{own_pair, paths},
};
use crate::authz::node::{NODE_USER_PREFIX, NODES_GROUP};

/// Who a node is, and where its files go.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// The name of its object.
    pub name: String,
    /// Where its own API is reached.
    pub addresses: Vec<IpAddr>,
    /// The URL of the API server.
    pub server: String,
    /// A private directory of the node, made if it is missing.
    pub dir: PathBuf,
}

/// The files of a node's identity.
#[derive(Clone, Debug)]
pub struct NodeFiles {
    /// With which it connects to the API server.
    pub kubeconfig: PathBuf,
    /// What it shows to its own clients, in PEM.
    pub serving_certificate: PathBuf,
    /// The key of that certificate, in PEM.
    pub serving_key: PathBuf,
    /// Who vouches for the API server and for clients of the node, in PEM.
    pub authority: PathBuf,
    /// Whether a certificate is new, so that a running node should be started again.
    pub renewed: bool,
}

/// Why a node has no identity.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the identity of node {node}")]
pub struct NodeIdentityError {
    node: String,
    #[source]
    source: PkiError,
}

/// Makes sure that a node has its files, signed by the authority in the state directory of an API
/// server; that authority is made too if there is none yet.
pub fn issue_node(
    state_dir: &Path,
    node: &NodeIdentity,
    now: Timestamp,
) -> Result<NodeFiles, NodeIdentityError> {
    issue(state_dir, node, now)
        .map_err(|source| NodeIdentityError { node: node.name.clone(), source })
}

fn issue(state_dir: &Path, node: &NodeIdentity, now: Timestamp) -> Result<NodeFiles, PkiError> {
    let cluster = state_dir.join("pki");
    files::private_dir(&cluster)?;
    let (authority, authority_pem) = own_authority(&cluster, "ca", "kubernetes", now)?;
    files::private_dir(&node.dir)?;
    let before = [read(&node.dir, "client")?, read(&node.dir, "serving")?];
    let user = format!("{NODE_USER_PREFIX}{}", node.name);
    let groups = [NODES_GROUP];
    let subject = |usage| Subject { name: &user, groups: &groups, usage, lifetime: YEAR };
    let client = own_pair(&node.dir, "client", &authority, &subject(Usage::Client), now)?;
    let addresses = node.addresses.iter().map(ToString::to_string);
    let names: Vec<String> = [node.name.clone()].into_iter().chain(addresses).collect();
    let serving = subject(Usage::Server(&names));
    let serving = own_pair(&node.dir, "serving", &authority, &serving, now)?;

    let authority_path = node.dir.join("ca.crt");
    files::write(&authority_path, authority_pem.as_bytes(), Audience::Everyone)?;
    let kubeconfig = node.dir.join("kubeconfig");
    let client_paths = paths(&node.dir, "client");
    let content = kubeconfig_of(node, &authority_path, &client_paths).to_string();
    files::write(&kubeconfig, content.as_bytes(), Audience::Owner)?;
    let serving_paths = paths(&node.dir, "serving");
    Ok(NodeFiles {
        kubeconfig,
        serving_certificate: serving_paths.certificate,
        serving_key: serving_paths.key,
        authority: authority_path,
        renewed: before.map(Option::unwrap_or_default)
            != [client, serving].map(|it| it.certificate),
    })
}

fn read(dir: &Path, stem: &str) -> Result<Option<String>, PkiError> {
    let certificate = files::read(&paths(dir, stem).certificate)?;
    Ok(certificate.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// JSON is YAML, and quoting is right by construction.
fn kubeconfig_of(node: &NodeIdentity, authority: &Path, client: &PairPaths) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "waybill", "cluster": {
            "server": node.server,
            "certificate-authority": authority,
        }}],
        "users": [{"name": "node", "user": {
            "client-certificate": client.certificate,
            "client-key": client.key,
        }}],
        "contexts": [{"name": "waybill", "context": {"cluster": "waybill", "user": "node"}}],
        "current-context": "waybill",
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rustls_pki_types::{CertificateDer, pem::PemObject};
    use tempfile::TempDir;

    use super::{
        super::{Pki, PkiConfig, authority::parse, pair::covers},
        *,
    };

    const NOW: i64 = 1_800_000_000;
    const DAY: i64 = 24 * 3600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn identity(dir: &TempDir, name: &str) -> NodeIdentity {
        NodeIdentity {
            name: name.to_owned(),
            addresses: vec!["127.0.0.1".parse().unwrap()],
            server: "https://127.0.0.1:6443".to_owned(),
            dir: dir.path().join("node/pki"),
        }
    }

    fn certificate(path: &Path) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn a_node_gets_what_the_cluster_authority_signed_and_keys_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let files = issue_node(dir.path(), &identity(&dir, "n1"), at(NOW)).unwrap();
        assert!(files.renewed);
        let config = PkiConfig { dir: dir.path().join("pki"), ..PkiConfig::default() };
        let pki = Pki::open(config, at(NOW)).unwrap();
        let authority = parse(pki.cluster_authority()).unwrap();

        let serving = certificate(&files.serving_certificate);
        let serving = parse(&serving).unwrap();
        assert!(covers(&serving, "n1") && covers(&serving, "127.0.0.1"));
        let client = certificate(&dir.path().join("node/pki/client.crt"));
        let client = parse(&client).unwrap();
        let common_name = client.subject().iter_common_name().next().unwrap();
        assert_eq!(common_name.as_str().unwrap(), "system:node:n1");
        let group = client.subject().iter_organization().next().unwrap();
        assert_eq!(group.as_str().unwrap(), "system:nodes");
        for signed in [&serving, &client] {
            signed.verify_signature(Some(authority.public_key())).unwrap();
        }
        for private in [&files.serving_key, &files.kubeconfig] {
            assert_eq!(fs::metadata(private).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn an_identity_stays_until_it_ends_soon_or_the_node_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let issue = |node: &NodeIdentity, second| issue_node(dir.path(), node, at(second)).unwrap();
        let node = identity(&dir, "n1");
        issue(&node, NOW);
        assert!(!issue(&node, NOW + 255 * DAY).renewed);
        assert!(issue(&node, NOW + 256 * DAY).renewed);
        assert!(!issue(&node, NOW + 256 * DAY).renewed);
        let renamed = identity(&dir, "n2");
        assert!(issue(&renamed, NOW + 256 * DAY).renewed);
        let addresses = vec!["192.0.2.1".parse().unwrap()];
        assert!(issue(&NodeIdentity { addresses, ..renamed }, NOW + 256 * DAY).renewed);
    }
}
