//! WebSocket frames and the channels in them, from either end, however the connection cuts them.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use waybill_stream::{
    channel::{ChannelEvent, ChannelReader, ProtocolError},
    protocol::Protocol,
    websocket::Role,
};

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (choice, cut, bytes) = input;
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let protocols = Protocol::COMMAND;
    let protocol = protocols[usize::from(choice >> 1) % protocols.len()];
    let whole = read(protocol, role, bytes, bytes.len().max(1));
    let pieces = read(protocol, role, bytes, usize::from(cut).max(1));
    assert_eq!(whole.0, pieces.0);
    // A fault in a message that has not ended may be seen sooner in small pieces.
    if let (Some(whole), Some(pieces)) = (whole.1, pieces.1) {
        assert_eq!(whole, pieces);
    }
});

/// The events with the parts of messages joined, and what ended them.
type Found = (Vec<(u8, Vec<u8>)>, Option<ProtocolError>);

fn read(protocol: Protocol, role: Role, bytes: &[u8], cut: usize) -> Found {
    let mut reader = ChannelReader::new(protocol, role);
    let (mut found, mut open, mut input) = (Vec::new(), false, BytesMut::new());
    for part in bytes.chunks(cut) {
        input.extend_from_slice(part);
        loop {
            match reader.next(&mut input) {
                Ok(Some(event)) => add(&mut found, &mut open, event),
                Ok(None) => break,
                // How much of a message is handed on before its fault is a matter of cuts.
                Err(error) => {
                    if open {
                        found.pop();
                    }
                    return (found, Some(error));
                }
            }
        }
        // What is kept is less than a header and a control frame.
        assert!(input.len() < 14 + 125);
    }
    if open {
        found.pop();
    }
    (found, None)
}

fn add(found: &mut Vec<(u8, Vec<u8>)>, open: &mut bool, event: ChannelEvent) {
    match event {
        ChannelEvent::Data { channel, payload, last } => {
            match found.last_mut().filter(|_| *open) {
                Some((_, message)) => message.extend_from_slice(&payload),
                None => found.push((channel, payload.to_vec())),
            }
            *open = !last;
        }
        ChannelEvent::ChannelClosed(_)
        | ChannelEvent::Ping(_)
        | ChannelEvent::Pong
        | ChannelEvent::Close(_) => {}
    }
}
