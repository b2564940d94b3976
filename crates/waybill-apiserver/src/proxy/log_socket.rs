//! A log over a WebSocket: each piece of the node's body is a message to the client.
//!
//! Upstream upgrades any request for a log that asks for it; browsers can read no other stream. Nothing that the
//! client says matters but that it leaves.

use std::pin::pin;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::SEC_WEBSOCKET_PROTOCOL};
use http_body_util::BodyExt;
use hyper::upgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot},
};
use tracing::{Instrument, Span};
use waybill_stream::{
    splice::{EndCause, StreamEnd},
    websocket::{
        Close, Opcode, Role,
        handshake::{accept, tokens},
        read::{Frame, FrameReader},
        write::{control, header},
    },
};

use super::{
    NodeProxy, ProxyAnswer, ProxyBody, address::NodeAddress, empty, error::ProxyError, refuse,
    target::NodeTarget,
};

/// How many answers to the client's pings may wait.
const PONGS: usize = 4;

/// What a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// Bytes as they are.
    Binary,
    /// Text in base64, for clients that read text only.
    Base64,
}

impl Encoding {
    /// The first of the client's protocols that we speak, and its name if the client gave one.
    fn choose(headers: &HeaderMap) -> Option<(Self, Option<&'static str>)> {
        let mut offered = tokens(headers, &SEC_WEBSOCKET_PROTOCOL).peekable();
        if offered.peek().is_none() {
            return Some((Self::Binary, None));
        }
        offered.find_map(|name| match name {
            "binary.k8s.io" => Some((Self::Binary, Some("binary.k8s.io"))),
            "base64.binary.k8s.io" => Some((Self::Base64, Some("base64.binary.k8s.io"))),
            _ => None,
        })
    }

    fn message(self, piece: &Bytes) -> Vec<u8> {
        let (opcode, payload) = match self {
            Self::Binary => (Opcode::Binary, piece.to_vec()),
            Self::Base64 => (Opcode::Text, STANDARD.encode(piece).into_bytes()),
        };
        let (head, start) = header(opcode, payload.len(), None);
        [head.get(start..).unwrap_or_default(), &payload].concat()
    }
}

impl NodeProxy {
    /// Passes on a body of the node as messages. It ends with the body, or when the client leaves.
    pub(crate) async fn log_socket<B>(
        &self,
        mut request: Request<B>,
        node: &NodeAddress,
        target: &NodeTarget,
    ) -> ProxyAnswer {
        let refused = |error| ProxyAnswer { response: refuse(node, target, error), ended: None };
        let mut headers = match accept(request.method(), request.headers()) {
            Ok(headers) => headers,
            Err(error) => return refused(ProxyError::Handshake(error)),
        };
        let Some((encoding, name)) = Encoding::choose(request.headers()) else {
            return refused(ProxyError::LogProtocol);
        };
        if let Some(name) = name {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
        }
        let body = match self.until_stopped(self.try_stream(node, target)).await {
            Ok(response) => response.into_body(),
            Err(error) => return refused(error),
        };
        let (sender, ended) = oneshot::channel();
        let (client, stop) = (upgrade::on(&mut request), self.stop.clone());
        let session = async move {
            let copied = async {
                match client.await {
                    Ok(client) => copy(TokioIo::new(client), body, encoding).await,
                    Err(_) => (0, EndCause::NotUpgraded),
                }
            };
            let (from_server, cause) =
                stop.run_until_cancelled(copied).await.unwrap_or((0, EndCause::Shutdown));
            // Nobody has to wait for it.
            let _ = sender.send(StreamEnd { from_client: 0, from_server, cause });
        };
        self.tasks.spawn(session.instrument(Span::current()));
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers;
        ProxyAnswer { response, ended: Some(ended) }
    }
}

/// How many bytes of the log were sent, and why no more.
async fn copy(
    client: impl AsyncRead + AsyncWrite,
    mut body: ProxyBody,
    encoding: Encoding,
) -> (u64, EndCause) {
    let (from_client, to_client) = tokio::io::split(client);
    let mut to_client = pin!(to_client);
    let (pongs, mut due) = mpsc::channel(PONGS);
    let mut left = pin!(listen(from_client, pongs));
    let mut sent = 0;
    loop {
        let (frame, is_last) = tokio::select! {
            () = &mut left => return (sent, EndCause::Closed),
            Some(pong) = due.recv() => (pong, false),
            piece = body.frame() => match piece {
                Some(Ok(piece)) => match piece.into_data() {
                    Ok(data) => {
                        sent += data.len() as u64;
                        (encoding.message(&data), false)
                    }
                    Err(_) => continue,
                },
                Some(Err(_)) => (closing(Close::INTERNAL), true),
                None => (closing(Close::NORMAL), true),
            },
        };
        // A client that does not read holds up the node, not our memory.
        let written = tokio::select! {
            () = &mut left => return (sent, EndCause::Closed),
            written = to_client.write_all(&frame) => written,
        };
        if written.is_err() || is_last {
            let _ = to_client.shutdown().await;
            return (sent, EndCause::Closed);
        }
    }
}

fn closing(code: u16) -> Vec<u8> {
    let close = Close { code, reason: String::new() };
    control(Role::Server, Opcode::Close, &close.to_payload())
}

/// Reads until the client leaves or says what it must not.
async fn listen(from_client: impl AsyncRead, pongs: mpsc::Sender<Vec<u8>>) {
    let mut from_client = pin!(from_client);
    let (mut frames, mut input) = (FrameReader::new(Role::Server), BytesMut::with_capacity(1024));
    loop {
        match frames.next(&mut input) {
            Ok(Some(Frame::Piece(_) | Frame::Pong)) => {}
            Ok(Some(Frame::Ping(payload))) => {
                // Who asks faster than it reads the answers gets fewer of them.
                let _ = pongs.try_send(control(Role::Server, Opcode::Pong, &payload));
            }
            Ok(Some(Frame::Close(_))) | Err(_) => return,
            Ok(None) => match from_client.read_buf(&mut input).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
        }
    }
}
