//! Messages as the other end sends them.

use bytes::BytesMut;

use super::Outgoing;
use crate::{protocol::Protocol, websocket::Role};

/// What arrives at our end for these messages, each a channel and a payload.
pub(crate) fn sent_to(role: Role, protocol: Protocol, messages: &[(u8, &[u8])]) -> BytesMut {
    let other = if role == Role::Server { Role::Client } else { Role::Server };
    let mut input = BytesMut::new();
    for (channel, payload) in messages {
        let mut outgoing = Outgoing::copy_of(payload);
        input.extend_from_slice(outgoing.seal((protocol, other), *channel, payload.len()));
    }
    input
}
