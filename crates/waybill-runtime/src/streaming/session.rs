//! What sessions of all kinds have in common: the connection under them, and the way they end.

use std::{io, pin::pin, time::Duration};

use bytes::{Buf, Bytes};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use waybill_stream::{
    channel::ProtocolError,
    connection::{EventReader, ReceiveError, Receiver, SendError, Sender, Traffic},
    protocol::Protocol,
    spdy::{SpdyError, read::SpdyReader},
    websocket::{Close, Role},
};

use super::Limits;

/// A connection that was upgraded, and what the client sent before it knew.
pub(super) struct Socket {
    pub(super) stream: TcpStream,
    pub(super) read: Bytes,
}

impl Socket {
    /// Waits for the switch; `None` if the client was gone before.
    pub(super) async fn upgraded(upgrade: OnUpgrade) -> Option<Self> {
        let parts = upgrade.await.ok()?.downcast::<TokioIo<TcpStream>>().ok()?;
        Some(Self { stream: parts.io.into_inner(), read: parts.read_buf })
    }
}

/// The half of a session that is sent.
pub(super) type Client = Sender<OwnedWriteHalf>;

/// The half that is received.
pub(super) type Words<E> = Receiver<OwnedReadHalf, E>;

/// One session: its two halves, and the rules for it.
pub(super) struct Session<E, R = OwnedReadHalf, W = OwnedWriteHalf> {
    pub(super) client: Sender<W>,
    pub(super) words: Receiver<R, E>,
    pub(super) limits: Limits,
    pub(super) traffic: Traffic,
}

/// How a session ended.
pub(super) enum End {
    /// We said everything but this last message.
    Done(Option<(u8, Vec<u8>)>),
    /// The client said that it has heard enough.
    Left(Option<Close>),
    /// We say that it ends, and why.
    Closed(Close),
    /// Nobody is there to be told.
    Vanished,
}

impl<E: EventReader> Session<E> {
    /// A session over the channels of a WebSocket.
    pub(super) fn channels(socket: Socket, protocol: Protocol, events: E, limits: Limits) -> Self {
        let traffic = Traffic::default();
        let (read, write) = socket.stream.into_split();
        Self {
            client: Sender::new(write, protocol, Role::Server, traffic.clone()),
            words: Receiver::new(read, events, &socket.read, traffic.clone()),
            limits,
            traffic,
        }
    }
}

impl Session<SpdyReader> {
    /// A session over the streams of SPDY.
    pub(super) fn spdy(socket: Socket, limits: Limits) -> Self {
        let (read, write) = socket.stream.into_split();
        Self::spdy_over((read, &socket.read), write, limits)
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<SpdyReader, R, W> {
    /// The same over any connection.
    pub(super) fn spdy_over((read, head): (R, &[u8]), write: W, limits: Limits) -> Self {
        let traffic = Traffic::default();
        Self {
            client: Sender::spdy(write, traffic.clone()),
            words: Receiver::new(read, SpdyReader::new(), head, traffic.clone()),
            limits,
            traffic,
        }
    }
}

impl<E: EventReader, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<E, R, W> {
    /// Hears other events from now on.
    pub(super) fn map<F>(self, other: impl FnOnce(E) -> F) -> Session<F, R, W> {
        let Self { client, words, limits, traffic } = self;
        Session { client, words: words.map(other), limits, traffic }
    }

    /// Tells the client how it ended, if it is there to be told, and closes the connection.
    pub(super) async fn end(mut self, end: End) {
        let farewell = self.limits.farewell;
        match end {
            // A client that is slow to read its output gets the outcome all the same.
            End::Done(message) => {
                self.farewell(message, &Close::normal(), self.limits.idle).await;
            }
            End::Closed(close) => self.farewell(None, &close, farewell).await,
            End::Left(close) => {
                let close = close.unwrap_or_else(Close::normal);
                let _ = timeout(farewell, self.client.close(&close)).await;
            }
            End::Vanished => {}
        }
    }

    /// Says the last words and waits for the client's. What it still sends is read: a connection that
    /// is closed with unread bytes is reset, and the client might not see the end.
    async fn farewell(&mut self, message: Option<(u8, Vec<u8>)>, close: &Close, limit: Duration) {
        let say = async {
            if let Some((channel, message)) = message {
                self.client.send_copy(channel, &message).await?;
            }
            self.client.close(close).await
        };
        let mut hear = pin!(self.words.drop_rest());
        let said = tokio::select! {
            biased;
            said = timeout(limit, say) => said,
            () = &mut hear => return,
        };
        if let Ok(Ok(())) = said {
            let _ = timeout(self.limits.farewell, hear).await;
        }
    }
}

/// Answers pings until something from outside ends the session: silence, a broken connection, `stop`.
pub(super) async fn interruption(
    client: &Sender<impl AsyncWrite + Unpin>,
    traffic: &Traffic,
    limits: Limits,
    stop: &CancellationToken,
) -> End {
    tokio::select! {
        error = client.send_pongs() => error.into(),
        () = traffic.idle(limits.idle) => End::going_away("the session was silent for too long"),
        () = stop.cancelled() => End::going_away("the runtime stops"),
    }
}

/// Writes all of `bytes` at the pace of whoever reads them.
///
/// Meanwhile nothing that the client sends is read, its pings included. So it gets pongs without
/// asking, and if it is gone they fail and end the session.
pub(super) async fn feed(
    mut bytes: Bytes,
    mut to: impl AsyncWrite + Unpin,
    client: &Client,
    sign_of_life: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        tokio::select! {
            biased;
            written = to.write(&bytes) => bytes.advance(written?),
            () = sleep(sign_of_life) => client.pong(Bytes::new()),
        }
    }
    Ok(())
}

impl End {
    fn going_away(reason: &str) -> Self {
        Self::Closed(Close { code: Close::GOING_AWAY, reason: reason.to_owned() })
    }
}

impl From<ReceiveError> for End {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Protocol(error) => Self::Closed(error.to_close()),
            _ => Self::Vanished,
        }
    }
}

impl From<SpdyError> for End {
    fn from(error: SpdyError) -> Self {
        Self::Closed(ProtocolError::from(error).to_close())
    }
}

impl From<SendError> for End {
    fn from(_: SendError) -> Self {
        Self::Vanished
    }
}
