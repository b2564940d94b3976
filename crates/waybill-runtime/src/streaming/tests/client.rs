//! A client that shares no code with the server.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        ClientRequestBuilder, Error, Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

/// Far beyond what anything here takes; a test that hangs shall say where.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Client {
    pub(super) socket: WebSocketStream<TcpStream>,
    pub(super) protocol: Option<String>,
}

/// Everything a server said until it closed.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) first: Option<Vec<u8>>,
    pub(super) channels: [Vec<u8>; 5],
    pub(super) pongs: usize,
    pub(super) close: Option<CloseFrame>,
}

impl Client {
    pub(super) async fn connect(
        url: &str,
        protocols: &[&str],
    ) -> Result<Self, (StatusCode, String)> {
        let url = url.replacen("http", "ws", 1);
        let uri: http::Uri = url.parse().unwrap();
        let stream = TcpStream::connect(uri.authority().unwrap().as_str()).await.unwrap();
        let mut request = ClientRequestBuilder::new(uri);
        for protocol in protocols {
            request = request.with_sub_protocol(*protocol);
        }
        match client_async(request, stream).await {
            Ok((socket, answer)) => {
                let protocol = answer.headers().get("sec-websocket-protocol");
                let protocol = protocol.map(|name| name.to_str().unwrap().to_owned());
                Ok(Self { socket, protocol })
            }
            Err(Error::Http(answer)) => {
                let body = answer.body().clone().unwrap_or_default();
                Err((answer.status(), String::from_utf8(body).unwrap()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) async fn send(&mut self, message: impl Into<Bytes>) {
        self.socket.send(Message::binary(message)).await.unwrap();
    }

    pub(super) async fn send_text(&mut self, message: &str) {
        self.socket.send(Message::text(message)).await.unwrap();
    }

    pub(super) async fn next(&mut self) -> Option<Message> {
        timeout(PATIENCE, self.socket.next()).await.expect("the server says nothing")?.ok()
    }

    /// Reads to the end of the session.
    pub(super) async fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        while let Some(message) = self.next().await {
            match message {
                Message::Binary(bytes) => heard.add(&bytes, 0),
                Message::Text(text) => heard.add(text.as_bytes(), b'0'),
                Message::Pong(_) => heard.pongs += 1,
                Message::Close(close) => heard.close = close,
                _ => {}
            }
        }
        heard
    }

    /// Reads until `channel` has said `text`.
    pub(super) async fn hear_text(&mut self, channel: u8, text: &str) -> String {
        let mut heard = String::new();
        while !heard.contains(text) {
            let message = self.next().await.expect("the session is over").into_data();
            if message.first() == Some(&channel) {
                heard.push_str(str::from_utf8(&message[1..]).unwrap());
            }
        }
        heard
    }
}

impl Heard {
    fn add(&mut self, message: &[u8], zero: u8) {
        self.first.get_or_insert_with(|| message.to_vec());
        let (channel, payload) = message.split_first().unwrap();
        self.channels[usize::from(channel - zero)].extend_from_slice(payload);
    }

    pub(super) fn out(&self) -> &str {
        str::from_utf8(&self.channels[1]).unwrap()
    }

    pub(super) fn err(&self) -> &str {
        str::from_utf8(&self.channels[2]).unwrap()
    }

    /// The status, and whether the server took its leave as it should.
    #[track_caller]
    pub(super) fn status(&self) -> &str {
        assert_eq!(self.close.as_ref().map(|close| close.code), Some(CloseCode::Normal));
        str::from_utf8(&self.channels[3]).unwrap()
    }
}

/// The text for an exit code, as upstream's clients look for it.
pub(super) fn exit(code: i32) -> String {
    format!(r#""details":{{"causes":[{{"reason":"ExitCode","message":"{code}"}}]}}"#)
}
