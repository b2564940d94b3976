//! Ports behind the streams of a runtime, which a test plays.

use http::{Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1 as server, service::service_fn};
use tokio::net::TcpListener;
use waybill_stream::{
    forward::{error_channel, port_message},
    websocket::{Close, handshake::accept},
};

use super::*;

const PORT: u16 = 8080;

/// What the runtime finds behind the port.
#[derive(Clone, Copy)]
enum Behind {
    Echo,
    Nobody,
}

/// Streams for one session; their URL, and the session itself.
async fn streams(behind: Behind) -> (String, impl Future<Output = ()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/portforward/token", listener.local_addr().unwrap());
    let session = async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sender = std::sync::Mutex::new(Some(sender));
        let service = service_fn(async |mut request: Request<Incoming>| {
            assert_eq!(request.uri().path(), "/portforward/token");
            let mut answer = Response::new(Empty::<Bytes>::new());
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            *answer.headers_mut() = accept(request.method(), request.headers()).unwrap();
            let protocol = request.headers()[SEC_WEBSOCKET_PROTOCOL].clone();
            answer.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
            let upgrade = hyper::upgrade::on(&mut request);
            let _ = sender.lock().unwrap().take().unwrap().send(upgrade);
            Ok::<_, std::convert::Infallible>(answer)
        });
        let connection =
            server::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
        connection.await.unwrap();
        let upgraded = receiver.await.unwrap().await.unwrap();
        serve(TokioIo::new(upgraded), behind).await;
    };
    (url, session)
}

/// As the runtime does: the port is dialled, then both channels begin, then what went wrong is said.
async fn serve(io: impl AsyncRead + AsyncWrite + Unpin, behind: Behind) {
    let (read, write) = tokio::io::split(io);
    let traffic = Traffic::default();
    let events = ForwardReader::new(Protocol::V4, Role::Server, &[PORT]);
    let mut receiver = Receiver::new(read, events, &[], traffic.clone());
    let sender = Sender::new(write, Protocol::V4, Role::Server, traffic);
    for channel in [data_channel(0), error_channel(0)] {
        sender.send_copy(channel, &port_message(PORT)).await.unwrap();
    }
    if matches!(behind, Behind::Nobody) {
        sender.send_copy(error_channel(0), b"nobody listens").await.unwrap();
        sender.close(&Close { code: 1000, reason: String::new() }).await.unwrap();
        return;
    }
    let talk = async {
        while let Ok(event) = receiver.next().await {
            match event {
                ForwardEvent::Ping(payload) => sender.pong(payload),
                ForwardEvent::Data { payload, .. } => {
                    sender.send_copy(data_channel(0), &payload.into_bytes()).await.unwrap();
                }
                _ => {}
            }
        }
    };
    tokio::select! { () = talk => {}, _ = sender.send_pongs() => {} }
}

#[tokio::test]
async fn bytes_go_through_the_runtime() {
    let (url, session) = streams(Behind::Echo).await;
    let talk = async {
        let connection = through(&url, PORT).await.unwrap();
        connection
            .drive(async |mut io| {
                for text in ["one", "two"] {
                    io.write_all(text.as_bytes()).await.unwrap();
                    let mut back = [0; 3];
                    io.read_exact(&mut back).await.unwrap();
                    assert_eq!(back, text.as_bytes());
                }
            })
            .await;
    };
    tokio::join!(session, talk);
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_refused() {
    let (url, session) = streams(Behind::Nobody).await;
    let dialled = async {
        let error = through(&url, PORT).await.err().unwrap();
        assert_eq!(error.to_string(), "nobody listens");
    };
    tokio::join!(session, dialled);
}

#[tokio::test]
async fn urls_that_cannot_be_used_are_refused() {
    for url in ["", "/path", "https://localhost:1/", "http://localhost/"] {
        assert!(matches!(through(url, PORT).await, Err(DialError::Url)), "{url}");
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error_that_names_it() {
    let runtime = Runtime::at("/nonexistent".as_ref()).unwrap();
    let place = Place::Host("127.0.0.1".to_owned());
    // Port 0 is never listened on.
    let error = dial(&runtime, &place, 0).await.err().unwrap();
    assert_eq!(error.to_string(), "dial tcp 127.0.0.1:0");
}
