//! Clients that are slow, silent or half gone.

use bytes::Bytes;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsConnector, client};

use super::{super::body::whole_body, *};
use crate::pki::{Pki, PkiConfig, tls::server_config};

/// A tenth of a second; the checks wait a hundred times as long.
const SHORT: Duration = Duration::from_millis(100);

struct Hello;

impl Service for Hello {
    fn identify(&self, _: &[CertificateDer<'_>]) -> Peer {
        Peer::Unknown
    }

    async fn answer(self: Arc<Self>, _: Connection, _: Request<Incoming>) -> Response<Body> {
        Response::new(whole_body(Bytes::from_static(b"hello")))
    }
}

struct Fixture {
    _dir: TempDir,
    pki: Pki,
    address: SocketAddr,
    stop: CancellationToken,
}

impl Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = PkiConfig {
            dir: dir.path().join("pki"),
            names: vec!["127.0.0.1".to_owned()],
            ..PkiConfig::default()
        };
        let pki = Pki::open(config, jiff::Timestamp::now()).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let tls = Arc::new(server_config(pki.serving(), &[]).unwrap());
        let patience = Patience { handshake: SHORT, headers: SHORT };
        let listener = Listener { socket, tls, patience };
        let stop = CancellationToken::new();
        tokio::spawn(listener.serve(Arc::new(Hello), stop.clone()));
        Self { _dir: dir, pki, address, stop }
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn tls(&self, protocol: &[u8]) -> client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.pki.cluster_authority().clone()).unwrap();
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await.unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Sends `bytes`, then nothing, and expects the other end to lose patience.
async fn check_cut_off(mut stream: impl AsyncRead + AsyncWriteExt + Unpin, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(100 * SHORT, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection is open after {bytes:?}");
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_handshake_is_cut_off() {
    let fixture = Fixture::start().await;
    check_cut_off(fixture.tcp().await, b"").await;
    check_cut_off(fixture.tcp().await, b"\x16\x03\x01\x02\x00\x01").await;
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_headers_is_cut_off() {
    let fixture = Fixture::start().await;
    check_cut_off(fixture.tls(b"http/1.1").await, b"").await;
    check_cut_off(fixture.tls(b"http/1.1").await, b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ").await;
}

#[tokio::test]
async fn a_client_that_does_not_finish_the_preface_of_http2_is_cut_off() {
    let fixture = Fixture::start().await;
    check_cut_off(fixture.tls(b"h2").await, b"").await;
    check_cut_off(fixture.tls(b"h2").await, b"PRI * HT").await;
}
