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

fn socket(protocol: &str) -> String {
    WEBSOCKET.replace("v5.channel.k8s.io", protocol)
}

#[tokio::test]
async fn a_log_comes_over_a_websocket_if_the_client_asks_so() {
    let chunks = || vec![Bytes::from_static(b"one\n"), Bytes::from_static(b"two\n")];
    let (node, mut server) = pair(Script::Follow(chunks())).await;
    let mut client = server.ask("GET /log?follow=true", &socket("binary.k8s.io")).await;
    assert!(client.answer.starts_with("HTTP/1.1 101"), "{}", client.answer);
    assert!(client.answer.contains("sec-websocket-protocol: binary.k8s.io"), "{}", client.answer);
    let mut frames = [0; 12];
    client.stream.read_exact(&mut frames).await.unwrap();
    assert_eq!(&frames, b"\x82\x04one\n\x82\x04two\n");
    // A ping is answered; its mask is zero.
    client.stream.write_all(b"\x89\x82\0\0\0\0hi").await.unwrap();
    let mut pong = [0; 4];
    client.stream.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"\x8a\x02hi");
    drop(client);
    node.all_closed().await;
    let end = server.end().await;
    assert_eq!((end.from_server, end.cause), (8, EndCause::Closed));
}

#[tokio::test]
async fn a_log_over_a_websocket_ends_with_the_log() {
    let script = Script::Answer(StatusCode::OK, "", "bye".into());
    let (_node, server) = pair(script).await;
    let mut client = server.ask("GET /log", &socket("base64.binary.k8s.io")).await;
    let mut all = Vec::new();
    client.stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"\x81\x04Ynll\x88\x02\x03\xe8");
}

#[tokio::test]
async fn a_log_has_no_other_protocols() {
    let (_node, server) = pair(Script::Follow(Vec::new())).await;
    let found = server.ask("GET /log", &socket("v5.channel.k8s.io")).await.status().await;
    assert_eq!(found.0, 400);
}
