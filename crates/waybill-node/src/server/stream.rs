//! Passes exec, attach and port-forward sessions on to the runtime's streaming server.
//!
//! The client's upgrade is asked of the runtime, and when it is granted bytes are copied both ways, at
//! the pace of the slower side; nothing is read or queued here. The URL holds a token that is good
//! once, so it is never shown.

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, HOST},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body_util::{BodyExt, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1,
    upgrade::{self, OnUpgrade},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;
use waybill_stream::{
    open_connections::OpenConnection,
    splice::{IdleLimits, splice},
    upgrade::{for_client, for_server, is_upgrade},
};

use super::{
    Service,
    answer::{Answer, Refusal, switching, text},
    metrics::StreamKind,
};

/// How long the streaming server may take to be reached.
const DIAL: Duration = Duration::from_secs(10);

/// How long it may take to answer, and to send the text of a refusal.
const ANSWER: Duration = Duration::from_secs(60);

/// As much of a refusal as is passed on.
const REFUSAL: usize = 64 << 10;

/// A session that the runtime is ready to serve at an URL.
pub(super) struct Session {
    pub(super) kind: StreamKind,
    /// When the client asked for it.
    pub(super) asked: Instant,
    pub(super) url: String,
}

impl Service {
    /// Joins the client's connection with one to the runtime. The session begins when the answer is
    /// sent, and ends when both sides are done, when it is silent for too long, or when the node stops.
    pub(super) async fn pass_on(
        &self,
        request: Request<Incoming>,
        session: Session,
    ) -> Result<Answer, Refusal> {
        let (to, path) = destination(&session.url)?;
        let headers = for_server(request.headers());
        let asked = self.ask(&to, path, request.method().clone(), headers);
        let (answer, guard) = match timeout(ANSWER, asked).await {
            Ok(answered) => answered?,
            Err(_) => return Err(StreamError::Silent.into()),
        };
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(StreamError::Refused(Box::new(Refused::read(answer).await)).into());
        }
        let switching = switching(for_client(answer.headers()));
        // It counts as a connection until it ends.
        let open = request.extensions().get::<Arc<OpenConnection>>().cloned();
        let kept = (guard, open);
        self.run(&session, upgrade::on(request), upgrade::on(answer), kept);
        Ok(switching)
    }

    async fn ask(
        &self,
        to: &Authority,
        path: PathAndQuery,
        method: Method,
        mut headers: HeaderMap,
    ) -> Result<(Response<Incoming>, DropGuard), StreamError> {
        let stream = dial(to).await?;
        let http = |source| StreamError::Http { to: to.clone(), source };
        let (mut sender, connection) =
            http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(http)?;
        let alive = self.stop.child_token();
        let guard = alive.clone().drop_guard();
        self.tasks.spawn(async move {
            // Its errors reach whoever waits for the answer.
            let _ = alive.run_until_cancelled(connection.with_upgrades()).await;
        });
        let host = HeaderValue::from_str(to.as_str());
        headers.insert(HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path);
        *request.headers_mut() = headers;
        Ok((sender.send_request(request).await.map_err(http)?, guard))
    }

    fn run(
        &self,
        session: &Session,
        client: OnUpgrade,
        runtime: OnUpgrade,
        kept: (DropGuard, Option<Arc<OpenConnection>>),
    ) {
        let meter = self.metrics.session(session.kind, session.asked.elapsed());
        let stop = self.stop.clone();
        let work = async move {
            let _kept = kept;
            join(client, runtime, &stop).await;
            drop(meter);
        };
        self.tasks.spawn(work.in_current_span());
    }
}

/// Why a session could not be passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("the runtime gave no URL that streams can be asked of")]
    Url,
    #[error("cannot reach the runtime's streaming server at {to}: {source}")]
    Dial { to: Authority, source: io::Error },
    #[error("the runtime's streaming server at {to} broke off: {}", cause(.source))]
    Http { to: Authority, source: hyper::Error },
    #[error("the runtime's streaming server did not answer in time")]
    Silent,
    #[error("{}", String::from_utf8_lossy(&.0.text))]
    Refused(Box<Refused>),
}

/// A refusal of the streaming server, which is passed on.
#[derive(Debug)]
pub(super) struct Refused {
    code: StatusCode,
    headers: HeaderMap,
    text: Bytes,
}

/// Names the versions that a SPDY server knows when it refuses those of the client.
const ACCEPTED: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

impl Refused {
    async fn read(answer: Response<Incoming>) -> Self {
        let (head, mut body) = answer.into_parts();
        let mut bytes = BytesMut::new();
        let read = async {
            while let Some(Ok(frame)) = body.frame().await
                && bytes.len() < REFUSAL
            {
                let data = frame.into_data().unwrap_or_default();
                bytes.extend(data.iter().take(REFUSAL - bytes.len()));
            }
        };
        // Whatever has come by then is all that is told.
        let _ = timeout(ANSWER, read).await;
        let names = [CONTENT_TYPE, ACCEPTED];
        let kept = |name: HeaderName| {
            let values: Vec<_> = head.headers.get_all(&name).iter().cloned().collect();
            values.into_iter().map(move |value| (name.clone(), value))
        };
        let headers = names.into_iter().flat_map(kept).collect();
        // A success without upgrade is none.
        let refused = head.status.is_client_error() || head.status.is_server_error();
        let code = if refused { head.status } else { StatusCode::BAD_GATEWAY };
        Self { code, headers, text: bytes.freeze() }
    }

    pub(super) fn answer(&self) -> Answer {
        let mut answer = text(self.code, self.text.clone());
        answer.headers_mut().extend(self.headers.clone());
        answer
    }
}

/// Whether the request can become a session at all.
pub(super) fn require_upgrade(request: &Request<Incoming>) -> Result<(), Refusal> {
    if is_upgrade(request) { Ok(()) } else { Err(Refusal::UpgradeRequired) }
}

async fn join(client: OnUpgrade, runtime: OnUpgrade, stop: &CancellationToken) {
    let both = async { tokio::try_join!(client, runtime) };
    if let Some(Ok((client, runtime))) = stop.run_until_cancelled(both).await {
        let (client, runtime) = (TokioIo::new(client), TokioIo::new(runtime));
        let end = splice(client, runtime, IdleLimits::default(), stop).await;
        tracing::debug!(
            cause = ?end.cause,
            from_client = end.from_client,
            from_runtime = end.from_server,
            "session ended"
        );
    }
}

fn destination(url: &str) -> Result<(Authority, PathAndQuery), StreamError> {
    let parts = url.parse::<Uri>().map_err(|_| StreamError::Url)?.into_parts();
    match (parts.scheme, parts.authority, parts.path_and_query) {
        (Some(scheme), Some(authority), Some(path)) if scheme == Scheme::HTTP => {
            Ok((authority, path))
        }
        _ => Err(StreamError::Url),
    }
}

async fn dial(to: &Authority) -> Result<TcpStream, StreamError> {
    let host = to.host().trim_start_matches('[').trim_end_matches(']');
    let connect = TcpStream::connect((host, to.port_u16().unwrap_or(80)));
    let stream = match timeout(DIAL, connect).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let stream = stream.map_err(|source| StreamError::Dial { to: to.clone(), source })?;
    // Sessions are typed by hand; without it they are only slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn cause(error: &hyper::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_urls_with_a_host_are_asked() {
        #[track_caller]
        fn check(url: &str, expected: Option<(&str, &str)>) {
            let found = destination(url).ok();
            let found = found.as_ref().map(|(to, path)| (to.as_str(), path.as_str()));
            assert_eq!(found, expected, "{url}");
        }
        check("http://127.0.0.1:4000/exec/t", Some(("127.0.0.1:4000", "/exec/t")));
        check("http://[::1]:4000/exec/t?a=b", Some(("[::1]:4000", "/exec/t?a=b")));
        check("http://localhost", Some(("localhost", "/")));
        check("https://127.0.0.1:4000/exec/t", None);
        check("/exec/t", None);
        check("127.0.0.1:4000", None);
        check("", None);
    }

    #[tokio::test]
    async fn an_error_names_the_server_and_not_the_token() {
        let (to, _) = destination("http://127.0.0.1:1/exec/secret").unwrap();
        let error = dial(&to).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("127.0.0.1:1") && !text.contains("secret"), "{text}");
    }
}
