//! The receiving half of a session.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::Traffic;
use crate::{
    channel::{ChannelEvent, ChannelReader, ProtocolError},
    command::{CommandEvent, CommandReader},
    forward::{ForwardEvent, ForwardReader},
    spdy::read::{SpdyEvent, SpdyReader},
};

/// Finds events in bytes: what the codecs of this crate have in common.
pub trait EventReader {
    /// What is found.
    type Event;

    /// Takes the next event from `input`; `None` if more must arrive.
    fn next(&mut self, input: &mut BytesMut) -> Result<Option<Self::Event>, ProtocolError>;

    /// Whether nothing follows after `event`.
    fn is_close(event: &Self::Event) -> bool;
}

/// The receiving half of a session.
pub struct Receiver<R, E> {
    io: R,
    events: E,
    input: BytesMut,
    traffic: Traffic,
}

/// Why nothing more is received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The connection ended without a farewell.
    #[error("the peer has vanished")]
    Vanished,
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[source] io::Error),
    /// The peer does not keep to the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Read at once; as much as a pipe holds.
const READ: usize = 64 * 1024;

impl<R: AsyncRead + Unpin, E: EventReader> Receiver<R, E> {
    /// Reads `io` from now on, after what was `read` already.
    pub fn new(io: R, events: E, read: &[u8], traffic: Traffic) -> Self {
        Self { io, events, input: BytesMut::from(read), traffic }
    }

    /// Waits for the next event. If the future is dropped, nothing is lost.
    pub async fn next(&mut self) -> Result<E::Event, ReceiveError> {
        loop {
            if let Some(event) = self.events.next(&mut self.input)? {
                return Ok(event);
            }
            self.input.reserve(READ);
            let count = self.io.read_buf(&mut self.input).await.map_err(ReceiveError::Io)?;
            if count == 0 {
                return Err(ReceiveError::Vanished);
            }
            self.traffic.add(count);
        }
    }

    /// Finds other events from now on, in what was read and not understood yet and in what follows.
    pub fn map<F>(self, other: impl FnOnce(E) -> F) -> Receiver<R, F> {
        let Self { io, events, input, traffic } = self;
        Receiver { io, events: other(events), input, traffic }
    }

    /// Drops everything up to the peer's last word, or the end of the connection.
    pub async fn drop_rest(&mut self) {
        loop {
            match self.next().await {
                Ok(event) if E::is_close(&event) => return,
                Ok(_) => {}
                // The words of a peer that breaks the rules are not found, so all is dropped.
                Err(ReceiveError::Protocol(_)) => self.input.clear(),
                Err(_) => return,
            }
        }
    }
}

impl EventReader for ChannelReader {
    type Event = ChannelEvent;

    fn next(&mut self, input: &mut BytesMut) -> Result<Option<ChannelEvent>, ProtocolError> {
        self.next(input)
    }

    fn is_close(event: &ChannelEvent) -> bool {
        matches!(event, ChannelEvent::Close(_))
    }
}

impl EventReader for CommandReader {
    type Event = CommandEvent;

    fn next(&mut self, input: &mut BytesMut) -> Result<Option<CommandEvent>, ProtocolError> {
        self.next(input)
    }

    fn is_close(event: &CommandEvent) -> bool {
        matches!(event, CommandEvent::Close(_))
    }
}

impl EventReader for SpdyReader {
    type Event = SpdyEvent;

    fn next(&mut self, input: &mut BytesMut) -> Result<Option<SpdyEvent>, ProtocolError> {
        Ok(self.next(input)?)
    }

    fn is_close(event: &SpdyEvent) -> bool {
        *event == SpdyEvent::GoAway
    }
}

impl EventReader for ForwardReader {
    type Event = ForwardEvent;

    fn next(&mut self, input: &mut BytesMut) -> Result<Option<ForwardEvent>, ProtocolError> {
        self.next(input)
    }

    fn is_close(event: &ForwardEvent) -> bool {
        matches!(event, ForwardEvent::Close(_))
    }
}
