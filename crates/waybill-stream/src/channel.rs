//! Channels: several streams over the messages of one WebSocket.

mod base64_text;
mod outgoing;
mod reader;

pub use outgoing::Outgoing;
pub(crate) use outgoing::close_channel;
pub use reader::{ChannelEvent, ChannelReader};

use crate::{
    spdy::SpdyError,
    websocket::{Close, read::FrameError},
};

/// What a message begins with that closes a channel, `v5` only.
pub const CLOSE_CHANNEL: u8 = 255;

/// The highest channel whose digit is still one byte of text.
pub const LAST_BASE64_CHANNEL: u8 = 127 - b'0';

/// How a peer breaks the rules of WebSocket or of the channels. No text quotes what it sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Not a good WebSocket.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Not good SPDY.
    #[error(transparent)]
    Spdy(#[from] SpdyError),
    /// A message for a channel that this session cannot have.
    #[error("a message is for channel {0}, which does not exist here")]
    UnknownChannel(u8),
    /// The text of a base64 protocol begins with something below `0`.
    #[error("a message does not begin with the digit of a channel")]
    NotADigit,
    /// The rest of that text is wrong.
    #[error("a message on channel {0} is not base64")]
    Base64(u8),
    /// It is 255 and one more byte.
    #[error("a message that closes a channel must have two bytes")]
    CloseChannel,
    /// It is JSON with two numbers below 65,536.
    #[error("a message on the resize channel is not {{\"Width\":…,\"Height\":…}}")]
    Resize,
    /// It is a `Status` in JSON.
    #[error("the message on the error channel is not a Status")]
    Status,
    /// It begins with the port in two bytes, little-endian.
    #[error("channel {0} does not begin with the number of its port")]
    Port(u8),
    /// Messages that are kept until they are complete have a limit.
    #[error("a message on channel {channel} is longer than {limit} bytes")]
    TooLong {
        /// Where.
        channel: u8,
        /// What would do.
        limit: usize,
    },
}

impl ProtocolError {
    /// How a peer is told, before the connection ends.
    pub fn to_close(&self) -> Close {
        let code = match self {
            Self::Frame(_) | Self::Spdy(_) => Close::PROTOCOL,
            Self::TooLong { .. } => Close::TOO_LONG,
            _ => Close::CONTENT,
        };
        Close { code, reason: self.to_string() }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
