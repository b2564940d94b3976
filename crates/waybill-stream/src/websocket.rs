//! WebSocket (RFC 6455) without IO: the handshake, and frames in both directions.
//!
//! Messages are handed on in pieces as they arrive, so their length is no concern of our memory. No
//! extension is offered or accepted. ADR 0014 says why this is our own.

pub mod handshake;
pub mod mask;
pub mod read;
pub mod write;

/// Which end of the connection we are. Clients mask what they send, servers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that asked for the upgrade.
    Client,
    /// The end that granted it.
    Server,
}

/// The most that a control frame may carry.
pub const CONTROL_BYTES: usize = 125;

/// The end of a connection in words, as a Close frame tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// Why, as a number.
    pub code: u16,
    /// Why, for people; cut to what a frame can hold.
    pub reason: String,
}

impl Close {
    /// Everything was said.
    pub const NORMAL: u16 = 1000;
    /// We stop, or the session was silent for too long.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke the rules of WebSocket.
    pub const PROTOCOL: u16 = 1002;
    /// A message does not hold what it should.
    pub const CONTENT: u16 = 1007;
    /// A message is longer than its kind may be.
    pub const TOO_LONG: u16 = 1009;
    /// We failed.
    pub const INTERNAL: u16 = 1011;

    /// The usual end.
    pub fn normal() -> Self {
        Self { code: Self::NORMAL, reason: String::new() }
    }

    /// The body of the frame: the code, then the reason as far as it fits.
    pub fn to_payload(&self) -> Vec<u8> {
        let mut end = self.reason.len().min(CONTROL_BYTES - 2);
        while !self.reason.is_char_boundary(end) {
            end -= 1;
        }
        let reason = self.reason.get(..end).unwrap_or_default();
        [&self.code.to_be_bytes(), reason.as_bytes()].concat()
    }
}

/// What the four bits of a frame's kind say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A further frame of a message.
    Continuation,
    /// The first frame of a message of text.
    Text,
    /// The first frame of a message of bytes.
    Binary,
    /// The end.
    Close,
    /// A question whether the peer is there.
    Ping,
    /// The answer, or a sign of life.
    Pong,
}

impl Opcode {
    fn parse(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let close = Close { code: Close::INTERNAL, reason: "ä".repeat(100) };
        let payload = close.to_payload();
        assert_eq!(payload.len(), 124);
        assert_eq!(str::from_utf8(&payload[2..]).unwrap(), "ä".repeat(61));
    }
}
