//! Connections: TLS, limits on slow and silent clients, and an orderly end.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{Service, callers::common_name, peers::Peer, tls::Tls};

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a client may take for the headers of a request.
const HEADERS: Duration = Duration::from_secs(30);

/// How much of a request is read ahead, headers included; API servers send a few hundred bytes of them.
const BUFFER: usize = 32 << 10;

/// How long requests may go on after the gate was told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until the service is told to stop.
pub(super) async fn accept(socket: TcpListener, tls: Arc<Tls>, service: Arc<Service>) {
    let stop = service.stop.clone();
    while let Some(accepted) = stop.run_until_cancelled(socket.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                let Some(peer) = service.peers.admit(address.ip()) else {
                    service.metrics.refuse_connection();
                    continue;
                };
                // Before there is a certificate nobody is served.
                let Some(config) = tls.config() else { continue };
                let acceptor = TlsAcceptor::from(config);
                service.tasks.spawn(serve(stream, acceptor, peer, Arc::clone(&service)));
            }
            Err(error) => {
                // Out of file descriptors, most likely: give others time to close some.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, peer: Peer, service: Arc<Service>) {
    // Without it answers are only slower.
    let _ = stream.set_nodelay(true);
    let handshake = timeout(HANDSHAKE, acceptor.accept(stream));
    let stream = match service.stop.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Some(Err(_)) | None => return,
    };
    if let Err(error) = serve_http(stream, peer, service).await {
        tracing::debug!(%error, "a connection broke off");
    }
}

async fn serve_http(
    stream: TlsStream<TcpStream>,
    peer: Peer,
    service: Arc<Service>,
) -> Result<(), hyper::Error> {
    let stop = service.stop.clone();
    let peer = Arc::new(peer);
    // TLS has verified it, if there is one.
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let client: Option<Arc<str>> = shown.and_then(common_name).map(Into::into);
    let respond = service_fn(move |request| {
        let (service, peer, client) = (Arc::clone(&service), Arc::clone(&peer), client.clone());
        async move { Ok::<_, Infallible>(service.answer(&peer, client.as_deref(), request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), respond);
    let mut serving = pin!(serving);
    if let Some(served) = stop.run_until_cancelled(serving.as_mut()).await {
        return served;
    }
    serving.as_mut().graceful_shutdown();
    timeout(GRACE, serving).await.unwrap_or(Ok(()))
}
