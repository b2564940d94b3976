//! The upgrade from HTTP to WebSocket, on both sides.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use sha1::{Digest, Sha1};

/// RFC 6455, section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADES: HeaderValue = HeaderValue::from_static("Upgrade");
const VERSION: HeaderValue = HeaderValue::from_static("13");

/// Why a request is no good upgrade, or an answer does not grant one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Section 4.1.
    #[error("a WebSocket is opened with GET")]
    Method,
    /// Section 4.1.
    #[error("the headers Connection and Upgrade do not ask for a WebSocket")]
    NotAnUpgrade,
    /// Section 4.4: there is no other version.
    #[error("Sec-WebSocket-Version must be 13")]
    Version,
    /// Section 4.1: 16 bytes in base64.
    #[error("Sec-WebSocket-Key is missing or wrong")]
    Key,
    /// The server answered with something else.
    #[error("the server answered {0} instead of switching protocols")]
    Refused(StatusCode),
    /// The server did not prove that it read our key.
    #[error("the server's Sec-WebSocket-Accept is missing or wrong")]
    Accept,
}

/// Whether the headers ask to switch to WebSocket, rightly or not.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    tokens(headers, &UPGRADE).any(|token| token.eq_ignore_ascii_case("websocket"))
}

/// Checks a client's request; the headers of the answer 101, without the protocol.
pub fn accept(method: &Method, headers: &HeaderMap) -> Result<HeaderMap, HandshakeError> {
    let wants =
        |name, value: &str| tokens(headers, name).any(|token| token.eq_ignore_ascii_case(value));
    if method != Method::GET {
        return Err(HandshakeError::Method);
    }
    if !wants(&CONNECTION, "upgrade") || !wants(&UPGRADE, "websocket") {
        return Err(HandshakeError::NotAnUpgrade);
    }
    if headers.get(SEC_WEBSOCKET_VERSION) != Some(&VERSION) {
        return Err(HandshakeError::Version);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(HandshakeError::Key)?.as_bytes();
    if STANDARD.decode(key).map_or(0, |key| key.len()) != 16 {
        return Err(HandshakeError::Key);
    }
    Ok(HeaderMap::from_iter([
        (CONNECTION, UPGRADES),
        (UPGRADE, WEBSOCKET),
        (SEC_WEBSOCKET_ACCEPT, proof(key)),
    ]))
}

/// A client's side of a handshake.
#[derive(Clone, Debug)]
pub struct ClientHandshake {
    key: String,
}

impl ClientHandshake {
    /// With a fresh key.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Self { key: STANDARD.encode(key) })
    }

    /// The headers of the request, without the protocols.
    pub fn headers(&self) -> HeaderMap {
        // Base64 is always a good header.
        let key = HeaderValue::from_str(&self.key).unwrap_or(HeaderValue::from_static(""));
        HeaderMap::from_iter([
            (CONNECTION, UPGRADES),
            (UPGRADE, WEBSOCKET),
            (SEC_WEBSOCKET_VERSION, VERSION),
            (SEC_WEBSOCKET_KEY, key),
        ])
    }

    /// Checks the server's answer; the protocol that it chose, if any.
    pub fn finish<'a>(
        &self,
        status: StatusCode,
        headers: &'a HeaderMap,
    ) -> Result<Option<&'a str>, HandshakeError> {
        if status != StatusCode::SWITCHING_PROTOCOLS {
            return Err(HandshakeError::Refused(status));
        }
        if headers.get(SEC_WEBSOCKET_ACCEPT) != Some(&proof(self.key.as_bytes())) {
            return Err(HandshakeError::Accept);
        }
        Ok(headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(|name| name.to_str().ok()))
    }
}

/// The comma-separated items of all headers `name`; what is not text is passed over.
pub fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// Shows that we read the key, and thus speak WebSocket.
fn proof(key: &[u8]) -> HeaderValue {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    HeaderValue::from_str(&STANDARD.encode(digest)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(changes: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([
            (CONNECTION, HeaderValue::from_static("keep-alive, upgrade")),
            (UPGRADE, HeaderValue::from_static("WebSocket")),
            (SEC_WEBSOCKET_VERSION, VERSION),
            (SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==")),
        ]);
        for (name, value) in changes {
            headers.insert(name, value.parse().unwrap());
        }
        headers
    }

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn the_key_is_proven() {
        let answer = accept(&Method::GET, &request(&[])).unwrap();
        assert_eq!(answer[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_bad_request_is_refused_for_its_reason() {
        let check = |name: HeaderName, value, expected| {
            let found = accept(&Method::GET, &request(&[(name, value)]));
            assert_eq!(found, Err(expected));
        };
        check(CONNECTION, "close", HandshakeError::NotAnUpgrade);
        check(UPGRADE, "SPDY/3.1", HandshakeError::NotAnUpgrade);
        check(SEC_WEBSOCKET_VERSION, "8", HandshakeError::Version);
        check(SEC_WEBSOCKET_KEY, "c2hvcnQ=", HandshakeError::Key);
        check(SEC_WEBSOCKET_KEY, "no base64 at all", HandshakeError::Key);
        assert_eq!(accept(&Method::POST, &request(&[])), Err(HandshakeError::Method));
    }

    #[test]
    fn client_and_server_understand_each_other() {
        let client = ClientHandshake::new().unwrap();
        let mut answer = accept(&Method::GET, &client.headers()).unwrap();
        let switching = StatusCode::SWITCHING_PROTOCOLS;
        assert_eq!(client.finish(switching, &answer), Ok(None));
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("v5.channel.k8s.io"));
        assert_eq!(client.finish(switching, &answer), Ok(Some("v5.channel.k8s.io")));
        let refused = Err(HandshakeError::Refused(StatusCode::OK));
        assert_eq!(client.finish(StatusCode::OK, &answer), refused);
        answer
            .insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(client.finish(switching, &answer), Err(HandshakeError::Accept));
    }
}
