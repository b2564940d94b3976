//! Sessions from their start to their end.

use super::*;

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
    let end = StreamEnd { from_client: bytes, from_server: bytes, cause: EndCause::Closed };
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
    assert_eq!((end.from_server, end.cause), (1 << 20, EndCause::Closed));
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
