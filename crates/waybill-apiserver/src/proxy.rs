//! The hop from the API server to a node.
//!
//! Exec, attach and port-forward are upgraded on both sides and then copied byte by byte; logs are a
//! body that is passed on. The node is asked in the API server's own name: it sees our certificate
//! and never who the user is (EXEC-22). Exec carries a token besides, which nodes ask for. Whoever calls has authenticated, authorized and admitted the
//! request, and builds the [`NodeTarget`] from the options, not from the client's query.

pub(crate) mod address;
pub(crate) mod connect;
pub(crate) mod error;
pub(crate) mod exec;
mod log_socket;
pub(crate) mod options;
pub(crate) mod session;
pub(crate) mod target;

#[cfg(test)]
mod fake_node;
#[cfg(test)]
mod tests;

use std::{error::Error, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Empty, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    upgrade::{self, OnUpgrade},
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::{Instrument, Span};
use waybill_api::{exec::SESSION_HEADER, trace::TRACE_HEADER};
use waybill_stream::{
    splice::{EndCause, IdleLimits, StreamEnd, splice},
    upgrade as headers,
};

use self::{
    address::NodeAddress,
    error::{NodeRefusal, ProxyError},
    target::NodeTarget,
};

/// The body of an answer.
pub(crate) type ProxyBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Asks nodes on behalf of clients. It owns every connection it opens; dropping it ends them.
pub(crate) struct NodeProxy {
    tls: ArcSwap<ClientConfig>,
    limits: ProxyLimits,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl NodeProxy {
    pub(crate) fn new(tls: Arc<ClientConfig>, limits: ProxyLimits) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { tls: ArcSwap::new(tls), limits, tasks, stop }
    }

    /// From now on connections are opened with this, such as a renewed certificate.
    pub(crate) fn set_tls(&self, tls: Arc<ClientConfig>) {
        self.tls.store(tls);
    }

    /// Joins the client's connection with one to the node, for exec, attach and port-forward.
    ///
    /// The session begins when the caller has sent the answer and ends when either side is gone,
    /// when it is silent for too long, or when the server stops.
    pub(crate) async fn upgrade<B>(
        &self,
        request: Request<B>,
        node: &NodeAddress,
        target: &NodeTarget,
    ) -> ProxyAnswer {
        match self.until_stopped(self.try_upgrade(request, node, target)).await {
            Ok(answer) => answer,
            Err(error) => ProxyAnswer { response: refuse(node, target, error), ended: None },
        }
    }

    /// Passes on a body of the node, for logs. It ends with the node's, or when the client no longer
    /// reads.
    pub(crate) async fn stream(
        &self,
        node: &NodeAddress,
        target: &NodeTarget,
    ) -> Response<ProxyBody> {
        match self.until_stopped(self.try_stream(node, target)).await {
            Ok(response) => response,
            Err(error) => refuse(node, target, error),
        }
    }

    /// Passes on a body of the node together with what the node says it is, for any path that can be
    /// read.
    pub(crate) async fn get(&self, node: &NodeAddress, target: &NodeTarget) -> Response<ProxyBody> {
        match self.until_stopped(self.try_get(node, target)).await {
            Ok(response) => response,
            Err(error) => refuse(node, target, error),
        }
    }

    /// Refuses new requests, waits up to `grace` for sessions to end, and then ends them.
    pub(crate) async fn shutdown(&self, grace: Duration) {
        self.tasks.close();
        // What remains is ended now, so it does not matter whether the time was enough.
        let _ = timeout(grace, self.tasks.wait()).await;
        self.stop.cancel();
        self.tasks.wait().await;
    }

    async fn try_upgrade<B>(
        &self,
        request: Request<B>,
        node: &NodeAddress,
        target: &NodeTarget,
    ) -> Result<ProxyAnswer, ProxyError> {
        if !headers::is_upgrade(&request) {
            return Err(ProxyError::UpgradeRequired);
        }
        let connection = self.connect(node, request.method().clone(), target).await;
        let connection = connection.map_err(ProxyError::Dial)?;
        let mut sent = headers::for_server(request.headers());
        if let Some(token) = target.session() {
            sent.insert(SESSION_HEADER, token.clone());
        }
        let sent = connection.send(sent);
        let (answer, guard) = match timeout(self.limits.answer, sent).await {
            Ok(answered) => answered.map_err(ProxyError::Exchange)?,
            Err(_) => return Err(ProxyError::Silent),
        };
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.refusal(answer).await);
        }
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers::for_client(answer.headers());
        let ended = self.start_session(upgrade::on(request), upgrade::on(answer), guard);
        Ok(ProxyAnswer { response, ended: Some(ended) })
    }

    async fn try_stream(
        &self,
        node: &NodeAddress,
        target: &NodeTarget,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let mut response = self.try_get(node, target).await?;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(response)
    }

    async fn try_get(
        &self,
        node: &NodeAddress,
        target: &NodeTarget,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let connection = self.connect(node, Method::GET, target).await;
        let url = || format!("https://{node}{}", target.path());
        let connection = connection.map_err(|cause| ProxyError::Get { url: url(), cause })?;
        // There is no limit here: a kubelet that follows a quiet log sends its first byte, headers
        // included, with the first line.
        let mut sent = HeaderMap::new();
        if target.is_trace() {
            sent.insert(TRACE_HEADER, HeaderValue::from_static("1"));
        }
        let (answer, guard) = connection.send(sent).await.map_err(ProxyError::Exchange)?;
        if !answer.status().is_success() {
            return Err(self.refusal(answer).await);
        }
        let kind = answer.headers().get(CONTENT_TYPE).cloned();
        let body = answer.into_body().map_err(Into::into);
        // The connection lives exactly as long as the body is read.
        let body = body.map_frame(move |frame| {
            let _: &DropGuard = &guard;
            frame
        });
        let mut response = Response::new(body.boxed_unsync());
        if let Some(kind) = kind {
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        Ok(response)
    }

    fn start_session(
        &self,
        client: OnUpgrade,
        node: OnUpgrade,
        guard: DropGuard,
    ) -> oneshot::Receiver<StreamEnd> {
        let (sender, ended) = oneshot::channel();
        let (limits, stop) = (self.limits.idle, self.stop.clone());
        let session = async move {
            let end = run_session(client, node, limits, &stop).await;
            drop(guard);
            // Nobody has to wait for it.
            let _ = sender.send(end);
        };
        self.tasks.spawn(session.instrument(Span::current()));
        ended
    }

    async fn until_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, ProxyError>>,
    ) -> Result<T, ProxyError> {
        if self.tasks.is_closed() {
            return Err(ProxyError::ShuttingDown);
        }
        self.stop.run_until_cancelled(work).await.unwrap_or(Err(ProxyError::ShuttingDown))
    }

    async fn refusal(&self, answer: Response<Incoming>) -> ProxyError {
        let (head, body) = answer.into_parts();
        let mut text = BytesMut::new();
        // Whatever has come by then is all that is told.
        let _ = timeout(self.limits.answer, read_some(body, &mut text)).await;
        ProxyError::Node(NodeRefusal::new(&head, &text))
    }
}

impl Drop for NodeProxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The answer to a request for an upgrade.
pub(crate) struct ProxyAnswer {
    /// To be sent to the client; 101 if the node upgraded.
    pub(crate) response: Response<ProxyBody>,
    /// Says how the session ended; `None` if there is none.
    pub(crate) ended: Option<oneshot::Receiver<StreamEnd>>,
}

/// How long a node may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyLimits {
    /// For TCP.
    pub(crate) dial: Duration,
    /// For TLS.
    pub(crate) handshake: Duration,
    /// To answer a request for an upgrade, and to send the text of a refusal.
    pub(crate) answer: Duration,
    pub(crate) idle: IdleLimits,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            answer: Duration::from_secs(60),
            idle: IdleLimits::default(),
        }
    }
}

/// As much of a refusal as is told to the client.
const REFUSAL_LIMIT: usize = 64 * 1024;

async fn run_session(
    client: OnUpgrade,
    node: OnUpgrade,
    limits: IdleLimits,
    stop: &CancellationToken,
) -> StreamEnd {
    let unstarted = |cause| StreamEnd { from_client: 0, from_server: 0, cause };
    let both = async { tokio::try_join!(client, node) };
    match stop.run_until_cancelled(both).await {
        Some(Ok((client, node))) => {
            splice(TokioIo::new(client), TokioIo::new(node), limits, stop).await
        }
        Some(Err(_)) => unstarted(EndCause::NotUpgraded),
        None => unstarted(EndCause::Shutdown),
    }
}

async fn read_some(mut body: Incoming, text: &mut BytesMut) {
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            let room = REFUSAL_LIMIT - text.len();
            text.extend(data.iter().take(room));
        }
        if text.len() == REFUSAL_LIMIT {
            return;
        }
    }
}

fn refuse(node: &NodeAddress, target: &NodeTarget, error: ProxyError) -> Response<ProxyBody> {
    let cause = error.source().map(ToString::to_string);
    tracing::debug!(%node, path = target.path(), %error, cause, "node request failed");
    error.into_response()
}

fn empty() -> ProxyBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
