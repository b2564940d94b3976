//! Connections: TLS, limits on slow and silent clients, and an orderly end.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use waybill_stream::{
    long_target::{HTTP1_BUFFER, LongTargetIo},
    open_connections::{ACCEPT_PAUSE, AcceptTrouble, OpenConnection, OpenConnections},
};

use super::{Service, authn::Peer, tls::Tls};

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a client may take for the headers of a request.
const HEADERS: Duration = Duration::from_secs(30);

/// How long requests may go on after the server was told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until the service is told to stop.
pub(super) async fn accept(
    socket: TcpListener,
    tls: Arc<Tls>,
    service: Arc<Service>,
    connections: Arc<OpenConnections>,
) {
    let (stop, mut trouble) = (service.stop.clone(), AcceptTrouble::default());
    while let Some(accepted) = stop.run_until_cancelled(socket.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                let acceptor = TlsAcceptor::from(tls.config());
                let open = Arc::new(connections.open());
                let connection =
                    serve((stream, address, Arc::clone(&open)), acceptor, Arc::clone(&service));
                service.tasks.spawn(async move {
                    tokio::select! {
                        () = open.pushed_out() => {}
                        () = connection => {}
                    }
                });
            }
            Err(error) => {
                if let Some(times) = trouble.count(Instant::now()) {
                    tracing::warn!(%error, times, "connections could not be accepted");
                }
                connections.make_room();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(
    (stream, address, open): (TcpStream, SocketAddr, Arc<OpenConnection>),
    acceptor: TlsAcceptor,
    service: Arc<Service>,
) {
    // Sessions are typed by hand; without it they are only slower.
    let _ = stream.set_nodelay(true);
    let handshake = timeout(HANDSHAKE, acceptor.accept(stream));
    let stream = match service.stop.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => {
            tracing::debug!(%address, %error, "TLS handshake failed");
            return;
        }
        Some(Err(_)) | None => return,
    };
    if let Err(error) = serve_http(stream, open, service).await {
        tracing::debug!(%address, %error, "a connection broke off");
    }
}

/// HTTP/1.1, which alone can be upgraded; its request lines may be longer than hyper reads (EXEC-40).
async fn serve_http(
    stream: TlsStream<TcpStream>,
    open: Arc<OpenConnection>,
    service: Arc<Service>,
) -> Result<(), hyper::Error> {
    let stop = service.stop.clone();
    let peer = Peer::of(stream.get_ref().1.peer_certificates().unwrap_or_default());
    let peer = peer.map(Arc::new);
    let (io, target) = LongTargetIo::new(stream);
    let respond = service_fn(move |mut request| {
        target.attach(&mut request);
        request.extensions_mut().insert(Arc::clone(&open));
        let (service, peer) = (Arc::clone(&service), peer.clone());
        async move { Ok::<_, Infallible>(service.answer(peer.as_deref(), request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(HTTP1_BUFFER)
        .half_close(false)
        .serve_connection(TokioIo::new(io), respond)
        .with_upgrades();
    let mut serving = pin!(serving);
    if let Some(served) = stop.run_until_cancelled(serving.as_mut()).await {
        return served;
    }
    serving.as_mut().graceful_shutdown();
    timeout(GRACE, serving).await.unwrap_or(Ok(()))
}
