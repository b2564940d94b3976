//! Answers to requests: the switch to a stream, or why there is none.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
};
use http_body_util::Full;
use waybill_stream::{
    protocol::{NoCommonProtocol, Protocol},
    spdy::{
        self,
        command::{ACCEPTED_HEADER, SpdyVersion, VERSION_HEADER},
    },
    websocket::handshake::{HandshakeError, accept, is_upgrade, tokens},
};

/// The version of port-forward over SPDY; there is one.
const FORWARD_VERSION: &str = "portforward.k8s.io";

/// The subprotocol of a WebSocket whose messages hold such a connection.
const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

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
    #[error("{0}; this server speaks WebSocket and SPDY/3.1")]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Protocol(#[from] NoCommonProtocol),
    #[error("X-Stream-Protocol-Version is missing; supported are {supported}")]
    NoVersion { supported: String },
    #[error("no common version in X-Stream-Protocol-Version: supported are {supported}")]
    Version { supported: String },
    #[error("{asked} ports are asked for, and one connection can carry {most} in this protocol")]
    Ports { asked: usize, most: u8 },
    #[error("no port is asked for; name at least one")]
    NoPort,
    #[error(
        "too many sessions are open on this machine; end some, or raise the runtime's limit of open files"
    )]
    TooMany,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPath | Self::Token => StatusCode::NOT_FOUND,
            Self::Method | Self::Handshake(HandshakeError::Method) => {
                StatusCode::METHOD_NOT_ALLOWED
            }
            Self::Handshake(_) | Self::NoVersion { .. } | Self::Ports { .. } | Self::NoPort => {
                StatusCode::BAD_REQUEST
            }
            Self::Protocol(_) | Self::Version { .. } => StatusCode::FORBIDDEN,
            Self::TooMany => StatusCode::SERVICE_UNAVAILABLE,
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
        if let Self::Version { supported } = self
            && let Ok(supported) = HeaderValue::from_str(supported)
        {
            answer.headers_mut().insert(ACCEPTED_HEADER, supported);
        }
        answer
    }
}

/// What a client and a process speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandWire {
    Channels(Protocol),
    Spdy(SpdyVersion),
}

/// What a client and ports speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardWire {
    Channels(Protocol),
    Spdy,
    /// SPDY in the messages of a WebSocket.
    Tunnel,
}

/// Grants the upgrade for a process's streams.
pub(super) fn switch_command(
    method: &Method,
    headers: &HeaderMap,
) -> Result<(CommandWire, Answer), Refusal> {
    if !is_spdy(headers) {
        let (protocol, answer) = channels(method, headers, Protocol::COMMAND)?;
        return Ok((CommandWire::Channels(protocol), answer));
    }
    let versions: Vec<_> = SpdyVersion::ALL.iter().map(|version| version.name()).collect();
    let version = SpdyVersion::choose(headers);
    let version = version.ok_or_else(|| no_version(headers, &versions))?;
    Ok((CommandWire::Spdy(version), spdy(version.name())))
}

/// Grants the upgrade for ports.
pub(super) fn switch_forward(
    method: &Method,
    headers: &HeaderMap,
) -> Result<(ForwardWire, Answer), Refusal> {
    if is_spdy(headers) {
        let mut named = tokens(headers, &VERSION_HEADER);
        return if named.any(|name| name == FORWARD_VERSION) {
            Ok((ForwardWire::Spdy, spdy(FORWARD_VERSION)))
        } else {
            Err(no_version(headers, &[FORWARD_VERSION]))
        };
    }
    if is_upgrade(headers)
        && tokens(headers, &SEC_WEBSOCKET_PROTOCOL).any(|name| name == TUNNEL_PROTOCOL)
    {
        let mut granted = accept(method, headers)?;
        granted.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(TUNNEL_PROTOCOL));
        return Ok((ForwardWire::Tunnel, switching(granted)));
    }
    let (protocol, answer) = channels(method, headers, Protocol::FORWARD)?;
    Ok((ForwardWire::Channels(protocol), answer))
}

/// Grants a WebSocket in one of the `supported` protocols.
fn channels(
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
    Ok((protocol, switching(granted)))
}

fn is_spdy(headers: &HeaderMap) -> bool {
    let has =
        |name, value: &str| tokens(headers, name).any(|token| token.eq_ignore_ascii_case(value));
    has(&CONNECTION, "upgrade") && has(&UPGRADE, spdy::UPGRADE)
}

fn spdy(version: &'static str) -> Answer {
    switching(HeaderMap::from_iter([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static(spdy::UPGRADE)),
        (VERSION_HEADER, HeaderValue::from_static(version)),
    ]))
}

fn no_version(headers: &HeaderMap, supported: &[&'static str]) -> Refusal {
    let supported = supported.join(", ");
    if headers.contains_key(VERSION_HEADER) {
        Refusal::Version { supported }
    } else {
        Refusal::NoVersion { supported }
    }
}

fn switching(headers: HeaderMap) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = headers;
    answer
}
