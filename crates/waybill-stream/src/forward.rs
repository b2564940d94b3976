//! Port-forward over channels: two for each port, one for its bytes and one for what goes wrong.
//!
//! Both begin with the port's number from the server. Neither can be closed alone.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    channel::{ChannelEvent, ChannelReader, LAST_BASE64_CHANNEL, ProtocolError},
    payload::Payload,
    protocol::Protocol,
    websocket::{Close, Role},
};

/// An error of a port is one line.
const ERROR_BYTES: usize = 64 * 1024;

/// Two channels each, and 255 stands for something else in other protocols.
const PORTS: u8 = 127;
const BASE64_PORTS: u8 = LAST_BASE64_CHANNEL.div_ceil(2);

/// The channel of a port's bytes; `at` counts from 0 and is below [`most_ports`].
pub fn data_channel(at: u8) -> u8 {
    at.saturating_mul(2)
}

/// The channel of a port's errors.
pub fn error_channel(at: u8) -> u8 {
    data_channel(at).saturating_add(1)
}

/// How many ports one connection can have.
pub fn most_ports(protocol: Protocol) -> u8 {
    if protocol.is_base64() { BASE64_PORTS } else { PORTS }
}

/// What a channel begins with.
pub fn port_message(port: u16) -> [u8; 2] {
    port.to_le_bytes()
}

/// What the other end said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardEvent {
    /// Bytes of the connection to the port at this position.
    Data {
        /// Which port.
        at: u8,
        /// What.
        payload: Payload,
    },
    /// To a client: what went wrong with the port.
    Failed {
        /// Which port.
        at: u8,
        /// Why.
        reason: String,
    },
    /// To be answered.
    Ping(Bytes),
    /// A sign of life.
    Pong,
    /// The peer sends nothing more at all.
    Close(Option<Close>),
}

/// Finds the events of a port-forward session in the bytes of its connection.
#[derive(Debug)]
pub struct ForwardReader {
    channels: ChannelReader,
    meanings: Meanings,
}

/// What messages on each channel mean at our end.
#[derive(Debug)]
struct Meanings {
    role: Role,
    ports: Vec<Port>,
}

/// What is known of a port.
#[derive(Debug)]
struct Port {
    number: u16,
    data: Prelude,
    error: Prelude,
    /// The error that is arriving.
    text: Vec<u8>,
}

/// The number that a channel begins with, as far as it has arrived.
#[derive(Debug, Default)]
struct Prelude {
    first: Option<u8>,
    complete: bool,
}

impl ForwardReader {
    /// For our end of a connection, with the ports in the order of the request.
    pub fn new(protocol: Protocol, role: Role, ports: &[u16]) -> Self {
        let port = |&number| Port {
            number,
            data: Prelude::default(),
            error: Prelude::default(),
            text: Vec::new(),
        };
        let channels = ChannelReader::new(protocol, role);
        Self { channels, meanings: Meanings { role, ports: ports.iter().map(port).collect() } }
    }

    /// Takes the next event from `input`; `None` if more must arrive.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<ForwardEvent>, ProtocolError> {
        self.channels.find(input, |event| self.meanings.of(event))
    }
}

impl Meanings {
    fn of(&mut self, event: ChannelEvent) -> Result<Option<ForwardEvent>, ProtocolError> {
        Ok(match event {
            ChannelEvent::Data { channel, payload, last } => {
                self.data(channel, payload.into_bytes(), last)?
            }
            ChannelEvent::ChannelClosed(_) => None,
            ChannelEvent::Ping(payload) => Some(ForwardEvent::Ping(payload)),
            ChannelEvent::Pong => Some(ForwardEvent::Pong),
            ChannelEvent::Close(close) => Some(ForwardEvent::Close(close)),
        })
    }

    fn data(
        &mut self,
        channel: u8,
        mut bytes: Bytes,
        last: bool,
    ) -> Result<Option<ForwardEvent>, ProtocolError> {
        let (at, is_error) = (channel / 2, channel % 2 == 1);
        let port = self.ports.get_mut(usize::from(at));
        let port = port.ok_or(ProtocolError::UnknownChannel(channel))?;
        if self.role == Role::Client {
            let prelude = if is_error { &mut port.error } else { &mut port.data };
            prelude.take(&mut bytes, port.number).ok_or(ProtocolError::Port(channel))?;
        }
        match (is_error, self.role) {
            (false, _) => {
                Ok((!bytes.is_empty()).then(|| ForwardEvent::Data { at, payload: bytes.into() }))
            }
            // Clients have nothing to say here.
            (true, Role::Server) => Ok(None),
            (true, Role::Client) => port.failure(at, &bytes, last),
        }
    }
}

impl Port {
    fn failure(
        &mut self,
        at: u8,
        bytes: &[u8],
        last: bool,
    ) -> Result<Option<ForwardEvent>, ProtocolError> {
        if self.text.len() + bytes.len() > ERROR_BYTES {
            return Err(ProtocolError::TooLong { channel: error_channel(at), limit: ERROR_BYTES });
        }
        self.text.extend_from_slice(bytes);
        if !last || self.text.is_empty() {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        let reason = String::from_utf8_lossy(&text).into_owned();
        Ok(Some(ForwardEvent::Failed { at, reason }))
    }
}

impl Prelude {
    /// Takes the number from the front of a channel's bytes; `None` if it is another one.
    fn take(&mut self, bytes: &mut Bytes, number: u16) -> Option<()> {
        while !self.complete && !bytes.is_empty() {
            let byte = bytes.get_u8();
            match self.first {
                None => self.first = Some(byte),
                Some(first) => {
                    self.complete = true;
                    return (u16::from_le_bytes([first, byte]) == number).then_some(());
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::testing::sent_to;

    fn read(
        protocol: Protocol,
        role: Role,
        messages: &[(u8, &[u8])],
    ) -> Result<Vec<ForwardEvent>, ProtocolError> {
        let mut reader = ForwardReader::new(protocol, role, &[80, 8080]);
        let mut input = sent_to(role, protocol, messages);
        std::iter::from_fn(|| reader.next(&mut input).transpose()).collect()
    }

    fn data(at: u8, bytes: &'static [u8]) -> ForwardEvent {
        ForwardEvent::Data { at, payload: Bytes::from_static(bytes).into() }
    }

    #[test]
    fn a_server_hears_the_bytes_of_each_port() {
        let messages: &[(u8, &[u8])] = &[(0, b"a"), (2, b"b"), (1, b"dropped")];
        for protocol in [Protocol::V4, Protocol::V4Base64, Protocol::Unnamed] {
            let found = read(protocol, Role::Server, messages);
            assert_eq!(found, Ok(vec![data(0, b"a"), data(1, b"b")]));
        }
    }

    #[test]
    fn a_client_is_told_the_port_first() {
        let first = port_message(80);
        let second = port_message(8080);
        let messages: &[(u8, &[u8])] = &[
            (0, &first),
            (1, &first),
            (2, &second[..1]),
            (2, &second[1..]),
            (3, &second),
            (2, b"hello"),
            (1, b"refused"),
        ];
        let failed = ForwardEvent::Failed { at: 0, reason: "refused".to_owned() };
        let found = read(Protocol::V4, Role::Client, messages);
        assert_eq!(found, Ok(vec![data(1, b"hello"), failed]));
    }

    #[test]
    fn wrong_ports_and_channels_are_refused() {
        let found = read(Protocol::V4, Role::Client, &[(0, &port_message(81))]);
        assert_eq!(found, Err(ProtocolError::Port(0)));
        let found = read(Protocol::V4, Role::Server, &[(4, b"x")]);
        assert_eq!(found, Err(ProtocolError::UnknownChannel(4)));
    }

    #[test]
    fn every_port_has_channels_that_can_be_written() {
        assert_eq!(error_channel(most_ports(Protocol::V4) - 1), 253);
        assert_eq!(error_channel(most_ports(Protocol::V4Base64) - 1), LAST_BASE64_CHANNEL);
    }
}
