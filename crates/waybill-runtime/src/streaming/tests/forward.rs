//! Ports over channels.

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::task::TaskTracker;

use super::{Server, V4, V5, client::Client, limits};

/// Answers one connection with what it got, in capitals, after the client has said `length` bytes.
async fn shouting_port(length: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    TaskTracker::new().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = vec![0; length];
        stream.read_exact(&mut text).await.unwrap();
        stream.write_all(&text.to_ascii_uppercase()).await.unwrap();
    });
    port
}

async fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn each_port_has_two_channels_that_begin_with_its_number() {
    let server = Server::start(limits()).await;
    let (first, second) = (shouting_port(5).await, shouting_port(5).await);
    let url = server.streaming.forward_url("p1", vec![first, second]).unwrap();
    let mut client = Client::connect(&url, &[V4]).await.unwrap();
    client.send(&b"\x02world"[..]).await;
    client.send(&b"\0hello"[..]).await;
    let heard = client.hear().await;
    let expected = |port: u16, text: &[u8]| [&port.to_le_bytes(), text].concat();
    assert_eq!(heard.channels[0], expected(first, b"HELLO"));
    assert_eq!(heard.channels[1], expected(first, b""));
    assert_eq!(heard.channels[2], expected(second, b"WORLD"));
    assert_eq!(heard.channels[3], expected(second, b""));
    assert_eq!(u16::from(heard.close.unwrap().code), 1000);
}

#[tokio::test]
async fn a_port_that_refuses_is_told_and_others_go_on() {
    let server = Server::start(limits()).await;
    let (refusing, open) = (closed_port().await, shouting_port(2).await);
    let url = server.streaming.forward_url("p1", vec![refusing, open]).unwrap();
    let mut client = Client::connect(&url, &[]).await.unwrap();
    client.send(&b"\0dropped"[..]).await;
    client.send(&b"\x02hi"[..]).await;
    let heard = client.hear().await;
    let error = str::from_utf8(&heard.channels[1][2..]).unwrap();
    assert!(error.contains("refused"), "{error}");
    assert_eq!(heard.channels[2][2..], *b"HI");
}

#[tokio::test]
async fn base64_ports() {
    let server = Server::start(limits()).await;
    let port = shouting_port(2).await;
    let url = server.streaming.forward_url("p1", vec![port]).unwrap();
    let mut client = Client::connect(&url, &["v4.base64.channel.k8s.io"]).await.unwrap();
    client.send_text("0aGk=").await;
    let heard = client.hear().await;
    assert!(heard.channels[0].ends_with(b"SEk="));
}

#[tokio::test]
async fn ports_must_be_named_and_fit() {
    let server = Server::start(limits()).await;
    let check = async |ports: Vec<u16>, protocol, status, text| {
        let url = server.streaming.forward_url("p1", ports).unwrap();
        let refused = Client::connect(&url, &[protocol]).await.err().unwrap();
        assert_eq!(refused.0, status);
        assert!(refused.1.contains(text), "{}", refused.1);
    };
    check(vec![], V4, StatusCode::BAD_REQUEST, "no port").await;
    check(vec![80; 128], V4, StatusCode::BAD_REQUEST, "127").await;
    check(vec![80; 41], "v4.base64.channel.k8s.io", StatusCode::BAD_REQUEST, "40").await;
    check(vec![80], V5, StatusCode::FORBIDDEN, "v4.channel.k8s.io").await;
}
