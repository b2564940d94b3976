//! Clients that are slow, silent or half gone.

use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsConnector, client};
use waybill_stream::open_connections::MostConnections;

use super::*;
use crate::pki::{Pki, PkiConfig, tls::server_config};

/// A tenth of a second; the checks wait a hundred times as long.
const SHORT: Duration = Duration::from_millis(100);

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// Says hello, except at `/never`. Whoever sends any authorization is known.
#[derive(Default)]
struct Hello {
    /// Requests that wait for their answer.
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
}

/// Counts a request until it is answered or given up.
struct Waiting(Arc<Hello>);

impl Waiting {
    fn new(hello: Arc<Hello>) -> Self {
        let now = hello.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        hello.most_waiting.fetch_max(now, Ordering::Relaxed);
        Self(hello)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service for Hello {
    fn identify(&self, _: &[CertificateDer<'_>]) -> Peer {
        Peer::Unknown
    }

    async fn answer(
        self: Arc<Self>,
        connection: Connection,
        request: Request<Incoming>,
    ) -> Response<Body> {
        if request.headers().contains_key("authorization") {
            connection.open.note_known();
        }
        if request.uri().path() == "/never" {
            let _waiting = Waiting::new(self);
            return std::future::pending().await;
        }
        Response::new(Body::whole(Bytes::from_static(b"hello")))
    }
}

struct Fixture {
    _dir: TempDir,
    pki: Pki,
    address: SocketAddr,
    hello: Arc<Hello>,
    stop: CancellationToken,
}

impl Fixture {
    async fn start() -> Self {
        Self::start_with(Patience { handshake: SHORT, headers: SHORT }).await
    }

    async fn start_with(patience: Patience) -> Self {
        Self::start_with_most(patience, MostConnections::default()).await
    }

    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    async fn start_with_most(patience: Patience, most: MostConnections) -> Self {
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
        let listener = Listener { socket, tls, patience, open: OpenConnections::new(most) };
        let stop = CancellationToken::new();
        let hello = Arc::new(Hello::default());
        tokio::spawn(listener.serve(Arc::clone(&hello), stop.clone()));
        Self { _dir: dir, pki, address, hello, stop }
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

impl Fixture {
    /// A new client is served.
    async fn check_hello(&self) {
        let mut stream = self.tls(b"http/1.1").await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        assert!(answer.ends_with(b"hello"), "{answer:?}");
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

/// Hole: some thousand connections that sent nothing took all files that the server could open, and nobody else
/// was served for as long as a handshake may take.
#[tokio::test]
async fn silent_connections_make_room_for_others_and_push_out_nobody_known() {
    let patience = Patience { handshake: LONG, headers: LONG };
    let most = MostConnections { known: 10, strangers: 20 };
    let fixture = Fixture::start_with_most(patience, most).await;
    let mut known = fixture.tls(b"http/1.1").await;
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n";
    let mut ask = async || {
        known.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            assert_ne!(timeout(LONG, known.read_buf(&mut answer)).await.unwrap().unwrap(), 0);
        }
    };
    ask().await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(fixture.tcp().await);
    }
    fixture.check_hello().await;
    let mut first = silent.remove(0);
    assert_eq!(timeout(LONG, first.read(&mut [0])).await.unwrap().unwrap(), 0, "it is closed");
    ask().await;
}

/// Slow-loris: headers that never end, a byte at a time. They cost a connection each, for a while, and nobody else
/// waits for them.
#[tokio::test]
async fn many_clients_with_endless_headers_do_not_stop_the_others_and_are_cut_off() {
    let patience = Patience { handshake: LONG, headers: 30 * SHORT };
    let fixture = Fixture::start_with(patience).await;
    let mut streams = Vec::new();
    for _ in 0..300 {
        let mut stream = fixture.tls(b"http/1.1").await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ").await.unwrap();
        streams.push(stream);
    }
    fixture.check_hello().await;
    let mut drips = tokio::task::JoinSet::new();
    for mut stream in streams {
        drips.spawn(async move {
            let mut byte = [0];
            // Until an answer that is none, or the end.
            while timeout(SHORT, stream.read(&mut byte)).await.is_err() {
                if stream.write_all(b"x").await.is_err() {
                    return;
                }
            }
        });
    }
    let ended = timeout(LONG, drips.join_all()).await;
    assert!(ended.is_ok(), "some connections are still open");
    fixture.check_hello().await;
}

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// A request without a body for `/never`, as HPACK has it: GET, https, and two literals.
fn never(stream: u32) -> Vec<u8> {
    let fields = [&[0x82, 0x87, 0x01, 1][..], b"a", &[0x04, 6], b"/never"].concat();
    frame(1, 0x5, stream, &fields)
}

/// RST_STREAM with CANCEL.
fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8_u32.to_be_bytes())
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// CVE-2023-44487: requests that are cancelled at once count against no limit on open streams. The server ends such a
/// connection or keeps up with it; it never holds more than a few times what one connection may have, of ten thousand,
/// and goes on serving.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn rapid_resets_leave_nothing_behind() {
    let fixture = Fixture::start_with(Patience { handshake: LONG, headers: LONG }).await;
    let (mut reader, mut writer) = tokio::io::split(fixture.tls(b"h2").await);
    let drained = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
    });
    let mut bytes = [PREFACE, &frame(4, 0, 0, &[])].concat();
    for stream in (1..20_000).step_by(2) {
        bytes.extend(never(stream));
        bytes.extend(reset(stream));
    }
    // The server may end the connection half-way.
    let _ = writer.write_all(&bytes).await;
    let _ = writer.shutdown().await;
    fixture.check_hello().await;
    timeout(LONG, drained).await.expect("the connection ends").unwrap();
    wait_for_none(&fixture.hello).await;
    let most = fixture.hello.most_waiting.load(Ordering::Relaxed);
    assert!(most <= usize::try_from(10 * STREAMS).unwrap(), "{most} requests at once");
}

/// The same without resets: what the test above counts is there to be counted.
#[tokio::test]
async fn requests_that_wait_are_counted_and_end_with_their_connection() {
    let fixture = Fixture::start_with(Patience { handshake: LONG, headers: LONG }).await;
    let mut stream = fixture.tls(b"h2").await;
    let mut bytes = [PREFACE, &frame(4, 0, 0, &[])].concat();
    (1..20).step_by(2).for_each(|stream| bytes.extend(never(stream)));
    stream.write_all(&bytes).await.unwrap();
    let all = async {
        while fixture.hello.waiting.load(Ordering::Relaxed) < 10 {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    timeout(LONG, all).await.expect("all ten wait");
    drop(stream);
    wait_for_none(&fixture.hello).await;
}

async fn wait_for_none(hello: &Hello) {
    let none = async {
        while hello.waiting.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    timeout(LONG, none).await.expect("no request waits any more");
}
