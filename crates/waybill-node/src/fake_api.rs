//! An API server for tests: answers as a test says, and tells it what was asked.

use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Frame, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

impl Call {
    /// Method and path.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What is answered.
pub(crate) enum Reply {
    Json(u16, Value),
    /// Events of a watch, until the sender is dropped.
    Watch(mpsc::UnboundedReceiver<Value>),
    /// The connection is cut.
    Cut,
}

impl Reply {
    pub(crate) fn ok(value: Value) -> Self {
        Self::Json(200, value)
    }

    /// A refusal with this code.
    pub(crate) fn refuse(code: u16, reason: &str) -> Self {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
            "message": reason, "code": code,
        });
        Self::Json(code, status)
    }
}

/// A server that ends with the test.
pub(crate) struct FakeApi {
    pub(crate) client: Client,
    calls: mpsc::UnboundedReceiver<Call>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl FakeApi {
    /// Starts a server that answers with `answer`.
    pub(crate) async fn start(answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let answer: Answer = Arc::new(answer);
        let serving = serve(listener, answer, sender, tasks.clone(), stop.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(serving));
        let uri = format!("http://{address}").parse().unwrap();
        let client = Client::try_from(kube::Config::new(uri)).unwrap();
        Self { client, calls, tasks, stop }
    }

    /// The next request.
    pub(crate) async fn next(&mut self) -> Call {
        self.calls.recv().await.unwrap()
    }

    /// A request that was made already.
    pub(crate) fn seen(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }
}

type Answer = Arc<dyn Fn(&Call) -> Reply + Send + Sync>;

async fn serve(
    listener: TcpListener,
    answer: Answer,
    calls: mpsc::UnboundedSender<Call>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (answer, calls) = (Arc::clone(&answer), calls.clone());
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (answer, calls) = (Arc::clone(&answer), calls.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map_err(|_| Gone)?.to_bytes();
                let content_type = parts.headers.get(CONTENT_TYPE);
                let call = Call {
                    method: parts.method,
                    path: parts.uri.path().to_owned(),
                    query: parts.uri.query().unwrap_or_default().to_owned(),
                    content_type: content_type.map_or("", |v| v.to_str().unwrap()).to_owned(),
                    body: serde_json::from_slice(&body).unwrap_or(Value::Null),
                };
                let reply = answer(&call);
                let _ = calls.send(call);
                respond(reply)
            }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let connection = async { drop(connection.await) };
        tasks.spawn(stop.clone().run_until_cancelled_owned(connection));
    }
}

/// Ends a connection.
#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Gone;

fn respond(reply: Reply) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Gone> {
    let (status, body) = match reply {
        Reply::Cut => return Err(Gone),
        Reply::Json(status, value) => {
            let bytes = Bytes::from(serde_json::to_vec(&value).unwrap());
            (status, BodyExt::boxed_unsync(http_body_util::Full::new(bytes)))
        }
        Reply::Watch(events) => {
            let lines = stream::unfold(events, async |mut events| {
                let event: Value = events.recv().await?;
                let line = Bytes::from(format!("{event}\n"));
                Some((Ok(Frame::data(line)), events))
            });
            (200, BodyExt::boxed_unsync(StreamBody::new(lines)))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
    Ok(response)
}
