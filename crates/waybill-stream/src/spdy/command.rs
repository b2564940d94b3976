//! Exec and attach over SPDY: one stream of the connection for each of the command's.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header::HeaderName};

use super::{
    SpdyError, StreamId,
    read::{SpdyEvent, SpdyReader},
};
use crate::{
    channel::ProtocolError,
    command::{CommandEvent, ERROR, RESIZE, STDERR, STDIN, STDOUT, Streams, TerminalSize},
    connection::EventReader,
    protocol::Protocol,
    websocket::handshake::tokens,
};

/// Where a client names the versions that it speaks, and a server the one it chose.
pub const VERSION_HEADER: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Where a server names its own, if there is none in common.
pub const ACCEPTED_HEADER: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");

/// Says what a stream is for.
pub const STREAM_TYPE: HeaderName = HeaderName::from_static("streamtype");

/// A message on the resize stream has about 30 bytes.
const RESIZE_BYTES: usize = 1024;

/// A version of the remote command protocol over SPDY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpdyVersion {
    /// `channel.k8s.io`
    V1,
    /// `v2.channel.k8s.io`
    V2,
    /// `v3.channel.k8s.io`: terminals can be resized.
    V3,
    /// `v4.channel.k8s.io`: the error stream carries a `Status`.
    V4,
}

impl SpdyVersion {
    /// The newest first.
    pub const ALL: &[Self] = &[Self::V4, Self::V3, Self::V2, Self::V1];

    /// The name in the header.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "channel.k8s.io",
            Self::V2 => "v2.channel.k8s.io",
            Self::V3 => "v3.channel.k8s.io",
            Self::V4 => "v4.channel.k8s.io",
        }
    }

    /// The first that the client named and we speak; `None` if there is none.
    pub fn choose(headers: &HeaderMap) -> Option<Self> {
        let find = |name| Self::ALL.iter().copied().find(|version| version.name() == name);
        tokens(headers, &VERSION_HEADER).find_map(find)
    }

    /// The protocol over channels that says the same on its error channel.
    pub fn protocol(self) -> Protocol {
        if self == Self::V4 { Protocol::V4 } else { Protocol::Channel }
    }

    fn resizes(self) -> bool {
        matches!(self, Self::V3 | Self::V4)
    }
}

/// The streams of a connection by the channels they stand for.
pub type ChannelStreams = [Option<StreamId>; 5];

/// Waits for the streams that a command needs.
#[derive(Debug)]
pub struct Gathering {
    wanted: Vec<u8>,
    found: ChannelStreams,
}

impl Gathering {
    /// For these streams: the error stream always, and with a terminal the one for its size.
    pub fn new(streams: Streams, version: SpdyVersion) -> Self {
        let wanted = [
            (ERROR, true),
            (STDIN, streams.stdin),
            (STDOUT, streams.stdout),
            (STDERR, streams.stderr),
            (RESIZE, streams.tty && version.resizes()),
        ];
        let wanted = wanted.iter().filter(|(_, wanted)| *wanted).map(|(channel, _)| *channel);
        Self { wanted: wanted.collect(), found: ChannelStreams::default() }
    }

    /// Takes note of a stream that was opened.
    pub fn add(&mut self, stream: StreamId, headers: &HeaderMap) -> Result<(), SpdyError> {
        let channel = match headers.get(&STREAM_TYPE).map(|value| value.as_bytes()) {
            Some(b"error") => ERROR,
            Some(b"stdin") => STDIN,
            Some(b"stdout") => STDOUT,
            Some(b"stderr") => STDERR,
            Some(b"resize") => RESIZE,
            _ => return Err(SpdyError::StreamType),
        };
        let place = self.found.get_mut(usize::from(channel)).ok_or(SpdyError::StreamType)?;
        match place.replace(stream) {
            None => Ok(()),
            Some(_) => Err(SpdyError::StreamType),
        }
    }

    /// All streams, once those that are wanted are there.
    pub fn complete(&self) -> Option<ChannelStreams> {
        let has = |channel: &u8| self.found.get(usize::from(*channel)).is_some_and(Option::is_some);
        self.wanted.iter().all(has).then_some(self.found)
    }
}

/// Finds the events of a command's session in the bytes of its connection.
pub struct SpdyCommandReader {
    frames: SpdyReader,
    streams: ChannelStreams,
    /// The stream of sizes, as far as it has no whole size yet.
    sizes: Vec<u8>,
    /// What was found and not told yet.
    found: VecDeque<CommandEvent>,
}

impl SpdyCommandReader {
    /// For a connection whose streams are open.
    pub fn new(frames: SpdyReader, streams: ChannelStreams) -> Self {
        Self { frames, streams, sizes: Vec::new(), found: VecDeque::new() }
    }

    fn event(&mut self, event: SpdyEvent) -> Result<Option<CommandEvent>, ProtocolError> {
        let is =
            |channel: u8, stream| self.streams.get(usize::from(channel)) == Some(&Some(stream));
        Ok(match event {
            SpdyEvent::Data { stream, payload } if is(STDIN, stream) => {
                Some(CommandEvent::Stdin(payload))
            }
            SpdyEvent::Data { stream, payload } if is(RESIZE, stream) => {
                self.resize(&payload)?;
                self.found.pop_front()
            }
            SpdyEvent::Finished(stream) | SpdyEvent::Reset(stream) if is(STDIN, stream) => {
                Some(CommandEvent::StdinEnd)
            }
            SpdyEvent::Ping(number) if number % 2 == 1 => {
                Some(CommandEvent::Ping(Bytes::copy_from_slice(&number.to_be_bytes())))
            }
            SpdyEvent::Ping(_) => Some(CommandEvent::Pong),
            SpdyEvent::GoAway => Some(CommandEvent::Close(None)),
            SpdyEvent::Opened { .. } => return Err(SpdyError::StreamType.into()),
            SpdyEvent::Data { .. } | SpdyEvent::Finished(_) | SpdyEvent::Reset(_) => None,
        })
    }

    fn resize(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.sizes.extend_from_slice(bytes);
        let mut sizes =
            serde_json::Deserializer::from_slice(&self.sizes).into_iter::<TerminalSize>();
        let mut used = 0;
        loop {
            match sizes.next() {
                None => break,
                Some(Ok(size)) => self.found.push_back(CommandEvent::Resize(size)),
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(_)) => return Err(ProtocolError::Resize),
            }
            used = sizes.byte_offset();
        }
        self.sizes.drain(..used);
        if self.sizes.len() > RESIZE_BYTES {
            return Err(ProtocolError::TooLong { channel: RESIZE, limit: RESIZE_BYTES });
        }
        Ok(())
    }
}

impl EventReader for SpdyCommandReader {
    type Event = CommandEvent;

    fn next(&mut self, input: &mut BytesMut) -> Result<Option<CommandEvent>, ProtocolError> {
        if let Some(event) = self.found.pop_front() {
            return Ok(Some(event));
        }
        while let Some(event) = self.frames.next(input)? {
            if let Some(event) = self.event(event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn is_close(event: &CommandEvent) -> bool {
        matches!(event, CommandEvent::Close(_))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::spdy::write;

    const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };

    fn headers(name: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(STREAM_TYPE, HeaderValue::from_static(name))])
    }

    #[test]
    fn the_clients_first_version_that_is_known_is_chosen() {
        let choose = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(VERSION_HEADER, value.parse().unwrap());
            }
            SpdyVersion::choose(&headers)
        };
        assert_eq!(choose(&["v5.channel.k8s.io", "v4.channel.k8s.io"]), Some(SpdyVersion::V4));
        assert_eq!(choose(&["v3.channel.k8s.io, channel.k8s.io"]), Some(SpdyVersion::V3));
        assert_eq!(choose(&["v5.channel.k8s.io"]), None);
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn all_streams_are_waited_for() {
        let mut gathering = Gathering::new(Streams { tty: true, ..ALL }, SpdyVersion::V4);
        for (stream, name) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
            gathering.add(stream, &headers(name)).unwrap();
            assert_eq!(gathering.complete(), None);
        }
        gathering.add(9, &headers("resize")).unwrap();
        assert_eq!(gathering.complete(), Some([Some(3), Some(5), Some(7), Some(1), Some(9)]));

        let gathering = Gathering::new(Streams { tty: true, ..ALL }, SpdyVersion::V2);
        assert!(!gathering.wanted.contains(&RESIZE), "before v3 no terminal is resized");
    }

    #[test]
    fn a_stream_of_no_use_is_refused() {
        let mut gathering = Gathering::new(ALL, SpdyVersion::V4);
        gathering.add(1, &headers("error")).unwrap();
        for name in ["error", "data", ""] {
            assert_eq!(gathering.add(3, &headers(name)), Err(SpdyError::StreamType));
        }
        assert_eq!(gathering.add(3, &HeaderMap::new()), Err(SpdyError::StreamType));
    }

    #[test]
    fn streams_become_events() {
        let streams = [Some(3), Some(5), None, Some(1), Some(9)];
        let mut reader = SpdyCommandReader::new(SpdyReader::new(), streams);
        let data = |stream, bytes: &[u8], last| {
            [&write::data_header(stream, bytes.len(), last), bytes].concat()
        };
        let wire = [
            data(9, br#"{"Width":1,"Height":2}{"Width":3,"#, false),
            data(9, b"\"Height\":4}\n", false),
            data(3, b"in", true),
            data(5, b"dropped", true),
            write::ping(1),
            write::ping(2),
            write::go_away(0),
        ];
        let mut input = BytesMut::from(&wire.concat()[..]);
        let found: Result<Vec<_>, _> =
            std::iter::from_fn(|| reader.next(&mut input).transpose()).collect();
        let size = |width, height| CommandEvent::Resize(TerminalSize { width, height });
        let expected = vec![
            size(1, 2),
            size(3, 4),
            CommandEvent::Stdin(Bytes::from_static(b"in").into()),
            CommandEvent::StdinEnd,
            CommandEvent::Ping(Bytes::from_static(&[0, 0, 0, 1])),
            CommandEvent::Pong,
            CommandEvent::Close(None),
        ];
        assert_eq!(found, Ok(expected));
        let mut input = BytesMut::from(&data(9, b"{wide}", false)[..]);
        assert_eq!(reader.next(&mut input), Err(ProtocolError::Resize));
    }
}
