//! What is sealed is read, and what is wrong is refused.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::{
    protocol::Protocol,
    websocket::{Opcode, Role, write},
};

/// What a server makes of a client's messages.
fn read(protocol: Protocol, messages: &[&[u8]]) -> Result<Vec<ChannelEvent>, ProtocolError> {
    let mut reader = ChannelReader::new(protocol, Role::Client);
    let mut input = BytesMut::new();
    for message in messages {
        let (header, start) = write::header(Opcode::Binary, message.len(), None);
        input.extend_from_slice(&header[start..]);
        input.extend_from_slice(message);
    }
    std::iter::from_fn(|| reader.next(&mut input).transpose()).collect()
}

fn data(channel: u8, bytes: &'static [u8]) -> ChannelEvent {
    ChannelEvent::Data { channel, payload: Bytes::from_static(bytes).into(), last: true }
}

#[test]
fn the_first_byte_names_the_channel() {
    let found = read(Protocol::V4, &[b"\0in", b"\x02", b"", b"\xffx"]);
    assert_eq!(found, Ok(vec![data(0, b"in"), data(2, b""), data(255, b"x")]));
}

#[test]
fn base64_protocols_have_a_digit_and_text() {
    let found = read(Protocol::V4Base64, &[b"0aW4=", b"4", b"0aW4"]);
    assert_eq!(found, Ok(vec![data(0, b"in"), data(4, b""), data(0, b"in")]));
    assert_eq!(read(Protocol::V4Base64, &[b"0a-4="]), Err(ProtocolError::Base64(0)));
    assert_eq!(read(Protocol::Base64Channel, &[b"\0aW4="]), Err(ProtocolError::NotADigit));
}

#[test]
fn v5_closes_channels_with_two_bytes() {
    assert_eq!(read(Protocol::V5, &[b"\xff\0"]), Ok(vec![ChannelEvent::ChannelClosed(0)]));
    assert_eq!(read(Protocol::V5, &[b"\xff"]), Err(ProtocolError::CloseChannel));
    assert_eq!(read(Protocol::V5, &[b"\xff\0\0"]), Err(ProtocolError::CloseChannel));
}

#[test]
fn errors_become_close_codes_without_quoting() {
    let close = ProtocolError::from(FrameError::Mask).to_close();
    assert_eq!(close.code, Close::PROTOCOL);
    assert_eq!(ProtocolError::Base64(0).to_close().code, Close::CONTENT);
    assert_eq!(ProtocolError::TooLong { channel: 4, limit: 1 }.to_close().code, Close::TOO_LONG);
}

fn any_protocol() -> impl Strategy<Value = Protocol> {
    prop::sample::select(Protocol::COMMAND)
}

proptest! {
    /// What is sealed is read, whatever the protocol and however the connection cuts it.
    #[test]
    fn what_is_sent_is_received(
        protocol in any_protocol(),
        messages in prop::collection::vec((0_u8..5, prop::collection::vec(any::<u8>(), 0..400)), 0..6),
        cuts in prop::collection::vec(1_usize..300, 1..9),
    ) {
        let mut wire = Vec::new();
        for (channel, payload) in &messages {
            let mut outgoing = Outgoing::copy_of(payload);
            wire.extend_from_slice(outgoing.seal((protocol, Role::Client), *channel, payload.len()));
        }
        let mut reader = ChannelReader::new(protocol, Role::Server);
        let (mut found, mut current, mut input) = (Vec::new(), Vec::new(), BytesMut::new());
        let mut cuts = cuts.iter().cycle();
        while !wire.is_empty() {
            let cut = (*cuts.next().unwrap()).min(wire.len());
            input.extend_from_slice(&wire[..cut]);
            wire.drain(..cut);
            while let Some(event) = reader.next(&mut input).unwrap() {
                let ChannelEvent::Data { channel, payload, last } = event else { panic!("{event:?}") };
                current.extend_from_slice(&payload);
                if last {
                    found.push((channel, std::mem::take(&mut current)));
                }
            }
        }
        prop_assert_eq!(found, messages);
    }
}
