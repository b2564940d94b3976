//! Frames that arrive.

use bytes::{Buf, Bytes, BytesMut};

use super::{CONTROL_BYTES, Close, Opcode, Role, mask::Mask};

/// Finds the frames in the bytes of a connection.
#[derive(Debug)]
pub struct FrameReader {
    role: Role,
    /// Between the first and the last frame of a message.
    in_message: bool,
    frame: Option<DataFrame>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A part of a message, text or binary.
    Piece(Piece),
    /// To be answered with a Pong of the same content.
    Ping(Bytes),
    /// The peer lives.
    Pong,
    /// The peer says nothing after this.
    Close(Option<Close>),
}

/// A part of a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it says, unmasked. May be empty.
    pub bytes: Bytes,
    /// Whether a message begins here.
    pub first: bool,
    /// Whether it ends here.
    pub last: bool,
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes, first, last } = self;
        write!(f, "Piece({} bytes, first: {first}, last: {last})", bytes.len())
    }
}

/// How a peer breaks the rules of RFC 6455.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Section 5.2: only extensions use these bits, and none was agreed on.
    #[error("a frame has reserved bits set")]
    ReservedBits,
    /// Section 5.2.
    #[error("a frame has the unknown opcode {0}")]
    Opcode(u8),
    /// Section 5.1: clients mask, servers do not.
    #[error("a frame from a client is not masked, or one from a server is")]
    Mask,
    /// Section 5.2: the shortest form, and no more than 63 bits.
    #[error("a frame's length is not in its shortest form, or impossible")]
    Length,
    /// Section 5.5.
    #[error("a control frame is longer than {CONTROL_BYTES} bytes or fragmented")]
    Control,
    /// Section 5.4.
    #[error("a message begins inside another, or goes on before it began")]
    Order,
    /// Sections 5.5.1 and 7.4.
    #[error("a Close frame has a body that means nothing")]
    Close,
}

/// The frame of a message whose payload is arriving.
#[derive(Debug)]
struct DataFrame {
    remaining: u64,
    mask: Option<Mask>,
    first: bool,
    last: bool,
}

impl FrameReader {
    /// For our end of a connection.
    pub fn new(role: Role) -> Self {
        Self { role, in_message: false, frame: None }
    }

    /// Takes the next frame, or the next part of one, from `input`; `None` if more must arrive.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if self.frame.is_none() {
            let Some(header) = Header::parse(input)? else { return Ok(None) };
            self.check_mask(&header)?;
            if header.opcode.is_control() {
                return header.control(input);
            }
            self.frame = Some(self.open(&header)?);
            input.advance(header.size);
        }
        Ok(self.piece(input).map(Frame::Piece))
    }

    /// Whether every byte so far belongs to a frame that is complete.
    pub fn is_between_messages(&self) -> bool {
        self.frame.is_none() && !self.in_message
    }

    fn check_mask(&self, header: &Header) -> Result<(), FrameError> {
        let must_be = self.role == Role::Server;
        if header.mask.is_some() == must_be { Ok(()) } else { Err(FrameError::Mask) }
    }

    fn open(&mut self, header: &Header) -> Result<DataFrame, FrameError> {
        let first = header.opcode != Opcode::Continuation;
        if first == self.in_message {
            return Err(FrameError::Order);
        }
        self.in_message = !header.last;
        Ok(DataFrame { remaining: header.length, mask: header.mask, first, last: header.last })
    }

    fn piece(&mut self, input: &mut BytesMut) -> Option<Piece> {
        let frame = self.frame.as_mut()?;
        let count = usize::try_from(frame.remaining).unwrap_or(usize::MAX).min(input.len());
        if count == 0 && frame.remaining > 0 {
            return None;
        }
        let mut bytes = input.split_to(count);
        if let Some(mask) = &mut frame.mask {
            mask.apply(&mut bytes);
        }
        frame.remaining = frame.remaining.saturating_sub(count.try_into().unwrap_or(u64::MAX));
        let ended = frame.remaining == 0;
        let piece = Piece { bytes: bytes.freeze(), first: frame.first, last: ended && frame.last };
        frame.first = false;
        if ended {
            self.frame = None;
        }
        Some(piece)
    }
}

struct Header {
    last: bool,
    opcode: Opcode,
    mask: Option<Mask>,
    length: u64,
    /// Of the header itself.
    size: usize,
}

impl Header {
    /// `None` if it is not complete.
    fn parse(input: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some((&[first, second], rest)) = input.split_first_chunk::<2>() else {
            return Ok(None);
        };
        if first & 0x70 != 0 {
            return Err(FrameError::ReservedBits);
        }
        let last = first & 0x80 != 0;
        let opcode = Opcode::parse(first & 0x0f).ok_or(FrameError::Opcode(first & 0x0f))?;
        let short = second & 0x7f;
        if opcode.is_control() && (!last || usize::from(short) > CONTROL_BYTES) {
            return Err(FrameError::Control);
        }
        let Some((length, rest)) = length(short, rest)? else { return Ok(None) };
        let (mask, rest) = if second & 0x80 == 0 {
            (None, rest)
        } else {
            let Some((&key, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            (Some(Mask::new(key)), rest)
        };
        Ok(Some(Self { last, opcode, mask, length, size: input.len() - rest.len() }))
    }

    /// Takes a control frame, once all of it is there.
    fn control(mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let length = usize::try_from(self.length).map_err(|_| FrameError::Control)?;
        if input.len() < self.size + length {
            return Ok(None);
        }
        input.advance(self.size);
        let mut bytes = input.split_to(length);
        if let Some(mask) = &mut self.mask {
            mask.apply(&mut bytes);
        }
        Ok(Some(match self.opcode {
            Opcode::Ping => Frame::Ping(bytes.freeze()),
            Opcode::Close => Frame::Close(close(&bytes)?),
            _ => Frame::Pong,
        }))
    }
}

/// The length, of which `short` is the first form, and what follows it.
fn length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, FrameError> {
    let (length, rest) = match short {
        126 => {
            let Some((bytes, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
            let length = u64::from(u16::from_be_bytes(*bytes));
            (if length < 126 { None } else { Some(length) }, rest)
        }
        127 => {
            let Some((bytes, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
            let length = u64::from_be_bytes(*bytes);
            let is_good = length > u64::from(u16::MAX) && length >> 63 == 0;
            (is_good.then_some(length), rest)
        }
        short => (Some(u64::from(short)), rest),
    };
    Ok(Some((length.ok_or(FrameError::Length)?, rest)))
}

/// The body of a Close frame: nothing, or a code and a reason.
fn close(payload: &[u8]) -> Result<Option<Close>, FrameError> {
    if payload.is_empty() {
        return Ok(None);
    }
    let (code, reason) = payload.split_first_chunk::<2>().ok_or(FrameError::Close)?;
    let code = u16::from_be_bytes(*code);
    let reason = str::from_utf8(reason).map_err(|_| FrameError::Close)?;
    // Section 7.4: 1004 to 1006 and 1015 are never sent.
    match code {
        1000..=1003 | 1007..=1014 | 3000..=4999 => {
            Ok(Some(Close { code, reason: reason.to_owned() }))
        }
        _ => Err(FrameError::Close),
    }
}

#[cfg(test)]
mod tests;
