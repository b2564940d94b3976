//! The whole hop: a client over TCP, a server of ours, the proxy, and a fake node behind TLS.

mod logs;
mod refusals;
mod requests;
mod sessions;
mod shutdown;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, ServerConfig};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;
use waybill_api::{
    exec::PodExecOptions,
    gates::{FeatureGate, FeatureGates},
};
use waybill_core::id::AuditId;
use waybill_stream::{
    long_target::{HTTP1_BUFFER, LongTargetIo, REQUEST_LINE_LIMIT, query},
    splice::{EndCause, IdleLimits, StreamEnd},
    websocket::handshake::is_upgrade,
};

use super::{
    NodeProxy, ProxyBody, ProxyLimits,
    address::NodeAddress,
    exec::ExecPlan,
    fake_node::{Authority, FakeNode, Script, Seen},
    options::PodLogOptions,
    target::{NodeTarget, PodPath},
};

const POD: PodPath<'_> = PodPath { namespace: "default", name: "web" };

const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: \
    13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n";

const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: \
    v4.channel.k8s.io\r\nX-Stream-Protocol-Version: channel.k8s.io\r\n";

/// An API server that knows exec and one node.
struct Server {
    proxy: Arc<NodeProxy>,
    address: SocketAddr,
    ends: mpsc::UnboundedReceiver<StreamEnd>,
    stop: CancellationToken,
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    async fn start(proxy: NodeProxy, node: NodeAddress, gates: FeatureGates) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, ends) = mpsc::unbounded_channel();
        let (proxy, stop) = (Arc::new(proxy), CancellationToken::new());
        let handler = Handler { proxy: Arc::clone(&proxy), node, gates, ends: sender };
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(tcp, handler.clone()));
            }
        }));
        Self { proxy, address, ends, stop }
    }

    /// Sends a request and reads the head of the answer.
    async fn ask(&self, line: &str, headers: &str) -> Client {
        let mut client = BufReader::new(TcpStream::connect(self.address).await.unwrap());
        let head = format!("{line} HTTP/1.1\r\nHost: api\r\n{headers}\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\n") {
            assert_ne!(client.read_line(&mut answer).await.unwrap(), 0, "{answer}");
        }
        Client { stream: client, answer }
    }

    async fn end(&mut self) -> StreamEnd {
        self.ends.recv().await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(Clone)]
struct Handler {
    proxy: Arc<NodeProxy>,
    node: NodeAddress,
    gates: FeatureGates,
    ends: mpsc::UnboundedSender<StreamEnd>,
}

impl Handler {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    async fn handle(self, request: Request<Incoming>) -> Response<ProxyBody> {
        if request.uri().path() == "/log" {
            let options = PodLogOptions::from_query(query(&request)).unwrap();
            let target = NodeTarget::container_logs(POD, "main", &options);
            if is_upgrade(request.headers()) {
                let answer = self.proxy.log_socket(request, &self.node, &target).await;
                if let Some(ended) = answer.ended {
                    let ends = self.ends.clone();
                    tokio::spawn(async move { ends.send(ended.await.unwrap()) });
                }
                return answer.response;
            }
            return self.proxy.stream(&self.node, &target).await;
        }
        let options = PodExecOptions::from_query(query(&request)).unwrap();
        let id = AuditId::parse("the-audit-id").unwrap();
        let plan = ExecPlan::new(self.gates, options, Some(&id)).unwrap();
        let target = plan.target(POD, "main");
        let target = match request.uri().path() {
            "/unsigned" => target,
            _ => target.with_session(HeaderValue::from_static("the-token")),
        };
        let answer = self.proxy.upgrade(request, &self.node, &target).await;
        if let Some(ended) = answer.ended {
            tokio::spawn(async move { self.ends.send(ended.await.unwrap()) });
        }
        answer.response
    }
}

async fn serve(tcp: TcpStream, handler: Handler) {
    let (io, slot) = LongTargetIo::new(tcp);
    let service = service_fn(|mut request| {
        slot.attach(&mut request);
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.handle(request).await) }
    });
    let server = http1::Builder::new()
        .max_buf_size(HTTP1_BUFFER)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    // Clients of these tests go as they please.
    let _ = server.await;
}

struct Client {
    stream: BufReader<TcpStream>,
    answer: String,
}

impl Client {
    #[track_caller]
    fn upgraded(self) -> BufReader<TcpStream> {
        assert!(self.answer.starts_with("HTTP/1.1 101 "), "{}", self.answer);
        assert!(!self.answer.contains("secret"), "{}", self.answer);
        self.stream
    }

    /// Code, reason and message of a refusal.
    async fn status(mut self) -> (u64, String, String) {
        let length = self.answer.to_ascii_lowercase();
        let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.stream.read_exact(&mut body).await.unwrap();
        let status: Value = serde_json::from_slice(&body).unwrap();
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        assert_eq!((text("kind"), text("status")), ("Status".to_owned(), "Failure".to_owned()));
        let code = status["code"].as_u64().unwrap();
        assert!(self.answer.starts_with(&format!("HTTP/1.1 {code} ")), "{}", self.answer);
        (code, text("reason"), text("message"))
    }
}

fn address(node: SocketAddr) -> NodeAddress {
    NodeAddress::new("node-1", "127.0.0.1", node.port()).unwrap()
}

async fn pair_with(limits: ProxyLimits, script: Script, gates: FeatureGates) -> (FakeNode, Server) {
    let authority = Authority::new();
    let node = FakeNode::start(authority.node_tls("127.0.0.1"), script).await;
    let proxy = NodeProxy::new(authority.client_tls(), limits);
    let server = Server::start(proxy, address(node.address), gates).await;
    (node, server)
}

async fn pair(script: Script) -> (FakeNode, Server) {
    pair_with(ProxyLimits::default(), script, FeatureGates::all_on()).await
}

/// What the node sees of an exec request.
async fn seen(gates: FeatureGates, line: &str, headers: &str) -> Seen {
    let (mut node, server) = pair_with(ProxyLimits::default(), Script::Echo, gates).await;
    server.ask(line, headers).await.upgraded();
    node.seen.recv().await.unwrap()
}

#[track_caller]
fn assert_refusal(found: &(u64, String, String), expected: (u64, &str, &str)) {
    assert_eq!((found.0, found.1.as_str(), found.2.as_str()), expected);
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}
