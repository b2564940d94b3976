//! The sending half of a session, which several streams share.

use std::{
    io,
    sync::{Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{self, Notify},
};

use super::Traffic;
use crate::{
    channel::{Outgoing, close_channel},
    protocol::Protocol,
    spdy::{self, StreamId, command::ChannelStreams},
    websocket::{Close, Opcode, Role, write::control},
};

/// The sending half of a session. Whoever has something to send waits for its turn, in order.
pub struct Sender<W> {
    wire: sync::Mutex<Wire<W>>,
    form: Form,
    /// The answer to the last ping. Older ones need none (RFC 6455, section 5.5.3).
    pong: Mutex<Option<Bytes>>,
    wanted: Notify,
    traffic: Traffic,
}

/// Why something was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[source] io::Error),
    /// A sender was dropped in the middle of a frame, so nothing can follow it.
    #[error("an earlier frame was not sent completely")]
    Torn,
    /// We said that nothing follows.
    #[error("the session is closed")]
    Closed,
}

/// How streams are told apart.
enum Form {
    Channels {
        protocol: Protocol,
        role: Role,
    },
    /// By streams, which stand for channels once they are known.
    Spdy {
        channels: OnceLock<ChannelStreams>,
    },
}

struct Wire<W> {
    io: W,
    state: State,
}

/// A server's pings have even numbers.
const OUR_PING: u32 = 2;

#[derive(Clone, Copy)]
enum State {
    Open,
    InFrame,
    Closed,
}

impl<W: AsyncWrite + Unpin> Sender<W> {
    /// Writes channels over WebSocket to `io` from now on.
    pub fn new(io: W, protocol: Protocol, role: Role, traffic: Traffic) -> Self {
        Self::with(io, Form::Channels { protocol, role }, traffic)
    }

    /// Writes streams of SPDY to `io` from now on, as a server.
    pub fn spdy(io: W, traffic: Traffic) -> Self {
        Self::with(io, Form::Spdy { channels: OnceLock::new() }, traffic)
    }

    fn with(io: W, form: Form, traffic: Traffic) -> Self {
        Self {
            wire: sync::Mutex::new(Wire { io, state: State::Open }),
            form,
            pong: Mutex::new(None),
            wanted: Notify::new(),
            traffic,
        }
    }

    /// Has channels stand for streams of SPDY, which may be said once.
    pub fn set_channels(&self, streams: ChannelStreams) {
        if let Form::Spdy { channels } = &self.form {
            let _ = channels.set(streams);
        }
    }

    /// Sends the first `length` bytes of the buffer's space on `channel`, as one message. A channel
    /// that is no stream of SPDY is one that the peer does not want, and nothing is sent.
    pub async fn send(
        &self,
        channel: u8,
        outgoing: &mut Outgoing,
        length: usize,
    ) -> Result<(), SendError> {
        match &self.form {
            Form::Channels { protocol, role } => {
                // Sealed before the turn comes, so that streams mask and encode side by side.
                let frame = outgoing.seal((*protocol, *role), channel, length);
                self.write(frame, State::Open).await
            }
            Form::Spdy { .. } => match self.stream(channel) {
                Some(stream) => self.send_on(stream, outgoing, length).await,
                None => Ok(()),
            },
        }
    }

    /// Sends the first `length` bytes of the buffer's space on a stream of SPDY.
    pub async fn send_on(
        &self,
        stream: StreamId,
        outgoing: &mut Outgoing,
        length: usize,
    ) -> Result<(), SendError> {
        self.write(outgoing.seal_spdy(stream, length), State::Open).await
    }

    /// Sends a copy of `payload` as one message.
    pub async fn send_copy(&self, channel: u8, payload: &[u8]) -> Result<(), SendError> {
        self.send(channel, &mut Outgoing::copy_of(payload), payload.len()).await
    }

    /// Sends a frame of SPDY.
    pub async fn send_frame(&self, frame: &[u8]) -> Result<(), SendError> {
        self.write(frame, State::Open).await
    }

    /// Tells the peer that nothing follows on `channel`, where the protocol can say so.
    pub async fn close_channel(&self, channel: u8) -> Result<(), SendError> {
        let frame = match &self.form {
            Form::Channels { protocol, role } => close_channel(*protocol, *role, channel),
            Form::Spdy { .. } => self.stream(channel).map(spdy::write::finish),
        };
        match frame {
            Some(frame) => self.write(&frame, State::Open).await,
            None => Ok(()),
        }
    }

    /// Tells the peer that nothing follows at all. SPDY has no words for the reason.
    pub async fn close(&self, close: &Close) -> Result<(), SendError> {
        let frame = match &self.form {
            Form::Channels { role, .. } => control(*role, Opcode::Close, &close.to_payload()),
            Form::Spdy { channels } => {
                let streams = channels.get().into_iter().flatten().flatten().copied();
                let last = streams.clone().max().unwrap_or(0);
                let mut frames: Vec<u8> = streams.flat_map(spdy::write::finish).collect();
                frames.extend_from_slice(&spdy::write::go_away(last));
                frames
            }
        };
        self.write(&frame, State::Closed).await
    }

    /// Asks whether the peer is there.
    pub async fn ping(&self) -> Result<(), SendError> {
        let frame = match &self.form {
            Form::Channels { role, .. } => control(*role, Opcode::Ping, &[]),
            Form::Spdy { .. } => spdy::write::ping(OUR_PING),
        };
        self.write(&frame, State::Open).await
    }

    /// Has a ping answered by [`Self::send_pongs`], without waiting. A pong that nobody asked for is
    /// a sign of life.
    pub fn pong(&self, payload: Bytes) {
        *self.pong.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
        self.wanted.notify_one();
    }

    /// Answers pings until the session ends.
    pub async fn send_pongs(&self) -> SendError {
        loop {
            self.wanted.notified().await;
            let pong = self.pong.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(payload) = pong else { continue };
            let frame = match &self.form {
                Form::Channels { role, .. } => control(*role, Opcode::Pong, &payload),
                // Without a question, one of our own is the sign of life.
                Form::Spdy { .. } => spdy::write::ping(
                    payload.first_chunk().map_or(OUR_PING, |number| u32::from_be_bytes(*number)),
                ),
            };
            if let Err(error) = self.write(&frame, State::Open).await {
                return error;
            }
        }
    }

    /// Says at the level of the connection, too, that nothing follows.
    pub async fn shutdown(&self) -> Result<(), SendError> {
        self.wire.lock().await.io.shutdown().await.map_err(SendError::Io)
    }

    fn stream(&self, channel: u8) -> Option<StreamId> {
        match &self.form {
            Form::Channels { .. } => None,
            Form::Spdy { channels } => *channels.get()?.get(usize::from(channel))?,
        }
    }

    async fn write(&self, frame: &[u8], next: State) -> Result<(), SendError> {
        let mut wire = self.wire.lock().await;
        match wire.state {
            State::Open => {}
            State::InFrame => return Err(SendError::Torn),
            State::Closed => return Err(SendError::Closed),
        }
        wire.state = State::InFrame;
        wire.io.write_all(frame).await.map_err(SendError::Io)?;
        wire.io.flush().await.map_err(SendError::Io)?;
        wire.state = next;
        self.traffic.add(frame.len());
        Ok(())
    }
}
