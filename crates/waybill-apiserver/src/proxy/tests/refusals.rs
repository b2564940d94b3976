//! What a client reads when there is no session.

use super::*;

#[tokio::test]
async fn a_request_that_does_not_upgrade_is_refused() {
    let (_node, server) = pair(Script::Echo).await;
    let refusal = server.ask("GET /exec", "").await.status().await;
    let expected = (400, "BadRequest".to_owned(), "Upgrade request required".to_owned());
    assert_eq!(refusal, expected);
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
