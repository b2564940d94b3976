//! How the proxy stops.

use super::*;

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
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
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
