//! SPDY frames and their compressed headers, however the connection cuts them.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use waybill_stream::{
    connection::EventReader,
    spdy::{
        SpdyError,
        command::SpdyCommandReader,
        read::{SpdyEvent, SpdyReader},
    },
};

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let whole = read(bytes, bytes.len().max(1));
    let pieces = read(bytes, usize::from(cut).max(1));
    assert_eq!(whole, pieces);

    let streams = [Some(1), Some(3), Some(5), Some(7), Some(9)];
    let mut command = SpdyCommandReader::new(SpdyReader::new(), streams);
    let mut input = BytesMut::from(bytes);
    while let Ok(Some(_)) = command.next(&mut input) {}
});

/// The events without data, which depends on the cuts, the length of all data, and the end.
fn read(bytes: &[u8], cut: usize) -> (Vec<SpdyEvent>, usize, Option<SpdyError>) {
    let mut reader = SpdyReader::new();
    let (mut found, mut length, mut input) = (Vec::new(), 0, BytesMut::new());
    for part in bytes.chunks(cut) {
        input.extend_from_slice(part);
        loop {
            match reader.next(&mut input) {
                Ok(Some(SpdyEvent::Data { payload, .. })) => length += payload.len(),
                Ok(Some(event)) => found.push(event),
                Ok(None) => break,
                Err(error) => return (found, length, Some(error)),
            }
        }
    }
    (found, length, None)
}
