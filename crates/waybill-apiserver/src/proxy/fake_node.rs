//! A node for tests: TLS with a certificate of a test authority, which demands the API server's.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
    upgrade,
};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::aws_lc_rs, server};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{
    io::{AsyncWriteExt, copy, split},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_stream::long_target::{HTTP1_BUFFER, LongTargetIo, query};

use super::{ProxyBody, connect::node_tls};

/// Issues the certificates of one test.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// What the API server uses towards nodes.
    pub(super) fn client_tls(&self) -> Arc<ClientConfig> {
        self.client_tls_issued_by(self)
    }

    /// The same with a certificate of `other`.
    pub(super) fn client_tls_issued_by(&self, other: &Self) -> Arc<ClientConfig> {
        let (chain, key) = other.issue("kube-apiserver", "kube-apiserver");
        node_tls(self.roots(), chain, key).unwrap()
    }

    /// What a node called `name` uses.
    pub(super) fn node_tls(&self, name: &str) -> Arc<ServerConfig> {
        let (chain, key) = self.issue("node", name);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(self.roots()),
            Arc::clone(&provider),
        );
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    fn issue(&self, common_name: &str, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

/// What the node does with every request.
#[derive(Clone)]
pub(super) enum Script {
    /// Upgrades and sends back what comes.
    Echo,
    /// Upgrades, sends this and closes.
    Say(Bytes),
    /// Upgrades and keeps the connection without a word.
    Mute,
    /// Answers with this status, header and body.
    Answer(StatusCode, &'static str, Bytes),
    /// Answers 200 with these chunks and then neither ends the body nor the connection.
    Follow(Vec<Bytes>),
    /// Reads the request and never answers.
    Hang,
}

/// A request as the node saw it.
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) peer: String,
}

/// A node that runs until it is dropped.
pub(super) struct FakeNode {
    pub(super) address: SocketAddr,
    pub(super) seen: mpsc::UnboundedReceiver<Seen>,
    /// Open connections; waiting for it needs [`TaskTracker::close`].
    pub(super) connections: TaskTracker,
    stop: CancellationToken,
}

impl FakeNode {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    pub(super) async fn start(tls: Arc<ServerConfig>, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::unbounded_channel();
        let (connections, stop) = (TaskTracker::new(), CancellationToken::new());
        let (tracker, stopped) = (connections.clone(), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let acceptor = TlsAcceptor::from(tls);
            while let Ok((tcp, _)) = listener.accept().await {
                let connection = serve(tcp, acceptor.clone(), script.clone(), sender.clone());
                tracker.spawn(stopped.clone().run_until_cancelled_owned(connection));
            }
        }));
        Self { address, seen, connections, stop }
    }

    /// Returns when no connection is open any more.
    pub(super) async fn all_closed(&self) {
        self.connections.close();
        self.connections.wait().await;
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves one connection to its end, upgraded or not.
async fn serve(
    tcp: TcpStream,
    acceptor: TlsAcceptor,
    script: Script,
    seen: mpsc::UnboundedSender<Seen>,
) {
    let Ok(tls) = acceptor.accept(tcp).await else { return };
    let peer = common_name(tls.get_ref().1.peer_certificates().unwrap_or_default());
    let (io, slot) = LongTargetIo::new(tls);
    let sessions = TaskTracker::new();
    let service = service_fn(|mut request: Request<Incoming>| {
        slot.attach(&mut request);
        let _ = seen.send(Seen {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            query: query(&request).to_owned(),
            headers: request.headers().clone(),
            peer: peer.clone(),
        });
        let (script, sessions) = (script.clone(), sessions.clone());
        async move { Ok::<_, Infallible>(answer(request, script, &sessions).await) }
    });
    let served = http1::Builder::new()
        .max_buf_size(HTTP1_BUFFER)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    let _ = served.await;
    sessions.close();
    sessions.wait().await;
}

async fn answer(
    mut request: Request<Incoming>,
    script: Script,
    sessions: &TaskTracker,
) -> Response<ProxyBody> {
    let full = |bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    match script {
        Script::Answer(code, header, body) => {
            let mut response = Response::new(full(body));
            *response.status_mut() = code;
            let header = HeaderValue::from_static(header);
            response.headers_mut().insert("x-accepted-stream-protocol-versions", header);
            response
        }
        Script::Follow(chunks) => {
            let frames = chunks.into_iter().map(|chunk| Ok(Frame::data(chunk)));
            let endless = futures_util::StreamExt::chain(stream::iter(frames), stream::pending());
            Response::new(StreamBody::new(endless).boxed_unsync())
        }
        Script::Hang => std::future::pending().await,
        Script::Echo | Script::Say(_) | Script::Mute => {
            let mut response = Response::new(full(Bytes::new()));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert("connection", HeaderValue::from_static("Upgrade"));
            headers.insert("set-cookie", HeaderValue::from_static("secret"));
            for name in ["upgrade", "sec-websocket-protocol", "x-stream-protocol-version"] {
                if let Some(value) = request.headers().get(name) {
                    headers.insert(name, value.clone());
                }
            }
            let upgraded = upgrade::on(&mut request);
            sessions.spawn(async move {
                // The peer may be gone at any moment.
                let _ = play(TokioIo::new(upgraded.await.map_err(io::Error::other)?), script).await;
                Ok::<_, io::Error>(())
            });
            response
        }
    }
}

async fn play(io: TokioIo<upgrade::Upgraded>, script: Script) -> io::Result<()> {
    let (mut reader, mut writer) = split(io);
    match script {
        Script::Echo => drop(copy(&mut reader, &mut writer).await?),
        Script::Say(bytes) => writer.write_all(&bytes).await?,
        // Reads to see the end, but says nothing, not even then.
        _ => drop(copy(&mut reader, &mut tokio::io::sink()).await?),
    }
    writer.shutdown().await
}

fn common_name(chain: &[CertificateDer<'_>]) -> String {
    let (_, certificate) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
    let name = certificate.subject().iter_common_name().next().unwrap();
    name.as_str().unwrap().to_owned()
}
