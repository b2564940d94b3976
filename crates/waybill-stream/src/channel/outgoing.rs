//! A buffer whose content becomes a message where it stands.

use base64::Engine;

use super::{CLOSE_CHANNEL, base64_text::BASE64};
use crate::{
    protocol::Protocol,
    spdy::{StreamId, write::data_header},
    websocket::{
        Opcode, Role,
        write::{HEADER_BYTES, header, mask_for},
    },
};

/// Room for a payload, and before it room for the header and the channel. So what was read from a
/// process is sent without being moved.
pub struct Outgoing {
    buffer: Vec<u8>,
    /// For base64, which cannot be written in place.
    text: Vec<u8>,
}

/// The header and the channel's byte.
const FRONT: usize = HEADER_BYTES + 1;

impl Outgoing {
    /// With room for a payload of `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { buffer: vec![0; FRONT + capacity], text: Vec::new() }
    }

    /// Holds a copy of `payload`.
    pub fn copy_of(payload: &[u8]) -> Self {
        let mut outgoing = Self::with_capacity(payload.len());
        outgoing.space().copy_from_slice(payload);
        outgoing
    }

    /// Where the payload is put.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.get_mut(FRONT..).unwrap_or_default()
    }

    /// The frame of a message that holds the first `length` bytes of the space. The space holds
    /// nothing useful after that.
    pub fn seal(
        &mut self,
        (protocol, role): (Protocol, Role),
        channel: u8,
        length: usize,
    ) -> &[u8] {
        let end = FRONT.saturating_add(length).min(self.buffer.len());
        if protocol.is_base64() {
            self.seal_text(role, channel, end)
        } else {
            let front = FRONT - 1;
            if let Some(place) = self.buffer.get_mut(front) {
                *place = channel;
            }
            seal(&mut self.buffer, (front, end), Opcode::Binary, role)
        }
    }

    /// The frame of SPDY that holds the first `length` bytes of the space.
    pub(crate) fn seal_spdy(&mut self, stream: StreamId, length: usize) -> &[u8] {
        let header = data_header(stream, length, false);
        let start = FRONT - header.len();
        if let Some(place) = self.buffer.get_mut(start..FRONT) {
            place.copy_from_slice(&header);
        }
        let end = FRONT.saturating_add(length).min(self.buffer.len());
        self.buffer.get(start..end).unwrap_or_default()
    }

    fn seal_text(&mut self, role: Role, channel: u8, end: usize) -> &[u8] {
        let payload = self.buffer.get(FRONT..end).unwrap_or_default();
        let longest = FRONT + payload.len().div_ceil(3) * 4;
        if self.text.len() < longest {
            self.text.resize(longest, 0);
        }
        let space = self.text.get_mut(FRONT..).unwrap_or_default();
        let length = BASE64.encode_slice(payload, space).unwrap_or(0);
        if let Some(place) = self.text.get_mut(FRONT - 1) {
            *place = channel.saturating_add(b'0');
        }
        seal(&mut self.text, (FRONT - 1, FRONT + length), Opcode::Text, role)
    }
}

/// The frame that closes `channel`; `None` where the protocol has no such thing.
pub(crate) fn close_channel(protocol: Protocol, role: Role, channel: u8) -> Option<Vec<u8>> {
    let mut outgoing = Outgoing::copy_of(&[channel]);
    protocol.closes_channels().then(|| outgoing.seal((protocol, role), CLOSE_CHANNEL, 1).to_vec())
}

/// Puts the header before `buffer[start..end]` and masks it if need be.
fn seal(buffer: &mut [u8], (start, end): (usize, usize), opcode: Opcode, role: Role) -> &[u8] {
    let mut mask = mask_for(role);
    let (header, header_start) = header(opcode, end - start, mask);
    let header = header.get(header_start..).unwrap_or_default();
    if let (Some(mask), Some(payload)) = (&mut mask, buffer.get_mut(start..end)) {
        mask.apply(payload);
    }
    let front = start.saturating_sub(header.len());
    if let Some(place) = buffer.get_mut(front..start) {
        place.copy_from_slice(header);
    }
    buffer.get(front..end).unwrap_or_default()
}
