//! A connection to a plugin: a Unix socket, and never a network address (CSI-26).
//!
//! A connection that was lost does not come back by itself. Whoever meets a new process at the other
//! end has dialled it, and asked it what it can do (OP-29).

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{Ready, ready};
use hyper_util::rt::TokioIo;
use rustix::process::geteuid;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{
    codegen::Service,
    transport::{Channel, Endpoint, Uri},
};

use super::{error::CsiError, place::Place};

/// How long the other end may take to let us in (CSI-26).
const DIAL: Duration = Duration::from_secs(2);
/// Before a plugin whose queue of connections is full is asked again.
const QUEUE_FULL: Duration = Duration::from_millis(20);

/// A socket as it is now. A plugin that starts again makes another one under the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) path: PathBuf,
    device: u64,
    inode: u64,
    changed: (i64, i64),
    /// Where directories may belong to the users of drivers.
    plugins: Option<PathBuf>,
}

impl Socket {
    /// Looks at what is there.
    pub(super) fn find(path: &Path) -> Result<Self, CsiError> {
        match fs::metadata(path) {
            Ok(found) if found.file_type().is_socket() => Ok(Self::of(path, &found)),
            Ok(_) => Err(CsiError::NotSocket { path: path.to_owned() }),
            Err(_) => Err(CsiError::NoSocket { path: path.to_owned() }),
        }
    }

    /// The socket itself, no link to one, and only if it is root's or that of the user of this process.
    pub(super) fn find_own(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        let owned = [0, geteuid().as_raw()].contains(&found.uid());
        (owned && found.file_type().is_socket()).then(|| Self::of(path, &found))
    }

    /// The same; below `plugins` a driver may have another user than root.
    pub(super) fn below(self, plugins: &Path) -> Self {
        Self { plugins: Some(plugins.to_owned()), ..self }
    }

    fn of(path: &Path, found: &fs::Metadata) -> Self {
        Self {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            changed: (found.ctime(), found.ctime_nsec()),
            plugins: None,
        }
    }
}

/// One connection; clones of its channel share it.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) channel: Channel,
    closed: CancellationToken,
}

impl Dialled {
    /// Whether the other end is known to be gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }
}

/// Connects to a socket, if who answers there may.
pub(super) async fn dial(socket: &Socket) -> Result<Dialled, CsiError> {
    let path = &socket.path;
    let failed = |why: String| CsiError::Connect { path: path.clone(), why };
    let place = Place::open(path, socket.plugins.as_deref())?;
    let stream = match timeout(DIAL, connect(&place.address())).await {
        Ok(stream) => stream.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("no answer in {} s", DIAL.as_secs()))),
    };
    place.check_peer(&stream)?;
    let closed = CancellationToken::new();
    let guarded = GuardedStream { stream, _closed: closed.clone().drop_guard() };
    // The name is for headers alone; what is dialled is the stream.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(OneStream(Some(guarded))).await;
    let channel = channel.map_err(|error| failed(error.to_string()))?;
    Ok(Dialled { channel, closed })
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            // Linux does not wait in line for us.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(QUEUE_FULL).await,
            other => return other,
        }
    }
}

/// Gives its stream away once. A channel that lost it cannot have another.
struct OneStream(Option<GuardedStream>);

impl Service<Uri> for OneStream {
    type Response = TokioIo<GuardedStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = self.0.take().map(TokioIo::new);
        ready(
            stream.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "connection closed")),
        )
    }
}

/// A stream that tells when it is closed, by either end.
struct GuardedStream {
    stream: UnixStream,
    _closed: DropGuard,
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
