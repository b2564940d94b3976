//! Frames that are sent.

use super::{CONTROL_BYTES, Opcode, Role, mask::Mask};

/// The longest header.
pub const HEADER_BYTES: usize = 14;

/// The header of an unfragmented frame of `length` bytes, and where in the array it begins.
///
/// It stands at the array's end, so that a payload can follow it without a gap.
pub fn header(opcode: Opcode, length: usize, mask: Option<Mask>) -> ([u8; HEADER_BYTES], usize) {
    let mut builder = Backwards { bytes: [0; HEADER_BYTES], start: HEADER_BYTES };
    if let Some(mask) = mask {
        builder.put(&mask.key());
    }
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ 0..=125), _) => builder.put(&[masked | length]),
        (_, Ok(length)) => {
            builder.put(&length.to_be_bytes());
            builder.put(&[masked | 126]);
        }
        _ => {
            let length = u64::try_from(length).unwrap_or(u64::MAX);
            builder.put(&length.to_be_bytes());
            builder.put(&[masked | 127]);
        }
    }
    builder.put(&[0x80 | opcode.bits()]);
    (builder.bytes, builder.start)
}

/// A whole control frame; `payload` is cut to what one may carry.
pub fn control(role: Role, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let payload = payload.get(..CONTROL_BYTES).unwrap_or(payload);
    let mut mask = mask_for(role);
    let (header, start) = header(opcode, payload.len(), mask);
    let mut frame = header.get(start..).unwrap_or_default().to_vec();
    let mut payload = payload.to_vec();
    if let Some(mask) = &mut mask {
        mask.apply(&mut payload);
    }
    frame.append(&mut payload);
    frame
}

/// A fresh mask, if our end must mask.
pub fn mask_for(role: Role) -> Option<Mask> {
    match role {
        Role::Server => None,
        Role::Client => {
            let mut key = [0; 4];
            // A kernel without randomness does not get this far. If it did, the mask would only be
            // guessable, which matters to scripts in browsers alone.
            let _ = getrandom::fill(&mut key);
            Some(Mask::new(key))
        }
    }
}

struct Backwards {
    bytes: [u8; HEADER_BYTES],
    start: usize,
}

impl Backwards {
    fn put(&mut self, part: &[u8]) {
        let end = self.start;
        self.start = end.saturating_sub(part.len());
        if let Some(place) = self.bytes.get_mut(self.start..end) {
            place.copy_from_slice(part);
        }
    }
}
