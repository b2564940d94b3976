//! Answers to requests: the switch to a stream, or why there is none.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL},
};
use http_body_util::Full;
use waybill_stream::{
    protocol::{NoCommonProtocol, Protocol},
    websocket::handshake::{HandshakeError, accept, is_upgrade},
};

pub(super) type Answer = Response<Full<Bytes>>;

/// Why a client gets no stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there is no such path; it begins with /exec/, /attach/ or /portforward/")]
    NoSuchPath,
    #[error("only GET and POST open a stream")]
    Method,
    #[error("the token is unknown, used or expired; ask the runtime for a new URL")]
    Token,
    #[error("{0}; this server speaks WebSocket")]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Protocol(#[from] NoCommonProtocol),
    #[error("{asked} ports are asked for, and one connection can carry {most} in this protocol")]
    Ports { asked: usize, most: u8 },
    #[error("no port is asked for; name at least one")]
    NoPort,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPath | Self::Token => StatusCode::NOT_FOUND,
            Self::Method | Self::Handshake(HandshakeError::Method) => {
                StatusCode::METHOD_NOT_ALLOWED
            }
            Self::Handshake(_) | Self::Ports { .. } | Self::NoPort => StatusCode::BAD_REQUEST,
            Self::Protocol(_) => StatusCode::FORBIDDEN,
        }
    }

    pub(super) fn answer(&self) -> Answer {
        let mut answer = Response::new(Full::from(format!("{self}\n")));
        *answer.status_mut() = self.status();
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, text);
        if self.status() == StatusCode::METHOD_NOT_ALLOWED {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
        }
        answer
    }
}

/// Grants the upgrade, in one of the `supported` protocols.
pub(super) fn switch(
    method: &Method,
    headers: &HeaderMap,
    supported: &[Protocol],
) -> Result<(Protocol, Answer), Refusal> {
    if !is_upgrade(headers) {
        return Err(HandshakeError::NotAnUpgrade.into());
    }
    let mut granted = accept(method, headers)?;
    let protocol = Protocol::choose(headers, supported)?;
    if let Some(name) = protocol.name() {
        granted.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = granted;
    Ok((protocol, answer))
}
