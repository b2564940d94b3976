//! Which headers cross whoever stands between a client and a server that upgrades.
//!
//! Only those that the upgrade needs: nothing else that a client sends reaches the server, above all
//! no credential (EXEC-22), and nothing else that the server sends reaches the client.

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Version,
    header::{
        CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};

/// Whether a client asks for an upgrade that we can make; HTTP/2 has none.
pub fn is_upgrade<B>(request: &Request<B>) -> bool {
    let mut tokens = tokens(request.headers(), &CONNECTION);
    request.version() == Version::HTTP_11
        && request.headers().contains_key(UPGRADE)
        && tokens.any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// What the server behind us may see of a client's headers.
pub fn for_server(client: &HeaderMap) -> HeaderMap {
    let mut headers = pick(client, &TO_SERVER);
    let protocols: Vec<_> = tokens(client, &SEC_WEBSOCKET_PROTOCOL)
        .filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL))
        .collect();
    // A list made of parts of valid headers is a valid header.
    if let Ok(protocols) = HeaderValue::from_str(&protocols.join(", "))
        && !protocols.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers
}

/// What a client may see of the headers of a server that upgraded.
pub fn for_client(server: &HeaderMap) -> HeaderMap {
    let mut headers = pick(server, &TO_CLIENT);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers
}

/// Browsers can send a token only as one of the protocols; upstream cuts it out, too.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

const STREAM_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

const TO_CLIENT: [HeaderName; 5] = [
    UPGRADE,
    SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_PROTOCOL,
    STREAM_PROTOCOL_VERSION,
];

const TO_SERVER: [HeaderName; 5] = [
    UPGRADE,
    SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION,
    STREAM_PROTOCOL_VERSION,
];

fn pick(from: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let all = |name| from.get_all(name).into_iter().map(move |value| (name, value));
    names.iter().flat_map(all).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[track_caller]
    fn check_upgrade(version: Version, pairs: &[(&'static str, &'static str)], expected: bool) {
        let mut request = Request::new(());
        *request.version_mut() = version;
        *request.headers_mut() = headers(pairs);
        assert_eq!(is_upgrade(&request), expected, "{request:?}");
    }

    #[test]
    fn upgrades_need_both_headers_and_http_1_1() {
        let both = [("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")];
        check_upgrade(Version::HTTP_11, &both, true);
        check_upgrade(Version::HTTP_2, &both, false);
        check_upgrade(Version::HTTP_10, &both, false);
        check_upgrade(Version::HTTP_11, &[("upgrade", "websocket")], false);
        check_upgrade(Version::HTTP_11, &[("connection", "Upgrade")], false);
    }

    /// EXEC-22
    #[test]
    fn a_server_sees_no_credential_of_the_client() {
        let client = headers(&[
            ("authorization", "Bearer s"),
            ("cookie", "s"),
            ("impersonate-user", "s"),
            ("x-remote-user", "s"),
            ("audit-id", "s"),
            ("connection", "Upgrade, authorization"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "channel.k8s.io"),
        ]);
        let expected = headers(&[
            ("upgrade", "websocket"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "channel.k8s.io"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
            ("connection", "Upgrade"),
        ]);
        assert_eq!(for_server(&client), expected);
    }

    #[test]
    fn a_client_sees_only_the_outcome_of_the_upgrade() {
        let server = headers(&[
            ("set-cookie", "s"),
            ("upgrade", "SPDY/3.1"),
            ("connection", "Upgrade"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ]);
        let expected = headers(&[
            ("upgrade", "SPDY/3.1"),
            ("connection", "Upgrade"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ]);
        assert_eq!(for_client(&server), expected);
    }
}
