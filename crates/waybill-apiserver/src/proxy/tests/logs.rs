//! Bodies that are passed on.

use super::*;

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
async fn dropping_the_body_of_a_log_ends_the_connection_to_the_node() {
    let body = Bytes::from(vec![b'x'; 16 << 20]);
    let authority = Authority::new();
    let script = Script::Answer(StatusCode::OK, "", body);
    let node = FakeNode::start(authority.node_tls("127.0.0.1"), script).await;
    let proxy = NodeProxy::new(authority.client_tls(), ProxyLimits::default());
    let target = NodeTarget::container_logs(POD, "main", &PodLogOptions::default());
    let mut response = proxy.stream(&address(node.address), &target).await;
    assert!(response.frame().await.unwrap().unwrap().is_data());
    // Most of the body has not been read.
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
