//! SPDY/3.1 without IO, as far as streams of exec and port-forward use it: what a server needs.
//!
//! Stock kubelets and older clients speak it. Theirs is a subset, and so is ours: no push, no
//! priorities, no flow control. Its windows are neither kept nor announced, because the one client
//! there is never opens them again; TCP slows a sender down instead.

pub mod command;
mod header_block;
pub mod read;
pub mod write;

/// The value of the `Upgrade` header.
pub const UPGRADE: &str = "SPDY/3.1";

/// Names a stream of a connection; clients use odd ones.
pub type StreamId = u32;

const VERSION: u16 = 3;

/// The kinds of control frames that we know.
mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const PING: u16 = 6;
    pub(super) const GOAWAY: u16 = 7;
    pub(super) const HEADERS: u16 = 8;
}

/// In the flags: nothing follows on the stream.
const FIN: u8 = 1;

/// How a peer breaks the rules of SPDY.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpdyError {
    /// Only 3 is spoken.
    #[error("a frame is of version {0} of SPDY")]
    Version(u16),
    /// Ours are kept until they are complete.
    #[error("a control frame is longer than 64 KiB")]
    TooLong,
    /// It ends too early.
    #[error("a control frame is shorter than its kind needs")]
    TooShort,
    /// The compressed headers cannot be read.
    #[error("headers are not compressed as SPDY asks for, or are too long")]
    Headers,
    /// Clients open odd streams, each once.
    #[error("a stream has an id that is even, or was used")]
    StreamId,
    /// A stream that the session has no use for.
    #[error("a stream is of no known type, or a second one of its type")]
    StreamType,
    /// Streams are opened before they are used.
    #[error("a stream is used before all that were asked for are open")]
    Early,
}
