//! Exec, attach and port-forward sessions, as either end hears them.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use waybill_stream::{
    channel::Outgoing,
    command::CommandReader,
    connection::EventReader,
    forward::ForwardReader,
    outcome::Outcome,
    protocol::Protocol,
    websocket::Role,
};

fuzz_target!(|input: (u8, Vec<(u8, Vec<u8>)>)| {
    let (choice, messages) = input;
    let (ours, theirs) = match choice & 1 {
        0 => (Role::Server, Role::Client),
        _ => (Role::Client, Role::Server),
    };
    let protocols = Protocol::COMMAND;
    let protocol = protocols[usize::from(choice >> 1) % protocols.len()];
    let mut wire = BytesMut::new();
    for (channel, payload) in &messages {
        // The last digit that base64 protocols can write.
        let channel = if protocol.is_base64() { channel % 79 } else { *channel };
        let mut outgoing = Outgoing::copy_of(payload);
        wire.extend_from_slice(outgoing.seal((protocol, theirs), channel, payload.len()));
        if let Ok(outcome) = Outcome::from_message(payload, protocol)
            && let Some(message) = outcome.to_message(protocol)
        {
            assert!(Outcome::from_message(&message, protocol).is_ok());
        }
    }
    drain(CommandReader::new(protocol, ours), wire.clone());
    drain(ForwardReader::new(protocol, ours, &[80, 443]), wire);
});

fn drain(mut reader: impl EventReader, mut wire: BytesMut) {
    while let Ok(Some(_)) = reader.next(&mut wire) {}
}
