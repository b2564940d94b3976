//! Metrics over HTTP, for Prometheus.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};
use tracing::{debug, warn};

use crate::metrics::Metrics;

/// As prometheus-client writes it.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How many may ask at the same time; one Prometheus needs one.
const CONNECTIONS: usize = 16;

/// How long a request may take to come.
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// After an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at `address`; the future serves, and never ends.
pub(super) async fn serve(
    address: SocketAddr,
    metrics: Arc<Metrics>,
) -> io::Result<(SocketAddr, impl Future<Output = ()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let serving = async move {
        let mut connections = JoinSet::new();
        loop {
            if connections.len() >= CONNECTIONS {
                connections.join_next().await;
            }
            while connections.try_join_next().is_some() {}
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "cannot accept a connection for metrics");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let metrics = Arc::clone(&metrics);
            let service = service_fn(move |request| {
                let answer = answer(&request, &metrics);
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            connections.spawn(async {
                if let Err(error) = connection.await {
                    debug!(%error, "a connection for metrics ended early");
                }
            });
        }
    };
    Ok((address, serving))
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, metrics.text()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(FORMAT));
    response
}
