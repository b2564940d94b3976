//! Connections: TLS, limits on slow and silent clients, and an orderly end.

use std::{convert::Infallible, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{Service, callers::common_name, peers::Peer, tls::Tls};
use crate::unproven::{Place, Unproven};

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long a client may take for the headers of a request.
const HEADERS: Duration = Duration::from_secs(30);

/// How much of a request is read ahead, headers included; API servers send a few hundred bytes of them.
const BUFFER: usize = 32 << 10;

/// How long requests may go on after the gate was told to stop.
const GRACE: Duration = Duration::from_secs(10);

/// How many connections there may be at once that have shown no certificate: those whose handshake goes on, and probes.
const UNPROVEN: usize = 256;

/// Serves until the service is told to stop.
pub(super) async fn accept(socket: TcpListener, tls: Arc<Tls>, service: Arc<Service>) {
    let stop = service.stop.clone();
    let unproven = Unproven::new(UNPROVEN);
    while let Some(accepted) = stop.run_until_cancelled(socket.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                // Before there is a certificate nobody is served.
                let Some(config) = tls.config() else { continue };
                let (place, is_full) = unproven.admit();
                if is_full {
                    service.metrics.refuse_connection();
                }
                let connection = Connection {
                    address: address.ip(),
                    acceptor: TlsAcceptor::from(config),
                    service: Arc::clone(&service),
                };
                service.tasks.spawn(connection.serve(stream, place));
            }
            Err(error) => {
                // Out of file descriptors, most likely: give others time to close some.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// One that was accepted.
struct Connection {
    address: IpAddr,
    acceptor: TlsAcceptor,
    service: Arc<Service>,
}

impl Connection {
    async fn serve(self, stream: TcpStream, place: Place) {
        // Without it answers are only slower.
        let _ = stream.set_nodelay(true);
        let shown = place.hold(self.handshake(stream)).await.flatten();
        let Some((stream, client)) = shown else { return };
        let Some(peer) = self.service.peers.admit(self.address) else {
            self.service.metrics.refuse_connection();
            return;
        };
        let is_proven = client.is_some() || self.service.trust.is_open();
        let serving = serve_http(stream, client, peer, self.service);
        let served = if is_proven {
            // Its place is free for the next.
            drop(place);
            Some(serving.await)
        } else {
            place.hold(serving).await
        };
        if let Some(Err(error)) = served {
            tracing::debug!(%error, "a connection broke off");
        }
    }

    /// A stream, and the common name of the certificate that TLS has verified, if there is one.
    async fn handshake(
        &self,
        stream: TcpStream,
    ) -> Option<(TlsStream<TcpStream>, Option<Arc<str>>)> {
        let handshake = timeout(HANDSHAKE, self.acceptor.accept(stream));
        match self.service.stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let client = shown.and_then(common_name).map(Into::into);
                Some((stream, client))
            }
            Some(Ok(Err(error))) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Some(Err(_)) | None => None,
        }
    }
}

async fn serve_http(
    stream: TlsStream<TcpStream>,
    client: Option<Arc<str>>,
    peer: Peer,
    service: Arc<Service>,
) -> Result<(), hyper::Error> {
    let stop = service.stop.clone();
    let peer = Arc::new(peer);
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
