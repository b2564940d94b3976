//! The sending half of a session, which several streams share.

use std::{
    io,
    sync::{Mutex, PoisonError},
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
    websocket::{Close, Opcode, Role, write::control},
};

/// The sending half of a session. Whoever has something to send waits for its turn, in order.
pub struct Sender<W> {
    wire: sync::Mutex<Wire<W>>,
    protocol: Protocol,
    role: Role,
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

struct Wire<W> {
    io: W,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Open,
    InFrame,
    Closed,
}

impl<W: AsyncWrite + Unpin> Sender<W> {
    /// Writes to `io` from now on.
    pub fn new(io: W, protocol: Protocol, role: Role, traffic: Traffic) -> Self {
        Self {
            wire: sync::Mutex::new(Wire { io, state: State::Open }),
            protocol,
            role,
            pong: Mutex::new(None),
            wanted: Notify::new(),
            traffic,
        }
    }

    /// Sends the first `length` bytes of the buffer's space as one message.
    pub async fn send(
        &self,
        channel: u8,
        outgoing: &mut Outgoing,
        length: usize,
    ) -> Result<(), SendError> {
        // Sealed before the turn comes, so that two streams mask and encode side by side.
        let frame = outgoing.seal((self.protocol, self.role), channel, length);
        self.write(frame, State::Open).await
    }

    /// Sends a copy of `payload` as one message.
    pub async fn send_copy(&self, channel: u8, payload: &[u8]) -> Result<(), SendError> {
        self.send(channel, &mut Outgoing::copy_of(payload), payload.len()).await
    }

    /// Tells the peer that nothing follows on `channel`, where the protocol can say so.
    pub async fn close_channel(&self, channel: u8) -> Result<(), SendError> {
        match close_channel(self.protocol, self.role, channel) {
            Some(frame) => self.write(&frame, State::Open).await,
            None => Ok(()),
        }
    }

    /// Tells the peer that nothing follows at all.
    pub async fn close(&self, close: &Close) -> Result<(), SendError> {
        let frame = control(self.role, Opcode::Close, &close.to_payload());
        self.write(&frame, State::Closed).await
    }

    /// Asks whether the peer is there.
    pub async fn ping(&self) -> Result<(), SendError> {
        self.write(&control(self.role, Opcode::Ping, &[]), State::Open).await
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
            let frame = control(self.role, Opcode::Pong, &payload);
            if let Err(error) = self.write(&frame, State::Open).await {
                return error;
            }
        }
    }

    /// Says at the level of the connection, too, that nothing follows.
    pub async fn shutdown(&self) -> Result<(), SendError> {
        self.wire.lock().await.io.shutdown().await.map_err(SendError::Io)
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
