//! A stream that lives on while certificates and tokens change.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;
use waybill_credential::OnRotation;

use crate::{certificates::Authority, support::Plugin};

const LIFE: Duration = Duration::from_secs(10);

/// Its first connection is a stream of what is sent to it; each other one answers a single request.
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn server(authority: &Authority) -> (SocketAddr, mpsc::Sender<&'static str>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsAcceptor::from(Arc::new(authority.server()));
    let (sender, receiver) = mpsc::channel::<&str>(1);
    let mut receiver = Some(receiver);
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let (tls, receiver) = (tls.clone(), receiver.take());
            tokio::spawn(async move {
                let mut io = tls.accept(tcp).await.unwrap();
                // A request without a body, in one piece.
                assert!(io.read(&mut [0; 4096]).await.unwrap() > 0);
                let Some(mut receiver) = receiver else {
                    let answer =
                        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
                    io.write_all(answer).await.unwrap();
                    return io.shutdown().await.unwrap();
                };
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                io.write_all(head).await.unwrap();
                while let Some(event) = receiver.recv().await {
                    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                    if io.write_all(chunk.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, sender)
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// What changes from one credential to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rotates {
    Certificate,
    Token,
}

/// Begins a stream, and changes the credential ten times, each time with a request and an event.
async fn events(rotates: Rotates, on_rotation: OnRotation) -> Result<usize, kube::Error> {
    let authority = Authority::new();
    let first = authority.issue("0");
    let credential = |round: usize| match rotates {
        Rotates::Certificate => authority.issue(&round.to_string()),
        Rotates::Token => {
            let mut status = first.clone();
            status["token"] = format!("token-{round}").into();
            status
        }
    };
    let mut plugin = Plugin::answering();
    plugin.options.on_rotation = on_rotation;
    let (address, events) = server(&authority).await;
    plugin.answer(&credential(0), Some(LIFE));
    let client = plugin.client_of(authority.config(&plugin, address));
    let mut stream = client.send(get("/watch")).await?.into_body();
    for round in 1..=10 {
        plugin.clock.advance(LIFE + Duration::from_secs(1));
        plugin.answer(&credential(round), Some(LIFE));
        client.send(get("/other")).await?.into_body().collect_bytes().await?;
        assert_eq!(plugin.runs(), round + 1);
        events.send("event").await.unwrap();
        let frame = stream.frame().await.expect("the server ends nothing");
        assert_eq!(frame?.into_data().unwrap(), "event");
    }
    Ok(10)
}

/// CRED-31, CRED-50
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_loses_no_event_over_ten_certificates_cred_31_50() {
    assert_eq!(events(Rotates::Certificate, OnRotation::Drain).await.unwrap(), 10);
}

/// CRED-32, CRED-50: and no connection is closed for it, even if certificates would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_loses_no_event_over_ten_tokens_cred_32_50() {
    for on_rotation in [OnRotation::Drain, OnRotation::Close] {
        assert_eq!(events(Rotates::Token, on_rotation).await.unwrap(), 10);
    }
}

/// CRED-31: as in client-go, for those who want it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_closed_at_rotation_if_so_chosen_cred_31() {
    events(Rotates::Certificate, OnRotation::Close).await.unwrap_err();
}
