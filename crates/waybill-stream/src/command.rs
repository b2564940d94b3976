//! Exec and attach: what the channels of a command mean, for both ends.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{
    channel::{ChannelEvent, ChannelReader, ProtocolError},
    outcome::Outcome,
    payload::Payload,
    protocol::Protocol,
    websocket::{Close, Role},
};

/// Written by the client.
pub const STDIN: u8 = 0;
/// Written by the server.
pub const STDOUT: u8 = 1;
/// Written by the server.
pub const STDERR: u8 = 2;
/// How it ended, by the server, once.
pub const ERROR: u8 = 3;
/// New sizes of the terminal, by the client.
pub const RESIZE: u8 = 4;

/// A message on the resize channel has about 30 bytes.
const RESIZE_BYTES: usize = 1024;

/// A status holds one text of ours or of another runtime.
const STATUS_BYTES: usize = 256 * 1024;

/// The streams that a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// The client writes to the process.
    pub stdin: bool,
    /// The client reads the process's output.
    pub stdout: bool,
    /// The client reads its errors. Not with a terminal.
    pub stderr: bool,
    /// The process has a terminal.
    pub tty: bool,
}

impl Streams {
    /// Where the server sends its first, empty message, which tells the client that it is heard.
    pub fn greeting_channel(self) -> u8 {
        match (self.stdout, self.stderr) {
            (true, _) => STDOUT,
            (false, true) => STDERR,
            (false, false) => ERROR,
        }
    }
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

impl TerminalSize {
    /// The message on the resize channel.
    pub fn to_message(self) -> Vec<u8> {
        // Two numbers have no way to fail.
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

/// What the other end of a command's session said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEvent {
    /// To the process, from the client.
    Stdin(Payload),
    /// The client has no more for the process.
    StdinEnd,
    /// The client's terminal has this size now.
    Resize(TerminalSize),
    /// From the process, to the client.
    Stdout(Payload),
    /// From the process, to the client.
    Stderr(Payload),
    /// The command ended. Nothing of the process follows.
    Ended(Outcome),
    /// To be answered.
    Ping(Bytes),
    /// A sign of life.
    Pong,
    /// The peer sends nothing more at all.
    Close(Option<Close>),
}

/// Finds the events of a command's session in the bytes of its connection.
#[derive(Debug)]
pub struct CommandReader {
    channels: ChannelReader,
    meanings: Meanings,
}

/// What messages on each channel mean at our end.
#[derive(Debug)]
struct Meanings {
    protocol: Protocol,
    role: Role,
    /// What is known of a message that counts only as a whole.
    collected: Vec<u8>,
}

impl CommandReader {
    /// For our end of a connection.
    pub fn new(protocol: Protocol, role: Role) -> Self {
        let channels = ChannelReader::new(protocol, role);
        Self { channels, meanings: Meanings { protocol, role, collected: Vec::new() } }
    }

    /// Takes the next event from `input`; `None` if more must arrive.
    ///
    /// What belongs to a stream that this end does not read is dropped, as other servers do: some
    /// clients send their keys whether or not they asked for standard input.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<CommandEvent>, ProtocolError> {
        self.channels.find(input, |event| self.meanings.of(event))
    }
}

impl Meanings {
    fn of(&mut self, event: ChannelEvent) -> Result<Option<CommandEvent>, ProtocolError> {
        Ok(match event {
            ChannelEvent::Data { channel, payload, last } => self.data(channel, payload, last)?,
            ChannelEvent::ChannelClosed(channel) => self.closed(channel)?,
            ChannelEvent::Ping(payload) => Some(CommandEvent::Ping(payload)),
            ChannelEvent::Pong => Some(CommandEvent::Pong),
            ChannelEvent::Close(close) => Some(CommandEvent::Close(close)),
        })
    }

    fn data(
        &mut self,
        channel: u8,
        payload: Payload,
        last: bool,
    ) -> Result<Option<CommandEvent>, ProtocolError> {
        let is_empty = payload.is_empty();
        let some = |event| Ok((!is_empty).then_some(event));
        match (self.role, channel) {
            (Role::Server, STDIN) => some(CommandEvent::Stdin(payload)),
            (Role::Client, STDOUT) => some(CommandEvent::Stdout(payload)),
            (Role::Client, STDERR) => some(CommandEvent::Stderr(payload)),
            (Role::Server, RESIZE) => {
                let message = self.collect(channel, &payload, last, RESIZE_BYTES)?;
                message.filter(|message| !message.is_empty()).map(|text| resize(&text)).transpose()
            }
            (Role::Client, ERROR) => {
                let message = self.collect(channel, &payload, last, STATUS_BYTES)?;
                let message = message.filter(|message| !message.is_empty());
                let outcome = message.map(|text| Outcome::from_message(&text, self.protocol));
                Ok(outcome.transpose()?.map(CommandEvent::Ended))
            }
            (Role::Server, STDOUT | STDERR | ERROR) | (Role::Client, STDIN | RESIZE) => Ok(None),
            (_, unknown) => Err(ProtocolError::UnknownChannel(unknown)),
        }
    }

    fn closed(&self, channel: u8) -> Result<Option<CommandEvent>, ProtocolError> {
        match (self.role, channel) {
            (Role::Server, STDIN) => Ok(Some(CommandEvent::StdinEnd)),
            (_, STDIN..=RESIZE) => Ok(None),
            (_, unknown) => Err(ProtocolError::UnknownChannel(unknown)),
        }
    }

    /// The whole message, once its last part is there.
    fn collect(
        &mut self,
        channel: u8,
        part: &[u8],
        last: bool,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, ProtocolError> {
        if self.collected.len() + part.len() > limit {
            return Err(ProtocolError::TooLong { channel, limit });
        }
        self.collected.extend_from_slice(part);
        Ok(last.then(|| std::mem::take(&mut self.collected)))
    }
}

/// The last size in `message`; upstream reads a stream of them, so one message may hold several.
fn resize(message: &[u8]) -> Result<CommandEvent, ProtocolError> {
    let sizes = serde_json::Deserializer::from_slice(message).into_iter::<TerminalSize>();
    let mut last = None;
    for size in sizes {
        last = Some(size.map_err(|_| ProtocolError::Resize)?);
    }
    last.map(CommandEvent::Resize).ok_or(ProtocolError::Resize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::testing::sent_to;

    /// What our end makes of the other's messages, each a channel and a payload.
    fn read(
        protocol: Protocol,
        role: Role,
        messages: &[(u8, &[u8])],
    ) -> Result<Vec<CommandEvent>, ProtocolError> {
        let mut reader = CommandReader::new(protocol, role);
        let mut input = sent_to(role, protocol, messages);
        std::iter::from_fn(|| reader.next(&mut input).transpose()).collect()
    }

    fn payload(bytes: &'static [u8]) -> Payload {
        Bytes::from_static(bytes).into()
    }

    fn size(width: u16, height: u16) -> CommandEvent {
        CommandEvent::Resize(TerminalSize { width, height })
    }

    #[test]
    fn a_server_hears_stdin_and_sizes() {
        let messages: &[(u8, &[u8])] =
            &[(0, b"in"), (4, br#"{"Width":80,"Height":24}"#), (255, &[0])];
        assert_eq!(
            read(Protocol::V5, Role::Server, messages),
            Ok(vec![CommandEvent::Stdin(payload(b"in")), size(80, 24), CommandEvent::StdinEnd])
        );
    }

    #[test]
    fn a_client_hears_output_and_the_end() {
        let status = Outcome::Exit(2).to_message(Protocol::V4Base64).unwrap();
        let messages: &[(u8, &[u8])] = &[(1, b""), (1, b"out"), (2, b"err"), (3, &status)];
        assert_eq!(
            read(Protocol::V4Base64, Role::Client, messages),
            Ok(vec![
                CommandEvent::Stdout(payload(b"out")),
                CommandEvent::Stderr(payload(b"err")),
                CommandEvent::Ended(Outcome::Exit(2)),
            ])
        );
    }

    #[test]
    fn streams_nobody_reads_are_dropped_and_unknown_ones_refused() {
        let dropped =
            read(Protocol::V5, Role::Server, &[(1, b"x"), (2, b"x"), (3, b"x"), (0, b"")]);
        assert_eq!(dropped, Ok(Vec::new()));
        assert_eq!(read(Protocol::V5, Role::Server, &[(255, &[4])]), Ok(Vec::new()));
        let unknown = Err(ProtocolError::UnknownChannel(5));
        assert_eq!(read(Protocol::V5, Role::Server, &[(5, b"x")]), unknown);
        assert_eq!(read(Protocol::V5, Role::Server, &[(255, &[5])]), unknown);
    }

    #[test]
    fn sizes_must_be_sizes() {
        let check = |message: &[u8], expected| {
            assert_eq!(read(Protocol::V4, Role::Server, &[(4, message)]), expected);
        };
        check(b"{\"Width\":1,\"Height\":2}\n{\"Width\":3,\"Height\":4}\n", Ok(vec![size(3, 4)]));
        check(b"", Ok(Vec::new()));
        check(b"{\"Width\":65536,\"Height\":2}", Err(ProtocolError::Resize));
        check(b"{\"Width\":80}", Err(ProtocolError::Resize));
        check(b" ", Err(ProtocolError::Resize));
        let long = vec![b' '; RESIZE_BYTES + 1];
        check(&long, Err(ProtocolError::TooLong { channel: 4, limit: RESIZE_BYTES }));
        let message = TerminalSize { width: 80, height: 24 }.to_message();
        assert_eq!(message, br#"{"Width":80,"Height":24}"#);
    }

    #[test]
    fn the_greeting_is_on_the_lowest_channel_that_is_written() {
        let streams = Streams { stdout: true, stderr: true, ..Streams::default() };
        assert_eq!(streams.greeting_channel(), STDOUT);
        assert_eq!(Streams { stdout: false, ..streams }.greeting_channel(), STDERR);
        assert_eq!(Streams::default().greeting_channel(), ERROR);
    }
}
