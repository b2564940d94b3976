//! Copies bytes both ways between two upgraded connections until the session ends.
//!
//! For whoever stands between a client and the process: the API server and the node. The bytes mean
//! nothing here: WebSocket and SPDY are spoken only where the process is (D5).

use std::{
    io,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    sync::Notify,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// How a session ended and what it carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Bytes that came from the client.
    pub from_client: u64,
    /// Bytes that came from the server.
    pub from_server: u64,
    /// Why it ended.
    pub cause: EndCause,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// A connection broke.
    Broken,
    /// Both sides said that they were done.
    Closed,
    /// Nothing was sent for too long.
    Idle,
    /// The client was gone before its connection was upgraded.
    NotUpgraded,
    /// We were told to stop.
    Shutdown,
}

/// How long a session may be silent. The end comes after one to two times the limit.
#[derive(Clone, Copy, Debug)]
pub struct IdleLimits {
    /// While both sides can send.
    pub open: Duration,
    /// After one side has closed: its process is most likely gone, and the other may not know.
    pub half_closed: Duration,
}

impl Default for IdleLimits {
    /// The first is the limit of the kubelet and of the runtimes' streaming servers.
    fn default() -> Self {
        Self { open: Duration::from_secs(4 * 60 * 60), half_closed: Duration::from_secs(60) }
    }
}

/// Runs a session to its end. A side that closes is told to the other, which may still send.
pub async fn splice(
    client: impl AsyncRead + AsyncWrite + Unpin,
    server: impl AsyncRead + AsyncWrite + Unpin,
    limits: IdleLimits,
    stop: &CancellationToken,
) -> StreamEnd {
    let traffic = Traffic::default();
    let mut client = Metered { inner: client, traffic: &traffic, side: &traffic.client };
    let mut server = Metered { inner: server, traffic: &traffic, side: &traffic.server };
    let copy = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER);
    let cause = tokio::select! {
        copied = copy => if copied.is_ok() { EndCause::Closed } else { EndCause::Broken },
        () = traffic.watch_idle(limits) => EndCause::Idle,
        () = stop.cancelled() => EndCause::Shutdown,
    };
    StreamEnd { from_client: traffic.client.bytes(), from_server: traffic.server.bytes(), cause }
}

/// Per direction; one and a half TLS records.
const BUFFER: usize = 24 * 1024;

#[derive(Default)]
struct Traffic {
    client: Side,
    server: Side,
    closed: Notify,
}

impl Traffic {
    /// Returns when nothing was read from either side for the limit that applies.
    async fn watch_idle(&self, limits: IdleLimits) {
        loop {
            let seen = self.total();
            let half_closed = self.client.is_closed() || self.server.is_closed();
            let limit = if half_closed { limits.half_closed } else { limits.open };
            tokio::select! {
                () = sleep(limit) => if self.total() == seen { return },
                () = self.closed.notified(), if !half_closed => {}
            }
        }
    }

    fn total(&self) -> u64 {
        self.client.bytes() + self.server.bytes()
    }
}

#[derive(Default)]
struct Side {
    bytes: AtomicU64,
    closed: AtomicBool,
}

impl Side {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// A connection whose reads are counted.
struct Metered<'a, S> {
    inner: S,
    traffic: &'a Traffic,
    side: &'a Side,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer));
        let result = match result {
            // A peer that dies does not end TLS. The protocol inside has an end of its own, so what
            // came before must arrive rather than be lost in an error.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            result => result,
        };
        let read = buffer.filled().len() - before;
        self.side.bytes.fetch_add(u64::try_from(read).unwrap_or(u64::MAX), Ordering::Relaxed);
        if result.is_ok() && read == 0 {
            self.side.closed.store(true, Ordering::Relaxed);
            self.traffic.closed.notify_one();
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(20);

    struct Session {
        client: DuplexStream,
        server: DuplexStream,
        stop: CancellationToken,
        end: tokio::task::JoinHandle<StreamEnd>,
    }

    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    fn session(limits: IdleLimits) -> Session {
        let (client, near_client) = duplex(1024);
        let (server, near_server) = duplex(1024);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let end =
            tokio::spawn(async move { splice(near_client, near_server, limits, &stopped).await });
        Session { client, server, stop, end }
    }

    #[tokio::test]
    async fn a_side_that_closes_may_still_receive() {
        let mut session = session(IdleLimits { open: LONG, half_closed: LONG });
        session.client.write_all(b"ask").await.unwrap();
        session.client.shutdown().await.unwrap();
        let mut asked = String::new();
        session.server.read_to_string(&mut asked).await.unwrap();
        assert_eq!(asked, "ask");
        session.server.write_all(b"answer").await.unwrap();
        session.server.shutdown().await.unwrap();
        let mut answered = String::new();
        session.client.read_to_string(&mut answered).await.unwrap();
        assert_eq!(answered, "answer");
        let end = StreamEnd { from_client: 3, from_server: 6, cause: EndCause::Closed };
        assert_eq!(session.end.await.unwrap(), end);
    }

    #[tokio::test]
    async fn silence_ends_a_session() {
        let mut session = session(IdleLimits { open: SHORT, half_closed: LONG });
        session.client.write_all(b"x").await.unwrap();
        let end = StreamEnd { from_client: 1, from_server: 0, cause: EndCause::Idle };
        assert_eq!(session.end.await.unwrap(), end);
    }

    #[tokio::test]
    async fn silence_after_a_half_close_ends_it_sooner() {
        let mut session = session(IdleLimits { open: LONG, half_closed: SHORT });
        session.server.shutdown().await.unwrap();
        assert_eq!(session.end.await.unwrap().cause, EndCause::Idle);
    }

    #[tokio::test]
    async fn shutdown_ends_a_session() {
        let session = session(IdleLimits::default());
        session.stop.cancel();
        assert_eq!(session.end.await.unwrap().cause, EndCause::Shutdown);
    }
}
