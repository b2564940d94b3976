//! The whole hop: a client over TCP, a server of ours, the proxy, and a fake node behind TLS.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
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

use super::{
    NodeProxy, ProxyBody, ProxyLimits,
    address::NodeAddress,
    exec::ExecPlan,
    fake_node::{Authority, FakeNode, Script, Seen},
    long_target::{HTTP1_BUFFER, LongTargetIo, REQUEST_LINE_LIMIT, query},
    options::PodLogOptions,
    splice::{EndCause, IdleLimits, StreamEnd},
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
    async fn handle(self, request: Request<Incoming>) -> Response<ProxyBody> {
        if request.uri().path() == "/log" {
            let options = PodLogOptions::from_query(query(&request)).unwrap();
            let target = NodeTarget::container_logs(POD, "main", &options);
            return self.proxy.stream(&self.node, &target).await;
        }
        let options = PodExecOptions::from_query(query(&request)).unwrap();
        let id = AuditId::parse("the-audit-id").unwrap();
        let plan = ExecPlan::new(self.gates, options, Some(&id)).unwrap();
        let answer = self.proxy.upgrade(request, &self.node, &plan.target(POD, "main")).await;
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
    NodeAddress::new("127.0.0.1", node.port()).unwrap()
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

/// Sends 8 MiB through the node and back, both ways at once.
async fn check_echo(line: &str, headers: &str, answered: &str) {
    let (node, mut server) = pair(Script::Echo).await;
    let client = server.ask(line, headers).await;
    let answer = client.answer.to_ascii_lowercase();
    assert!(answer.contains(answered), "{answer}");
    let data: Vec<u8> =
        (0..8u32 << 20).map(|at| at.to_le_bytes()[usize::from(at % 3 == 0)]).collect();
    let (mut reader, mut writer) = tokio::io::split(client.upgraded());
    let mut found = Vec::new();
    let (sent, _) = tokio::join!(
        async {
            writer.write_all(&data).await.unwrap();
            // The node sends the rest after it has seen the end.
            writer.shutdown().await
        },
        async { reader.read_to_end(&mut found).await.unwrap() },
    );
    sent.unwrap();
    assert!(found == data);
    let bytes = u64::try_from(data.len()).unwrap();
    let end = StreamEnd { from_client: bytes, from_node: bytes, cause: EndCause::Closed };
    assert_eq!(server.end().await, end);
    node.all_closed().await;
}

#[tokio::test]
async fn websocket_sessions_pass_both_ways_and_may_half_close() {
    check_echo("GET /exec?command=cat", WEBSOCKET, "sec-websocket-protocol: v5.channel").await;
}

#[tokio::test]
async fn spdy_sessions_pass_both_ways_and_may_half_close() {
    check_echo("POST /exec?command=cat", SPDY, "x-stream-protocol-version: v4.channel").await;
}

#[tokio::test]
async fn a_node_that_closes_first_is_heard_out() {
    let said = Bytes::from(vec![7; 1 << 20]);
    let (_node, mut server) = pair(Script::Say(said.clone())).await;
    let mut client = server.ask("GET /exec", WEBSOCKET).await.upgraded();
    let mut found = Vec::new();
    client.read_to_end(&mut found).await.unwrap();
    assert!(found == said);
    drop(client);
    let end = server.end().await;
    assert_eq!((end.from_node, end.cause), (1 << 20, EndCause::Closed));
}

#[tokio::test]
async fn a_client_that_goes_takes_the_session_along() {
    let (node, mut server) = pair(Script::Mute).await;
    let mut client = server.ask("GET /exec", WEBSOCKET).await.upgraded();
    client.write_all(b"x").await.unwrap();
    drop(client);
    assert_eq!(server.end().await.from_client, 1);
    node.all_closed().await;
}

#[tokio::test]
async fn a_silent_session_ends() {
    let short = Duration::from_millis(20);
    let idle = IdleLimits { open: short, half_closed: short };
    let limits = ProxyLimits { idle, ..ProxyLimits::default() };
    let (node, mut server) = pair_with(limits, Script::Mute, FeatureGates::all_on()).await;
    let _client = server.ask("GET /exec", WEBSOCKET).await.upgraded();
    assert_eq!(server.end().await.cause, EndCause::Idle);
    node.all_closed().await;
}

/// EXEC-19 EXEC-21 EXEC-55
#[tokio::test]
async fn the_node_gets_the_audit_id_for_websocket_and_spdy() {
    for (method, headers) in [("GET", WEBSOCKET), ("POST", SPDY)] {
        let line = format!("{method} /exec?command=id&stdin=true&env=A=b&x=y");
        let seen = seen(FeatureGates::all_on(), &line, headers).await;
        assert_eq!((seen.method.as_str(), seen.path.as_str()), (method, "/exec/default/web/main"));
        let expected = "input=1&command=id&env=A=b&env=KUBERNETES_EXEC_AUDIT_ID=the-audit-id";
        assert_eq!(seen.query, expected);
        assert_eq!(seen.peer, "kube-apiserver");
    }
}

/// EXEC-23 EXEC-55
#[tokio::test]
async fn the_node_gets_no_audit_id_while_the_gate_is_off() {
    let gates = FeatureGates::all_on().with(FeatureGate::ExecRequestId, false).unwrap();
    let seen = seen(gates, "GET /exec?command=id", WEBSOCKET).await;
    assert_eq!(seen.query, "command=id");
}

/// EXEC-22
#[tokio::test]
async fn credentials_of_the_client_do_not_reach_the_node() {
    let headers = format!(
        "{WEBSOCKET}Authorization: Bearer hunter2\r\nCookie: hunter2\r\nImpersonate-User: \
         hunter2\r\nAudit-ID: hunter2\r\nX-Forwarded-For: hunter2\r\nUser-Agent: hunter2\r\n\
         Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.hunter2\r\n"
    );
    let seen = seen(FeatureGates::all_on(), "GET /exec?token=hunter2", &headers).await;
    let text = format!("{:?} {}", seen.headers, seen.query);
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(
        names(&seen.headers),
        [
            "connection",
            "host",
            "sec-websocket-key",
            "sec-websocket-protocol",
            "sec-websocket-version",
            "upgrade",
        ]
    );
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

/// EXEC-40
#[tokio::test]
async fn request_lines_of_128_kib_pass_both_hops() {
    let gates = FeatureGates::all_on().with(FeatureGate::ExecRequestId, false).unwrap();
    // 32,768 bytes in all, each in the longest encoding.
    let value = "%0A".repeat(32_766);
    let padding = "c".repeat(128 * 1024 - value.len());
    let line = format!("POST /exec?command={padding}&env=AB={value}");
    let seen = seen(gates, &line, SPDY).await;
    assert!(seen.query == format!("command={padding}&env=AB={value}"));
}

#[tokio::test]
async fn longer_request_lines_are_refused() {
    let (_node, server) = pair(Script::Echo).await;
    let line = format!("POST /exec?command={}", "c".repeat(REQUEST_LINE_LIMIT));
    let client = server.ask(&line, SPDY).await;
    assert!(client.answer.starts_with("HTTP/1.1 414 "), "{}", client.answer);
}

#[tokio::test]
async fn a_request_that_does_not_upgrade_is_refused() {
    let (_node, server) = pair(Script::Echo).await;
    let refusal = server.ask("GET /exec", "").await.status().await;
    let expected = (400, "BadRequest".to_owned(), "Upgrade request required".to_owned());
    assert_eq!(refusal, expected);
}

#[track_caller]
fn assert_refusal(found: &(u64, String, String), expected: (u64, &str, &str)) {
    assert_eq!((found.0, found.1.as_str(), found.2.as_str()), expected);
}

async fn refusal(code: u16, body: &'static str) -> (u64, String, String) {
    let code = StatusCode::from_u16(code).unwrap();
    let (_node, server) = pair(Script::Answer(code, "v4.channel.k8s.io", body.into())).await;
    server.ask("GET /exec", WEBSOCKET).await.status().await
}

#[tokio::test]
async fn a_refusal_of_the_node_becomes_a_status() {
    let missing = "container not found (\"main\")\n";
    assert_refusal(&refusal(404, missing).await, (404, "NotFound", missing.trim()));
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
        "message":"m","reason":"R","code":400}"#;
    assert_refusal(&refusal(400, status).await, (400, "R", "m"));
    let empty = "the node answered 503 Service Unavailable";
    assert_refusal(&refusal(503, "").await, (503, "ServiceUnavailable", empty));
    let unknown = "the node does not accept the API server: Unauthorized";
    assert_refusal(&refusal(401, "Unauthorized").await, (500, "InternalError", unknown));
    let unexpected = "the node gave an unexpected answer: 200 OK";
    assert_refusal(&refusal(200, "x").await, (500, "InternalError", unexpected));
}

#[tokio::test]
async fn refusals_are_cut_and_name_the_protocols_that_the_node_knows() {
    let body = Bytes::from(vec![b'x'; 1 << 20]);
    let script = Script::Answer(StatusCode::FORBIDDEN, "v4.channel.k8s.io", body);
    let (_node, server) = pair(script).await;
    let client = server.ask("POST /exec", SPDY).await;
    let header = "x-accepted-stream-protocol-versions: v4.channel.k8s.io";
    assert!(client.answer.contains(header), "{}", client.answer);
    let (code, _, message) = client.status().await;
    assert_eq!((code, message.len()), (403, 64 * 1024));
}

#[tokio::test]
async fn a_node_that_is_down_is_named() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap();
    let proxy = NodeProxy::new(Authority::new().client_tls(), ProxyLimits::default());
    let server = Server::start(proxy, address(port), FeatureGates::all_on()).await;
    let refused = format!("dial tcp {port}: connect: connection refused");
    let found = server.ask("GET /exec", WEBSOCKET).await.status().await;
    assert_refusal(&found, (500, "", &format!("error dialing backend: {refused}")));
    let found = server.ask("GET /log?tailLines=1", "").await.status().await;
    let url = format!("https://{port}/containerLogs/default/web/main");
    assert_refusal(&found, (500, "", &format!("Get \"{url}\": {refused}")));
}

#[tokio::test]
async fn a_node_that_says_nothing_is_given_up() {
    let short = Duration::from_millis(20);
    let limits = ProxyLimits { answer: short, ..ProxyLimits::default() };
    let (node, server) = pair_with(limits, Script::Hang, FeatureGates::all_on()).await;
    let (code, reason, _) = server.ask("GET /exec", WEBSOCKET).await.status().await;
    assert_eq!((code, reason.as_str()), (504, "Timeout"));
    node.all_closed().await;

    // It listens and never accepts, so TLS does not begin.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = ProxyLimits { handshake: short, ..ProxyLimits::default() };
    let proxy = NodeProxy::new(Authority::new().client_tls(), limits);
    let node = address(listener.local_addr().unwrap());
    let server = Server::start(proxy, node, FeatureGates::all_on()).await;
    let found = server.ask("GET /exec", WEBSOCKET).await.status().await;
    let text = "error dialing backend: net/http: TLS handshake timeout";
    assert_refusal(&found, (500, "", text));
}

/// What a client reads when the node's certificate or ours is wrong.
async fn distrust(node: Arc<ServerConfig>, ours: Arc<ClientConfig>) -> String {
    let mut node = FakeNode::start(node, Script::Echo).await;
    let proxy = NodeProxy::new(ours, ProxyLimits::default());
    let server = Server::start(proxy, address(node.address), FeatureGates::all_on()).await;
    let (code, _, message) = server.ask("GET /exec", WEBSOCKET).await.status().await;
    assert_eq!(code, 500);
    assert!(node.seen.try_recv().is_err());
    message
}

#[tokio::test]
async fn a_node_must_prove_who_it_is() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    for node in [ours.node_tls("other.node"), theirs.node_tls("127.0.0.1")] {
        let message = distrust(node, ours.client_tls()).await;
        let start = "error dialing backend: tls: invalid peer certificate";
        assert!(message.starts_with(start), "{message}");
    }
}

#[tokio::test]
async fn a_node_serves_only_the_api_server() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let message = distrust(ours.node_tls("127.0.0.1"), ours.client_tls_issued_by(&theirs)).await;
    assert_eq!(message, "error sending request to the node");
}

#[tokio::test]
async fn logs_follow_until_the_client_goes() {
    let chunks = vec![Bytes::from_static(b"one\n"), Bytes::from_static(b"two\n")];
    let (mut node, server) = pair(Script::Follow(chunks)).await;
    let mut client = server.ask("GET /log?follow=true", "Authorization: Bearer s\r\n").await;
    assert!(client.answer.contains("content-type: text/plain"), "{}", client.answer);
    let mut text = String::new();
    while !text.contains("two") {
        client.stream.read_line(&mut text).await.unwrap();
    }
    let seen = node.seen.recv().await.unwrap();
    assert_eq!((seen.method.as_str(), seen.query.as_str()), ("GET", "follow=true"));
    assert_eq!(names(&seen.headers), ["host"]);
    drop(client);
    node.all_closed().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_a_log_stops_the_node() {
    let body = Bytes::from(vec![b'x'; 16 << 20]);
    let authority = Authority::new();
    let script = Script::Answer(StatusCode::OK, "", body);
    let node = FakeNode::start(authority.node_tls("127.0.0.1"), script).await;
    let proxy = NodeProxy::new(authority.client_tls(), ProxyLimits::default());
    let target = NodeTarget::container_logs(POD, "main", &PodLogOptions::default());
    let mut response = proxy.stream(&address(node.address), &target).await;
    assert!(response.frame().await.unwrap().unwrap().is_data());
    // The rest waits at the node; dropping the body ends its connection.
    drop(response);
    node.all_closed().await;
}

#[tokio::test]
async fn refused_logs_become_a_status() {
    let script = Script::Answer(StatusCode::BAD_REQUEST, "", "previous not found".into());
    let (_node, server) = pair(script).await;
    let found = server.ask("GET /log?previous=true", "").await.status().await;
    assert_refusal(&found, (400, "BadRequest", "previous not found"));
}

#[tokio::test]
async fn shutdown_ends_what_outlives_the_grace_and_leaves_no_task() {
    let (node, mut server) = pair(Script::Mute).await;
    let _client = server.ask("GET /exec", WEBSOCKET).await.upgraded();
    server.proxy.shutdown(Duration::from_millis(1)).await;
    assert!(server.proxy.tasks.is_empty());
    assert_eq!(server.end().await.cause, EndCause::Shutdown);
    node.all_closed().await;
    let found = server.ask("GET /exec", WEBSOCKET).await.status().await;
    assert_refusal(&found, (503, "ServiceUnavailable", "the server is shutting down"));
}

#[tokio::test]
async fn shutdown_lets_sessions_go_on_during_the_grace() {
    let (node, mut server) = pair(Script::Echo).await;
    let mut client = server.ask("GET /exec", WEBSOCKET).await.upgraded();
    let proxy = Arc::clone(&server.proxy);
    let shutdown = tokio::spawn(async move { proxy.shutdown(Duration::from_secs(600)).await });
    while !server.proxy.tasks.is_closed() {
        tokio::task::yield_now().await;
    }
    client.write_all(b"x").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'x');
    client.shutdown().await.unwrap();
    assert_eq!(server.end().await.cause, EndCause::Closed);
    shutdown.await.unwrap();
    node.all_closed().await;
}

#[tokio::test]
async fn dropping_the_proxy_ends_its_connections() {
    let authority = Authority::new();
    let script = Script::Follow(vec![Bytes::from_static(b"x")]);
    let node = FakeNode::start(authority.node_tls("127.0.0.1"), script).await;
    let proxy = NodeProxy::new(authority.client_tls(), ProxyLimits::default());
    let target = NodeTarget::container_logs(POD, "main", &PodLogOptions::default());
    let mut response = proxy.stream(&address(node.address), &target).await;
    drop(proxy);
    while let Some(Ok(_)) = response.frame().await {}
    node.all_closed().await;
}
