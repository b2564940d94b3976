//! Who gets a stream and who does not.

use std::time::Duration;

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use waybill_stream::open_connections::MostConnections;

use super::{ALL, Limits, Server, V5, client::Client, limits};

/// The status and text for a request without a WebSocket.
async fn plain(server: &Server, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.streaming.address()).await.unwrap();
    let request = format!("{head}host: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn path(url: &str) -> &str {
    &url[url.rfind("/exec").unwrap()..]
}

async fn refused(url: &str, protocols: &[&str]) -> (StatusCode, String) {
    Client::connect(url, protocols).await.err().expect("it is refused")
}

/// EXEC-10
#[tokio::test]
async fn nothing_starts_before_a_client_connects_and_the_url_holds_a_token_only() {
    let server = Server::start(limits()).await;
    let url = server.exec_url("true", ALL);
    assert_eq!(server.machine.started(), 0);
    assert_eq!(path(&url).len(), "/exec/".len() + 22);
    let mut client = Client::connect(&url, &[V5]).await.unwrap();
    client.hear().await;
    assert_eq!(server.machine.started(), 1);
}

#[tokio::test]
async fn a_token_is_good_once_and_for_its_kind() {
    let server = Server::start(limits()).await;
    let url = server.exec_url("true", ALL);
    Client::connect(&url, &[V5]).await.unwrap().hear().await;
    let (status, text) = refused(&url, &[V5]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("unknown, used or expired"), "{text}");

    let url = server.exec_url("true", ALL).replace("/exec/", "/attach/");
    assert_eq!(refused(&url, &[V5]).await.0, StatusCode::NOT_FOUND);
    assert_eq!(server.machine.started(), 1);
}

#[tokio::test]
async fn an_expired_token_is_unknown() {
    let server = Server::start(Limits { token_life: Duration::ZERO, ..limits() }).await;
    let url = server.exec_url("true", ALL);
    assert_eq!(refused(&url, &[V5]).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn only_so_many_wait() {
    let server = Server::start(Limits { tokens: 2, ..limits() }).await;
    let request = || super::request("true", ALL);
    server.streaming.exec_url("c1", request()).unwrap();
    server.streaming.exec_url("c1", request()).unwrap();
    let error = server.streaming.exec_url("c1", request()).unwrap_err();
    assert!(error.to_string().starts_with("2 streaming requests wait"), "{error}");
}

#[tokio::test]
async fn requests_that_open_no_stream_are_told_why() {
    let server = Server::start(limits()).await;
    let check = async |line: String, status, text| {
        let found = plain(&server, &line).await;
        assert_eq!(found.0, status, "{line}: {}", found.1);
        assert!(found.1.contains(text), "{line}: {}", found.1);
    };
    check("GET / HTTP/1.1\r\n".to_owned(), 404, "no such path").await;
    check("GET /exec/ HTTP/1.1\r\n".to_owned(), 404, "no such path").await;
    check("GET /exec/a/b HTTP/1.1\r\n".to_owned(), 404, "no such path").await;
    check("GET /exec/abc HTTP/1.1\r\n".to_owned(), 404, "token").await;
    let url = server.exec_url("true", ALL);
    check(format!("PUT {} HTTP/1.1\r\n", path(&url)), 405, "GET and POST").await;
    check(format!("GET {} HTTP/1.1\r\n", path(&url)), 400, "WebSocket").await;
    let url = server.exec_url("true", ALL);
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n";
    check(format!("GET {} HTTP/1.1\r\n{upgrade}", path(&url)), 400, "Sec-WebSocket-Key").await;
    let url = server.exec_url("true", ALL);
    check(format!("POST {} HTTP/1.1\r\n{upgrade}", path(&url)), 405, "GET").await;
    assert_eq!(server.machine.started(), 0);
}

#[tokio::test]
async fn protocols_that_nobody_speaks_are_refused_with_a_list() {
    let server = Server::start(limits()).await;
    let (status, text) = refused(&server.exec_url("true", ALL), &["v9.channel.k8s.io"]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(text.contains("v5.channel.k8s.io, v4.channel.k8s.io"), "{text}");
    assert_eq!(server.machine.started(), 0);
}

/// Hole: whoever could reach the port stopped all sessions of the machine by opening connections and saying
/// nothing.
#[tokio::test]
async fn silent_connections_shut_nobody_out_and_end_no_session() {
    let connections = MostConnections { known: 2, strangers: 5 };
    let server = Server::start(Limits { connections, ..limits() }).await;
    let mut session = server.exec("cat", V5).await;
    let mut silent = Vec::new();
    for _ in 0..30 {
        silent.push(TcpStream::connect(server.streaming.address()).await.unwrap());
    }
    let mut other = server.exec("true", V5).await;
    assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "the oldest is closed");
    let (status, text) = refused(&server.exec_url("true", ALL), &[V5]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    other.hear().await;
    session.send(&b"\x00hello"[..]).await;
    assert!(session.next().await.is_some(), "the session goes on");
}
