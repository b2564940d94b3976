//! Posting to the service: one connection, kept for the next batch, made anew when it broke.

use std::io;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use super::kubeconfig::WebhookTarget;

/// So much of an answer is read, to be able to use the connection again.
const ANSWER: usize = 1 << 16;

/// Sends to one service.
pub(super) struct Client {
    target: WebhookTarget,
    open: Option<SendRequest<Full<Bytes>>>,
    tasks: TaskTracker,
}

/// Why the service did not take something.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("cannot reach {place}")]
    Connect {
        place: String,
        #[source]
        source: io::Error,
    },
    #[error("{place} does not speak HTTP, or broke off")]
    Http {
        place: String,
        #[source]
        source: hyper::Error,
    },
    #[error("{place} answered {code}")]
    Refused { place: String, code: StatusCode },
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
    #[error("cannot read the token of the audit webhook")]
    Token(#[source] io::Error),
}

impl Client {
    pub(super) fn new(target: WebhookTarget) -> Self {
        Self { target, open: None, tasks: TaskTracker::new() }
    }

    /// Sends JSON; the service must answer with success.
    pub(super) async fn post(&mut self, body: &[u8]) -> Result<(), SendError> {
        let place = || self.target.place();
        let mut sender = match self.open.take().filter(|open| !open.is_closed()) {
            Some(open) => open,
            None => self.connect().await?,
        };
        let mut request = Request::post(self.target.path())
            .header(header::HOST, self.target.place())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("waybill/", env!("CARGO_PKG_VERSION")));
        if let Some(value) = self.target.authorization().map_err(SendError::Token)? {
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body)))?;
        let broken = |source| SendError::Http { place: place(), source };
        sender.ready().await.map_err(broken)?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        let code = answer.status();
        // What it says is of no use; a connection with an answer that is too long is not used again.
        let read = Limited::new(answer.into_body(), ANSWER).collect().await;
        if read.is_ok() {
            self.open = Some(sender);
        }
        if code.is_success() { Ok(()) } else { Err(SendError::Refused { place: place(), code }) }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, SendError> {
        let place = self.target.place();
        let failed = |source| SendError::Connect { place: place.clone(), source };
        let tcp = TcpStream::connect(self.target.address()).await.map_err(failed)?;
        match self.target.tls().map_err(failed)? {
            None => self.speak(tcp).await,
            Some((tls, name)) => {
                let stream = TlsConnector::from(tls).connect(name, tcp).await.map_err(failed)?;
                self.speak(stream).await
            }
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, SendError> {
        let failed = |source| SendError::Http { place: self.target.place(), source };
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        self.tasks.spawn(async move {
            // Its errors reach who waits for the answer.
            let _ = connection.await;
        });
        Ok(sender)
    }
}
