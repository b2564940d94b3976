//! Certificates that end while the server runs.

use std::{net::Ipv4Addr, path::Path, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use rustls::{RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpListener};
use tokio_rustls::TlsAcceptor;

use super::{super::certificates::renew_now, TestServer};
use crate::pki::{NodeFiles, NodeIdentity, issue_node};

/// A node that tells what its caller showed.
struct CertificateReader {
    listener: TcpListener,
    tls: TlsAcceptor,
}

impl CertificateReader {
    async fn start(state_dir: &Path) -> Self {
        let node = NodeIdentity {
            name: "n1".to_owned(),
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            server: "https://127.0.0.1".to_owned(),
            dir: state_dir.join("node-pki"),
        };
        let files = issue_node(state_dir, &node, Timestamp::now()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self { listener, tls: TlsAcceptor::from(server_tls(&files)) }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Answers one request and says which certificate came with it.
    async fn shown(&self) -> CertificateDer<'static> {
        let (tcp, _) = self.listener.accept().await.unwrap();
        let mut stream = self.tls.accept(tcp).await.unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nlog";
        stream.write_all(answer).await.unwrap();
        let _ = stream.shutdown().await;
        shown
    }
}

fn server_tls(files: &NodeFiles) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.authority).unwrap()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = vec![CertificateDer::from_pem_file(&files.serving_certificate).unwrap()];
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&files.serving_key).unwrap())
        .unwrap();
    Arc::new(config)
}

/// Hole: the certificate towards nodes was read once at the start, and after a year of service no exec,
/// no log and no attach would have worked.
#[tokio::test]
async fn a_renewed_certificate_is_shown_to_nodes_without_a_restart() {
    let server = TestServer::start_with_account().await;
    let node = CertificateReader::start(server.dir.path()).await;
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port()}}}});
    server.send("admin", "POST", "/api/v1/nodes", &object.to_string()).await.created();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    server.send("admin", "POST", pods, &pod.to_string()).await.created();
    let log = format!("{pods}/p/log");
    let (first, reply) = tokio::join!(node.shown(), server.send("admin", "GET", &log, ""));
    assert_eq!(reply.code, 200, "{reply:?}");
    let (again, _) = tokio::join!(node.shown(), server.send("admin", "GET", &log, ""));
    assert_eq!(again, first);
    let later = Timestamp::now() + SignedDuration::from_hours(330 * 24);
    renew_now(&server.server.api, &server.server.pki, later).unwrap();
    // It is valid from then on only, which a node of today does not believe; so make it today's.
    let files = server.dir.path().join("pki");
    for name in ["apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"] {
        std::fs::remove_file(files.join(name)).unwrap();
    }
    renew_now(&server.server.api, &server.server.pki, Timestamp::now()).unwrap();
    let (renewed, reply) = tokio::join!(node.shown(), server.send("admin", "GET", &log, ""));
    assert_eq!(reply.code, 200, "{reply:?}");
    assert_ne!(renewed, first);
}
