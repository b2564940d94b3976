//! Ports over the streams of SPDY: two for each connection, opened as they are needed.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use waybill_stream::{
    channel::Outgoing,
    connection::{Receiver, SendError, Sender},
    spdy::{
        SpdyError, StreamId,
        command::STREAM_TYPE,
        read::{SpdyEvent, SpdyReader},
        write::{finish, ping, reply, reset},
    },
};

use super::{
    super::{
        Backend, Streaming,
        session::{End, Session, interruption},
    },
    CHUNK, Terms, dial, failure,
};

/// Connections that a client may have at once.
const MOST: usize = 500;

/// Pieces of at most 64 KiB that wait for a connection, so that a slow one does not stop the others
/// at once.
const QUEUE: usize = 2;

/// Runs a session to its end.
pub(super) async fn run<B, R, W>(
    session: Session<SpdyReader, R, W>,
    terms: Terms,
    streaming: Arc<Streaming<B>>,
    stop: &CancellationToken,
) where
    B: Backend,
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let Session { client, mut words, limits, traffic } = session;
    let client = Arc::new(client);
    let mut forward = Forward {
        client: Arc::clone(&client),
        terms: Arc::new(terms),
        streaming,
        replied: false,
        halves: HashMap::new(),
        inputs: HashMap::new(),
        connections: JoinSet::new(),
    };
    let end = tokio::select! {
        end = forward.listen(&mut words) => end,
        end = interruption(&client, &traffic, limits, stop) => end,
    };
    drop(forward);
    if let End::Closed(close) | End::Left(Some(close)) = &end {
        let _ = client.close(close).await;
    }
    let _ = client.shutdown().await;
}

struct Forward<B, W> {
    client: Arc<Sender<W>>,
    terms: Arc<Terms>,
    streaming: Arc<Streaming<B>>,
    replied: bool,
    /// Connections of which one stream is open, by the client's number for them.
    halves: HashMap<u32, (Half, StreamId)>,
    /// What the client sends, by the stream it comes on.
    inputs: HashMap<StreamId, mpsc::Sender<Bytes>>,
    /// Dropped with the session, and all connections with it.
    connections: JoinSet<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Data,
    Error,
}

impl<B: Backend, W: AsyncWrite + Unpin + Send + 'static> Forward<B, W> {
    /// Opens connections and feeds them, until the client leaves.
    async fn listen<R: AsyncRead + Unpin>(&mut self, words: &mut Receiver<R, SpdyReader>) -> End {
        loop {
            while self.connections.try_join_next().is_some() {}
            let done = match words.next().await {
                Ok(SpdyEvent::Opened { stream, headers }) => self.opened(stream, &headers).await,
                Ok(SpdyEvent::Data { stream, payload }) => {
                    if let Some(input) = self.inputs.get(&stream) {
                        // A connection that has ended drops what is left for it.
                        let _ = input.send(payload.into_bytes()).await;
                    }
                    Ok(())
                }
                Ok(SpdyEvent::Finished(stream) | SpdyEvent::Reset(stream)) => {
                    self.inputs.remove(&stream);
                    Ok(())
                }
                Ok(SpdyEvent::Ping(number)) if number % 2 == 1 => {
                    self.client.send_frame(&ping(number)).await.map_err(End::from)
                }
                Ok(SpdyEvent::Ping(_)) => Ok(()),
                Ok(SpdyEvent::GoAway) => return End::Left(None),
                Err(error) => return error.into(),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn opened(&mut self, stream: StreamId, headers: &HeaderMap) -> Result<(), End> {
        let half = match headers.get(&STREAM_TYPE).map(|value| value.as_bytes()) {
            Some(b"data") => Half::Data,
            Some(b"error") => Half::Error,
            _ => return Err(SpdyError::StreamType.into()),
        };
        let port = number(headers, "port").and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port > 0).ok_or(SpdyError::StreamType)?;
        if self.connections.len() + self.halves.len() >= MOST {
            return Ok(self.client.send_frame(&reset(stream)).await?);
        }
        self.client.send_frame(&reply(stream, !self.replied)).await?;
        self.replied = true;
        // Without a number, the two follow one another, the stream for errors first.
        let request = number(headers, "requestid").unwrap_or(match half {
            Half::Error => stream,
            Half::Data => stream.saturating_sub(2),
        });
        match self.halves.entry(request) {
            Entry::Vacant(entry) => {
                entry.insert((half, stream));
            }
            Entry::Occupied(entry) if entry.get().0 == half => {
                return Err(SpdyError::StreamType.into());
            }
            Entry::Occupied(entry) => {
                let (_, other) = entry.remove();
                let (data, error) =
                    if half == Half::Data { (stream, other) } else { (other, stream) };
                self.connect(port, data, error);
            }
        }
        Ok(())
    }

    fn connect(&mut self, port: u16, data: StreamId, error: StreamId) {
        let (sender, input) = mpsc::channel(QUEUE);
        self.inputs.insert(data, sender);
        let (client, terms) = (Arc::clone(&self.client), Arc::clone(&self.terms));
        let streaming = Arc::clone(&self.streaming);
        self.connections.spawn(async move {
            let reason = match dial(&streaming.backend, &terms, port).await {
                Ok(connection) => {
                    let (read, write) = connection.into_split();
                    let (_, copied) = tokio::join!(feed(input, write), copy(read, data, &client));
                    copied
                }
                Err(reason) => Err(reason),
            };
            // If the client is gone, there is nobody to tell.
            let _ = tell(&client, (port, data, error), reason).await;
        });
    }
}

/// Writes what the client sends, then says that nothing follows.
async fn feed(mut input: mpsc::Receiver<Bytes>, mut write: OwnedWriteHalf) {
    while let Some(bytes) = input.recv().await {
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = write.shutdown().await;
}

/// Sends what the port says, then that nothing follows.
async fn copy<W: AsyncWrite + Unpin>(
    mut read: OwnedReadHalf,
    stream: StreamId,
    client: &Sender<W>,
) -> Result<(), String> {
    let mut outgoing = Outgoing::with_capacity(CHUNK);
    loop {
        match read.read(outgoing.space()).await {
            Ok(0) => break,
            Ok(length) => {
                if client.send_on(stream, &mut outgoing, length).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let _ = client.send_frame(&finish(stream)).await;
    Ok(())
}

/// Ends both streams of a connection.
async fn tell<W: AsyncWrite + Unpin>(
    client: &Sender<W>,
    (port, data, error): (u16, StreamId, StreamId),
    result: Result<(), String>,
) -> Result<(), SendError> {
    if let Err(reason) = result {
        let text = failure(port, &reason);
        client.send_on(error, &mut Outgoing::copy_of(text.as_bytes()), text.len()).await?;
        client.send_frame(&reset(data)).await?;
    }
    client.send_frame(&finish(error)).await
}

fn number(headers: &HeaderMap, name: &str) -> Option<u32> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
