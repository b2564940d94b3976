//! Frames that arrive.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;

use super::{FIN, SpdyError, StreamId, VERSION, header_block::HeaderBlocks, kind};
use crate::payload::Payload;

/// A control frame that is longer is refused.
const CONTROL_LIMIT: usize = 64 * 1024;

/// What a peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpdyEvent {
    /// It opened a stream, to be answered with a reply.
    Opened {
        /// Its name from now on.
        stream: StreamId,
        /// What it is for.
        headers: HeaderMap,
    },
    /// It sent bytes on a stream.
    Data {
        /// Where.
        stream: StreamId,
        /// What.
        payload: Payload,
    },
    /// It sends nothing more on a stream.
    Finished(StreamId),
    /// It has no more use for a stream.
    Reset(StreamId),
    /// To be answered with the same number if it is odd; otherwise it is an answer.
    Ping(u32),
    /// It ends the connection.
    GoAway,
}

/// Finds the events in the bytes of a connection.
pub struct SpdyReader {
    headers: HeaderBlocks,
    last_stream: StreamId,
    state: State,
}

enum State {
    /// Before a frame.
    Header,
    /// In a frame of data.
    Data { stream: StreamId, remaining: usize, last: bool },
    /// After an event that told only a part: the stream is finished.
    Finishing(StreamId),
}

impl SpdyReader {
    /// For a server.
    pub fn new() -> Self {
        Self { headers: HeaderBlocks::new(), last_stream: 0, state: State::Header }
    }

    /// Takes the next event from `input`; `None` if more must arrive.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<SpdyEvent>, SpdyError> {
        loop {
            match self.state {
                State::Finishing(stream) => {
                    self.state = State::Header;
                    return Ok(Some(SpdyEvent::Finished(stream)));
                }
                State::Data { stream, remaining: 0, last } => {
                    self.state = if last { State::Finishing(stream) } else { State::Header };
                }
                State::Data { .. } if input.is_empty() => return Ok(None),
                State::Data { stream, remaining, last } => {
                    let bytes = input.split_to(remaining.min(input.len()));
                    let remaining = remaining - bytes.len();
                    self.state = State::Data { stream, remaining, last };
                    let payload = bytes.freeze().into();
                    return Ok(Some(SpdyEvent::Data { stream, payload }));
                }
                State::Header => {
                    let Some(header) = Header::parse(input) else { return Ok(None) };
                    match header {
                        Header::Data { stream, last, length } => {
                            input.advance(HEADER);
                            self.state = State::Data { stream, remaining: length, last };
                        }
                        Header::Control { version, kind, last, length } => {
                            let Some(body) = control(input, version, length)? else {
                                return Ok(None);
                            };
                            let event = self.control(kind, last, body)?;
                            if event.is_some() {
                                return Ok(event);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The last stream that was opened.
    pub fn last_stream(&self) -> StreamId {
        self.last_stream
    }

    /// `None` if it says nothing to us.
    fn control(
        &mut self,
        kind: u16,
        last: bool,
        mut body: Bytes,
    ) -> Result<Option<SpdyEvent>, SpdyError> {
        let number = |body: &mut Bytes| body.try_get_u32().map_err(|_| SpdyError::TooShort);
        Ok(match kind {
            kind::SYN_STREAM => {
                let stream = number(&mut body)? & ID;
                // The associated stream, the priority and the slot mean nothing here.
                number(&mut body)?;
                body.try_get_u16().map_err(|_| SpdyError::TooShort)?;
                let headers = self.headers.read(&body)?;
                if stream.is_multiple_of(2) || stream <= self.last_stream {
                    return Err(SpdyError::StreamId);
                }
                self.last_stream = stream;
                if last {
                    self.state = State::Finishing(stream);
                }
                Some(SpdyEvent::Opened { stream, headers })
            }
            kind::SYN_REPLY | kind::HEADERS => {
                number(&mut body)?;
                // Read for what follows: all blocks are one compressed text.
                self.headers.read(&body)?;
                None
            }
            kind::RST_STREAM => Some(SpdyEvent::Reset(number(&mut body)? & ID)),
            kind::PING => Some(SpdyEvent::Ping(number(&mut body)?)),
            kind::GOAWAY => Some(SpdyEvent::GoAway),
            // Settings and windows, see above.
            _ => None,
        })
    }
}

impl Default for SpdyReader {
    fn default() -> Self {
        Self::new()
    }
}

/// The bits of a stream's name.
const ID: u32 = 0x7fff_ffff;

/// Of every frame.
const HEADER: usize = 8;

enum Header {
    Data { stream: StreamId, last: bool, length: usize },
    Control { version: u16, kind: u16, last: bool, length: usize },
}

impl Header {
    /// `None` if it is not complete.
    fn parse(input: &[u8]) -> Option<Self> {
        let &[a, b, c, d, flags, e, f, g] = input.first_chunk::<HEADER>()?;
        let last = flags & FIN != 0;
        let length = usize::try_from(u32::from_be_bytes([0, e, f, g])).ok()?;
        Some(if a & 0x80 == 0 {
            Self::Data { stream: u32::from_be_bytes([a, b, c, d]), last, length }
        } else {
            let version = u16::from_be_bytes([a & 0x7f, b]);
            Self::Control { version, kind: u16::from_be_bytes([c, d]), last, length }
        })
    }
}

/// Takes the body of a control frame, once all of it is there.
fn control(input: &mut BytesMut, version: u16, length: usize) -> Result<Option<Bytes>, SpdyError> {
    if version != VERSION {
        return Err(SpdyError::Version(version));
    }
    if length > CONTROL_LIMIT {
        return Err(SpdyError::TooLong);
    }
    if input.len() < HEADER + length {
        return Ok(None);
    }
    input.advance(HEADER);
    Ok(Some(input.split_to(length).freeze()))
}

#[cfg(test)]
mod tests;
