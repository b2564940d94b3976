//! Messages that arrive, as events of their channels.

use bytes::{Buf, Bytes, BytesMut};

use super::{
    CLOSE_CHANNEL, ProtocolError,
    base64_text::{Base64Text, NotBase64},
};
use crate::{
    payload::Payload,
    protocol::Protocol,
    websocket::{
        Close, Role,
        read::{Frame, FrameReader, Piece},
    },
};

/// What a peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// A part of a message; a message without content gives one empty part.
    Data {
        /// Where.
        channel: u8,
        /// What.
        payload: Payload,
        /// Whether the message ends here.
        last: bool,
    },
    /// The peer sends nothing more on this channel.
    ChannelClosed(u8),
    /// To be answered.
    Ping(Bytes),
    /// A sign of life.
    Pong,
    /// The peer sends nothing more at all.
    Close(Option<Close>),
}

/// Finds the events in the bytes of a connection.
#[derive(Debug)]
pub struct ChannelReader {
    frames: FrameReader,
    protocol: Protocol,
    message: Message,
}

/// How much of a message is known.
#[derive(Debug)]
enum Message {
    /// Not its channel.
    New,
    Plain {
        channel: u8,
    },
    Text {
        channel: u8,
        text: Base64Text,
    },
    /// It closes a channel, once that is known.
    Closing {
        channel: Option<u8>,
    },
}

impl ChannelReader {
    /// For our end of a connection.
    pub fn new(protocol: Protocol, role: Role) -> Self {
        Self { frames: FrameReader::new(role), protocol, message: Message::New }
    }

    /// Takes the next event from `input`; `None` if more must arrive.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<ChannelEvent>, ProtocolError> {
        while let Some(frame) = self.frames.next(input)? {
            let event = match frame {
                Frame::Piece(piece) => self.piece(piece)?,
                Frame::Ping(payload) => Some(ChannelEvent::Ping(payload)),
                Frame::Pong => Some(ChannelEvent::Pong),
                Frame::Close(close) => Some(ChannelEvent::Close(close)),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// The first of the next events that means anything; `None` if more must arrive.
    pub(crate) fn find<E>(
        &mut self,
        input: &mut BytesMut,
        mut meaning: impl FnMut(ChannelEvent) -> Result<Option<E>, ProtocolError>,
    ) -> Result<Option<E>, ProtocolError> {
        while let Some(event) = self.next(input)? {
            if let Some(found) = meaning(event)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// `None` if the piece alone says nothing, as a message without a channel does.
    fn piece(&mut self, piece: Piece) -> Result<Option<ChannelEvent>, ProtocolError> {
        let Piece { mut bytes, first, last } = piece;
        if first {
            self.message = Message::New;
        }
        if let Message::New = self.message {
            let Some(byte) = bytes.first().copied() else { return Ok(None) };
            bytes.advance(1);
            self.message = self.begin(byte)?;
            // The rest of the message will come with an event of its own.
            if bytes.is_empty() && !last {
                return Ok(None);
            }
        }
        self.content(bytes, last)
    }

    fn begin(&self, byte: u8) -> Result<Message, ProtocolError> {
        if self.protocol.is_base64() {
            let channel = byte.checked_sub(b'0').ok_or(ProtocolError::NotADigit)?;
            return Ok(Message::Text { channel, text: Base64Text::default() });
        }
        Ok(if byte == CLOSE_CHANNEL && self.protocol.closes_channels() {
            Message::Closing { channel: None }
        } else {
            Message::Plain { channel: byte }
        })
    }

    fn content(&mut self, bytes: Bytes, last: bool) -> Result<Option<ChannelEvent>, ProtocolError> {
        match &mut self.message {
            Message::New => Ok(None),
            Message::Plain { channel } => Ok(data(*channel, bytes, last)),
            Message::Text { channel, text } => {
                let decoded = text.decode(&bytes, last);
                let decoded = decoded.map_err(|NotBase64| ProtocolError::Base64(*channel))?;
                Ok(data(*channel, decoded, last))
            }
            Message::Closing { channel } => {
                for byte in bytes {
                    if channel.replace(byte).is_some() {
                        return Err(ProtocolError::CloseChannel);
                    }
                }
                match (*channel, last) {
                    (Some(channel), true) => Ok(Some(ChannelEvent::ChannelClosed(channel))),
                    (None, true) => Err(ProtocolError::CloseChannel),
                    (_, false) => Ok(None),
                }
            }
        }
    }
}

/// An event for a part of a message, unless it says nothing.
fn data(channel: u8, bytes: Bytes, last: bool) -> Option<ChannelEvent> {
    let says_something = last || !bytes.is_empty();
    says_something.then(|| ChannelEvent::Data { channel, payload: bytes.into(), last })
}
