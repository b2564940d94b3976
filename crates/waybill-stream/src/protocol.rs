//! The subprotocols of WebSocket that carry channels, and the choice of one.

use http::{HeaderMap, header::SEC_WEBSOCKET_PROTOCOL};

use crate::websocket::handshake::tokens;

/// A subprotocol. All have messages whose first byte names a channel; they differ in the form of the
/// bytes, in what the error channel says, and in whether a channel can be closed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The client named none; as `channel.k8s.io`.
    Unnamed,
    /// `channel.k8s.io`
    Channel,
    /// `base64.channel.k8s.io`
    Base64Channel,
    /// `v4.channel.k8s.io`
    V4,
    /// `v4.base64.channel.k8s.io`
    V4Base64,
    /// `v5.channel.k8s.io`
    V5,
}

impl Protocol {
    /// What exec and attach can speak, the newest first.
    pub const COMMAND: &[Self] =
        &[Self::V5, Self::V4, Self::V4Base64, Self::Channel, Self::Base64Channel, Self::Unnamed];

    /// What port-forward can speak, the newest first.
    pub const FORWARD: &[Self] = &[Self::V4, Self::V4Base64, Self::Unnamed];

    /// The name in the header; `None` for the protocol without one.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Unnamed => None,
            Self::Channel => Some("channel.k8s.io"),
            Self::Base64Channel => Some("base64.channel.k8s.io"),
            Self::V4 => Some("v4.channel.k8s.io"),
            Self::V4Base64 => Some("v4.base64.channel.k8s.io"),
            Self::V5 => Some("v5.channel.k8s.io"),
        }
    }

    /// Whether messages are text, in base64 after a digit, instead of plain bytes.
    pub fn is_base64(self) -> bool {
        matches!(self, Self::Base64Channel | Self::V4Base64)
    }

    /// Whether the error channel carries a `Status`, instead of a text that is empty on success.
    pub fn has_status(self) -> bool {
        matches!(self, Self::V4 | Self::V4Base64 | Self::V5)
    }

    /// Whether one channel can be closed while others go on.
    pub fn closes_channels(self) -> bool {
        self == Self::V5
    }

    /// Chooses for a server: the first that the client named and we speak, as the client's order is
    /// its wish.
    pub fn choose(headers: &HeaderMap, supported: &[Self]) -> Result<Self, NoCommonProtocol> {
        let mut offered = tokens(headers, &SEC_WEBSOCKET_PROTOCOL).peekable();
        if offered.peek().is_none() && supported.contains(&Self::Unnamed) {
            return Ok(Self::Unnamed);
        }
        offered
            .find_map(|name| Self::find(name, supported))
            .ok_or_else(|| NoCommonProtocol { supported: names(supported) })
    }

    /// For a client: what the server's answer means, if it was `offered`.
    pub fn chosen(name: Option<&str>, offered: &[Self]) -> Result<Self, NoCommonProtocol> {
        let found = match name {
            None => offered.contains(&Self::Unnamed).then_some(Self::Unnamed),
            Some(name) => Self::find(name, offered),
        };
        found.ok_or_else(|| NoCommonProtocol { supported: names(offered) })
    }

    fn find(name: &str, supported: &[Self]) -> Option<Self> {
        supported.iter().copied().find(|protocol| protocol.name() == Some(name))
    }
}

/// Client and server speak different languages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no common subprotocol in Sec-WebSocket-Protocol: supported are {supported}")]
pub struct NoCommonProtocol {
    supported: String,
}

/// The named ones of `protocols`, as a header lists them.
pub fn names(protocols: &[Protocol]) -> String {
    let names: Vec<_> = protocols.iter().filter_map(|protocol| protocol.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(offered: &[&str], supported: &[Protocol], expected: Option<Protocol>) {
        let mut headers = HeaderMap::new();
        for value in offered {
            headers.append(SEC_WEBSOCKET_PROTOCOL, value.parse().unwrap());
        }
        assert_eq!(Protocol::choose(&headers, supported).ok(), expected, "{offered:?}");
    }

    #[test]
    fn the_clients_first_that_is_known_is_chosen() {
        let all = Protocol::COMMAND;
        check(&["v5.channel.k8s.io"], all, Some(Protocol::V5));
        check(&["v9.channel.k8s.io, v4.channel.k8s.io"], all, Some(Protocol::V4));
        check(&["channel.k8s.io,v5.channel.k8s.io"], all, Some(Protocol::Channel));
        check(&["v9.x", "v4.base64.channel.k8s.io"], all, Some(Protocol::V4Base64));
        check(&["base64.channel.k8s.io"], all, Some(Protocol::Base64Channel));
        check(&[], all, Some(Protocol::Unnamed));
        check(&[" , "], all, Some(Protocol::Unnamed));
    }

    #[test]
    fn nothing_in_common_is_an_error_that_lists_what_there_is() {
        check(&["v9.channel.k8s.io"], Protocol::COMMAND, None);
        check(&["V5.CHANNEL.K8S.IO"], Protocol::COMMAND, None);
        check(&["v5.channel.k8s.io"], Protocol::FORWARD, None);
        check(&[], &[Protocol::V5], None);
        let error = Protocol::choose(&HeaderMap::new(), &[Protocol::V5, Protocol::V4]).unwrap_err();
        assert!(error.to_string().ends_with("v5.channel.k8s.io, v4.channel.k8s.io"), "{error}");
    }

    #[test]
    fn a_client_takes_only_what_it_offered() {
        let offered = &[Protocol::V5, Protocol::V4];
        assert_eq!(Protocol::chosen(Some("v4.channel.k8s.io"), offered), Ok(Protocol::V4));
        assert!(Protocol::chosen(Some("channel.k8s.io"), offered).is_err());
        assert!(Protocol::chosen(None, offered).is_err());
    }
}
