//! Connections: TLS, limits on slow and silent clients, and an orderly end.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::OwnedSemaphorePermit,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::status::Status;
use waybill_stream::{
    long_target::{HTTP1_BUFFER, LongTargetIo},
    open_connections::{ACCEPT_PAUSE, AcceptTrouble, OpenConnection, OpenConnections},
};

use super::{
    answer::PIECE,
    body::Body,
    pace::{Pace, Paced, PacedExecutor, Workers},
    room::Room,
};
use crate::authn::Peer;

/// How often a silent HTTP/2 client is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Requests that one HTTP/2 connection may have open; upstream's limit.
const STREAMS: u32 = 100;

/// What may come of one request before we read it, in bytes. The connection may bring as much of all its requests, so that
/// those whose turn it is not yet never block the one that is read.
const WINDOW: u32 = 128 * 1024;

/// How long requests may go on after the server was told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    /// What the client's certificates say, judged once for all requests.
    pub(crate) peer: Arc<Peer>,
    /// Counts as long as it, or a session that came from it, lasts.
    pub(crate) open: Arc<OpenConnection>,
    /// How it is worked on.
    pub(crate) pace: Pace,
    /// What the requests of one connection may make us hold, where several come at once.
    pub(crate) room: Option<Room>,
    /// The place of this request's body in that room; why there is none.
    pub(crate) body: Result<Option<Arc<OwnedSemaphorePermit>>, Status>,
}

/// What connections are served with.
pub(crate) trait Service: Send + Sync + 'static {
    /// Judges the certificates of a new connection.
    fn identify(&self, chain: &[CertificateDer<'_>]) -> Peer;

    /// Answers one request.
    fn answer(
        self: Arc<Self>,
        connection: Connection,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// A listening socket with its TLS configuration.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) patience: Patience,
    pub(crate) open: Arc<OpenConnections>,
}

/// How long a client may take for the TLS handshake, and for the headers of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) handshake: Duration,
    pub(crate) headers: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { handshake: Duration::from_secs(10), headers: Duration::from_secs(30) }
    }
}

impl Listener {
    /// Serves until `stop`, then lets requests end for a while.
    pub(crate) async fn serve<S: Service>(self, service: Arc<S>, stop: CancellationToken) {
        let acceptor = TlsAcceptor::from(self.tls);
        let connections = TaskTracker::new();
        let abort = CancellationToken::new();
        let mut trouble = AcceptTrouble::default();
        let workers = Workers::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if let Some(times) = trouble.count(Instant::now()) {
                        tracing::warn!(%error, times, "connections could not be accepted");
                    }
                    self.open.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let open = Arc::new(self.open.open());
            let connection = serve_connection(
                (stream, address, Arc::clone(&open)),
                (acceptor.clone(), self.patience, workers.clone()),
                Arc::clone(&service),
                // Of its own: who waits for one that all share takes its lock with every step.
                stop.child_token(),
            );
            let abort = abort.child_token();
            connections.spawn(async move {
                tokio::select! {
                    () = abort.cancelled() => {}
                    () = open.pushed_out() => {}
                    () = connection => {}
                }
            });
        }
        connections.close();
        if timeout(GRACE, connections.wait()).await.is_err() {
            abort.cancel();
            connections.wait().await;
        }
    }
}

async fn serve_connection<S: Service>(
    (stream, address, open): (TcpStream, SocketAddr, Arc<OpenConnection>),
    (acceptor, patience, workers): (TlsAcceptor, Patience, Workers),
    service: Arc<S>,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let stream = match timeout(patience.handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let peer = Arc::new(service.identify(chain));
    let pace = Pace::default();
    let connection =
        Connection { address, peer, open, pace: pace.clone(), room: None, body: Ok(None) };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let result = if is_http2 {
        let executor = PacedExecutor { pace: pace.clone(), workers: workers.clone() };
        let served = serve_http2((stream, patience, executor), service, connection, stop);
        Paced::new(pace, workers, served).await
    } else {
        let served = serve_http1((stream, patience), service, connection, stop);
        Paced::new(pace, workers, served).await
    };
    if let Err(error) = result {
        tracing::debug!(%address, %error, "a connection broke off");
    }
}

/// HTTP/1.1, which alone can be upgraded; its request lines may be longer than hyper reads.
async fn serve_http1<S: Service>(
    (stream, patience): (TlsStream<TcpStream>, Patience),
    service: Arc<S>,
    connection: Connection,
    stop: CancellationToken,
) -> Result<(), hyper::Error> {
    let (io, target) = LongTargetIo::new(stream);
    let service = service_fn(move |mut request| {
        target.attach(&mut request);
        // Boxed: it is large, and hyper and we would move it three times before it begins.
        let answer = Box::pin(Arc::clone(&service).answer(connection.clone(), request));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.headers)
        .max_buf_size(HTTP1_BUFFER)
        .half_close(false)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    let mut serving = pin!(serving);
    tokio::select! {
        result = serving.as_mut() => result,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    }
}

/// HTTP/2. Hyper waits for the first request without end, so that is cut short here; later it asks
/// silent clients whether they are still there.
async fn serve_http2<S: Service>(
    (stream, patience, executor): (TlsStream<TcpStream>, Patience, PacedExecutor),
    service: Arc<S>,
    connection: Connection,
    stop: CancellationToken,
) -> Result<(), hyper::Error> {
    let begun = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&begun);
    let room = Room::new();
    let service = service_fn(move |request: Request<Incoming>| {
        noted.store(true, Ordering::Relaxed);
        let (service, connection, room) = (Arc::clone(&service), connection.clone(), room.clone());
        async move {
            let body = room.for_body(&request).await;
            let connection = Connection { room: Some(room.clone()), body, ..connection };
            let answer = service.answer(connection, request).await;
            Ok::<_, Infallible>(answer.map(|body| room.piece_by_piece(body)))
        }
    });
    let serving = http2::Builder::new(executor)
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(STREAMS * WINDOW)
        .max_send_buf_size(PIECE)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    tokio::select! {
        result = serving.as_mut() => return result,
        () = stop.cancelled() => {}
        () = tokio::time::sleep(patience.headers) => {
            if !begun.load(Ordering::Relaxed) {
                return Ok(());
            }
            tokio::select! {
                result = serving.as_mut() => return result,
                () = stop.cancelled() => {}
            }
        }
    }
    serving.as_mut().graceful_shutdown();
    serving.await
}

#[cfg(test)]
mod tests;
