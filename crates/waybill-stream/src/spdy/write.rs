//! Frames that are sent.

use super::{FIN, StreamId, VERSION, header_block::empty_block, kind};

/// The header of a frame of `length` bytes of data.
pub(crate) fn data_header(stream: StreamId, length: usize, last: bool) -> [u8; 8] {
    let [a, b, c, d] = stream.to_be_bytes();
    // What is sent is read in pieces of far less than the 16 MiB that fit.
    let [_, e, f, g] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c, d, if last { FIN } else { 0 }, e, f, g]
}

/// The answer to a stream that was opened; `is_first` for the first of a connection.
pub fn reply(stream: StreamId, is_first: bool) -> Vec<u8> {
    control(kind::SYN_REPLY, &[&stream.to_be_bytes()[..], &empty_block(is_first)].concat())
}

/// Says that nothing follows on a stream.
pub fn finish(stream: StreamId) -> Vec<u8> {
    data_header(stream, 0, true).to_vec()
}

/// Refuses or abandons a stream.
pub fn reset(stream: StreamId) -> Vec<u8> {
    /// The status for a stream that is not wanted.
    const REFUSED: u32 = 3;
    control(kind::RST_STREAM, &[stream.to_be_bytes(), REFUSED.to_be_bytes()].concat())
}

/// Answers a ping.
pub fn ping(number: u32) -> Vec<u8> {
    control(kind::PING, &number.to_be_bytes())
}

/// Says that no stream after `last` is served, and that all is well.
pub fn go_away(last: StreamId) -> Vec<u8> {
    control(kind::GOAWAY, &[last.to_be_bytes(), 0_u32.to_be_bytes()].concat())
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut frame = (0x8000 | VERSION).to_be_bytes().to_vec();
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}
