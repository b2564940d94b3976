//! What the numbers are compared with: an HTTPS server that does nothing, etcd, and the disk.

use std::{
    convert::Infallible,
    fs,
    io::Write,
    net::TcpListener as Ports,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::uri::PathAndQuery;
use http_body_util::{Either, Full, StreamBody};
use hyper::{Response, body::Frame, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::ServerConfig;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::broadcast, task::JoinSet};
use tokio_rustls::TlsAcceptor;
use tonic::{
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::{Result, client::Caller, scenario::OBJECT};

/// Serves the same bytes at every path: what hyper and TLS alone cost. `/watch` never ends; it gets as
/// many bytes each time someone asks for `/send`, with the query at their end.
pub(crate) async fn serve_hello(directory: &Path) -> Result<()> {
    let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    fs::write(directory.join("ca.crt"), issued.cert.pem())?;
    let key = rustls_pki_types::PrivateKeyDer::try_from(issued.signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![issued.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let small = Bytes::from(vec![b'x'; OBJECT]);
    let large = Bytes::from(vec![b'x'; OBJECT * 1_000]);
    let sent = broadcast::Sender::<Bytes>::new(16);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, small, large) = (acceptor.clone(), small.clone(), large.clone());
        let sent = sent.clone();
        connections.spawn(async move {
            stream.set_nodelay(true)?;
            let service = service_fn(move |request: hyper::Request<_>| {
                let body = match request.uri().path() {
                    "/large" => Either::Left(Full::new(large.clone())),
                    "/watch" => Either::Right(lines(sent.subscribe())),
                    "/send" => {
                        let mark = request.uri().query().unwrap_or_default().as_bytes();
                        // Nobody may be watching.
                        let _ = sent.send([&small, mark].concat().into());
                        Either::Left(Full::new(small.clone()))
                    }
                    _ => Either::Left(Full::new(small.clone())),
                };
                async move { Ok::<_, Infallible>(Response::new(body)) }
            });
            let io = TokioIo::new(acceptor.accept(stream).await?);
            http1::Builder::new().serve_connection(io, service).await?;
            Result::Ok(())
        });
    }
}

/// A body of all that is sent.
fn lines(
    sent: broadcast::Receiver<Bytes>,
) -> StreamBody<impl Stream<Item = std::result::Result<Frame<Bytes>, Infallible>> + Unpin> {
    StreamBody::new(Box::pin(stream::unfold(sent, |mut sent| async move {
        let line = sent.recv().await.ok()?;
        Some((Ok(Frame::data(line)), sent))
    })))
}

/// A real etcd, without TLS. Killed on drop.
pub(crate) struct Etcd {
    child: Child,
    endpoint: Endpoint,
    _directory: TempDir,
}

impl Etcd {
    /// Starts etcd if this machine has it.
    pub(crate) async fn start() -> Result<Option<Self>> {
        let Some(binary) = find_etcd() else { return Ok(None) };
        let directory = tempfile::tempdir()?;
        // Both are bound before either is released, so that they differ.
        let ports = [Ports::bind("127.0.0.1:0")?, Ports::bind("127.0.0.1:0")?];
        let [client, peer] = ports.map(|listener| listener.local_addr());
        let (client, peer) = (format!("http://{}", client?), format!("http://{}", peer?));
        let child = Command::new(binary)
            .arg("--data-dir")
            .arg(directory.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--logger", "zap", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let etcd = Self { child, endpoint: Endpoint::new(client)?, _directory: directory };
        for _ in 0..200 {
            if let Ok(mut caller) = etcd.caller(0, Call::Put).await
                && caller.call(0).await.is_ok()
            {
                return Ok(Some(etcd));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("etcd does not answer".into())
    }

    /// A client with a connection of its own.
    pub(crate) async fn caller(&self, client: usize, call: Call) -> Result<EtcdCaller> {
        let channel = self.endpoint.connect().await?;
        let (key, value) = (format!("/bench/{client}"), vec![b'x'; OBJECT]);
        Ok(EtcdCaller { grpc: Grpc::new(channel), key, value, call })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a client asks of etcd.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Get,
    Put,
}

pub(crate) struct EtcdCaller {
    grpc: Grpc<Channel>,
    key: String,
    value: Vec<u8>,
    call: Call,
}

impl Caller for EtcdCaller {
    async fn call(&mut self, number: usize) -> Result<()> {
        let key = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let (path, request) = match self.call {
            Call::Get => {
                ("/etcdserverpb.KV/Range", KeyValue { key: key("/bench/0/0"), value: Bytes::new() })
            }
            Call::Put => {
                let (key, value) =
                    (key(&format!("{}/{number}", self.key)), self.value.clone().into());
                ("/etcdserverpb.KV/Put", KeyValue { key, value })
            }
        };
        self.grpc.ready().await?;
        let codec = ProstCodec::<KeyValue, Ignored>::default();
        let path = PathAndQuery::from_static(path);
        self.grpc.unary(tonic::Request::new(request), path, codec).await?;
        Ok(())
    }
}

/// The first fields of etcd's `PutRequest`; a `RangeRequest` without an end is the same.
#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// An answer of which only its arrival counts.
#[derive(Clone, PartialEq, Message)]
struct Ignored {}

#[expect(clippy::disallowed_methods, reason = "the environment tells where etcd is, as in tests")]
fn find_etcd() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WAYBILL_ETCD") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let cached = home.join(".cache/waybill/etcd/usr/bin/etcd");
    in_path.chain([cached]).find(|candidate| fs::metadata(candidate).is_ok_and(|it| it.is_file()))
}

/// How often `bytes` can be appended to a file and synced in a second, by one writer.
pub(crate) fn syncs_per_second(bytes: usize, duration: Duration) -> Result<f64> {
    let mut file = tempfile::tempfile()?;
    let block = vec![b'x'; bytes];
    let started = Instant::now();
    let mut synced = 0_u32;
    while started.elapsed() < duration {
        file.write_all(&block)?;
        file.sync_data()?;
        synced += 1;
    }
    Ok(f64::from(synced) / started.elapsed().as_secs_f64())
}
