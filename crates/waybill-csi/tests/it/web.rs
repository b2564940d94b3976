//! A small web server for backends that nobody ships.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
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
    asked: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Web {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    pub(crate) async fn start<F>(answer: F) -> Self
    where
        F: Fn(&Request<Incoming>) -> Page + Clone + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::<AtomicUsize>::default();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let (count, lines) = (Arc::clone(&connections), Arc::clone(&asked));
        let serving = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let (answer, lines) = (answer.clone(), Arc::clone(&lines));
                let service = service_fn(move |request: Request<Incoming>| {
                    let line =
                        format!("{} {}", request.method(), decoded(&request.uri().to_string()));
                    lines.lock().unwrap().push(line);
                    let page = answer(&request);
                    async move { Ok::<_, Infallible>(page) }
                });
                let served =
                    http1::Builder::new().serve_connection(TokioIo::new(connection), service);
                tokio::spawn(async move { served.await.ok() });
            }
        });
        Self { address, connections, asked, serving }
    }

    /// What was asked for since this was last called: method, path and query, with nothing
    /// encoded.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
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

/// The same page with one more header.
pub(crate) fn with_header(mut page: Page, name: &'static str, value: &'static str) -> Page {
    page.headers_mut().insert(name, http::HeaderValue::from_static(value));
    page
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

/// The query, with nothing encoded: clients differ in what they encode.
pub(crate) fn decoded_query(request: &Request<Incoming>) -> String {
    decoded(request.uri().query().unwrap_or_default())
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
}
