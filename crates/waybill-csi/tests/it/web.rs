//! A small web server for backends that nobody ships.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{body::Frame, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinHandle};

pub(crate) type Page = Response<BoxBody<Bytes, Infallible>>;

/// Answers on a free port until it is dropped.
pub(crate) struct Web {
    pub(crate) address: String,
    connections: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Web {
    pub(crate) async fn start<F>(answer: F) -> Self
    where
        F: Fn(&Request<Incoming>) -> Page + Clone + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        let serving = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let answer = answer.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let page = answer(&request);
                    async move { Ok::<_, Infallible>(page) }
                });
                let served =
                    http1::Builder::new().serve_connection(TokioIo::new(connection), service);
                tokio::spawn(async move { served.await.ok() });
            }
        });
        Self { address, connections, serving }
    }

    /// How many there have been.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) fn page(status: StatusCode, text: &str) -> Page {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes())).boxed();
    Response::builder().status(status).body(body).unwrap()
}

/// A page that does not say how long it is.
pub(crate) fn chunked(chunks: usize, chunk: &'static [u8]) -> Page {
    let frames = (0..chunks).map(move |_| Ok(Frame::data(Bytes::from_static(chunk))));
    Response::new(BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames))))
}

/// The value of a header, or nothing.
pub(crate) fn header<'a>(request: &'a Request<Incoming>, name: &str) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
