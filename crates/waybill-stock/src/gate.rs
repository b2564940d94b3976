//! `waybill gate`: the admission webhooks of CSI-21 and CSI-22.
//!
//! `/validate` judges ProviderClasses, `/validate-pods` the pods that use them. The gate keeps nothing:
//! it follows the classes of the cluster and asks the API server about rights, so any number of
//! replicas may run. When it cannot judge, it answers with an HTTP error and no verdict; then the
//! `failurePolicy` of the webhook decides, which is where an operator chooses between open and closed.

mod body;
mod class;
mod classes;
mod connection;
mod metrics;
mod peers;
mod pod;
mod review;
pub(crate) mod rights;
mod tls;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use kube::Client;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_core::chain::Chain;

pub use self::tls::{PairPaths, TlsError};
use self::{
    body::Room,
    classes::Classes,
    metrics::{Metrics, Outcome, Webhook},
    peers::{Peer, Peers},
    review::{Review, Verdict},
    rights::Rights,
    tls::Tls,
};

/// How often the files of TLS are looked at.
const REFRESH: Duration = Duration::from_secs(10);

/// An object has 1.5 MiB at most in etcd; a review holds the new one and the old one.
const BODY_BYTES: usize = 7 << 20;

/// How much text of reviews is in memory as documents at once, in KiB; those can be thirty times as large.
/// The memory limit in `deploy/gate/gate.yaml` has room for that, for texts that are read and for connections.
const READ_AT_ONCE: usize = 11 << 10;

/// How a gate is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The certificate that API servers are shown; read again when it changes.
    pub serving: PairPaths,
    /// The API group of ProviderClasses in this cluster.
    pub group: String,
}

/// A gate that runs. Dropping it ends everything at once.
pub struct Gate {
    address: SocketAddr,
    service: Arc<Service>,
    tasks: TaskTracker,
}

impl Gate {
    /// Starts a gate for the cluster of `client`. It listens when this returns, and is ready when it
    /// knows the classes.
    pub async fn start(config: Config, client: Client) -> Result<Self, GateError> {
        let tls = Arc::new(Tls::read(config.serving).map_err(GateError::Tls)?);
        let listen = |source| GateError::Listen { listen: config.listen, source };
        let socket = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let service = Arc::new(Service {
            classes: Classes::new(client.clone(), &config.group),
            rights: Rights::new(client, config.group),
            metrics: Metrics::default(),
            peers: Arc::default(),
            room: Room::default(),
            reading: Semaphore::new(READ_AT_ONCE),
            leaving: AtomicBool::new(false),
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        tasks.spawn(connection::accept(socket, Arc::clone(&tls), Arc::clone(&service)));
        tasks.spawn(stop.clone().run_until_cancelled_owned(refresh(tls)));
        let followed = Arc::clone(&service);
        tasks.spawn(stop.run_until_cancelled_owned(async move { followed.classes.follow().await }));
        Ok(Self { address, service, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says that it is not ready any more, and goes on for `drain`, so that nobody is sent here who would
    /// find the door closed.
    pub async fn leave(&self, drain: Duration) {
        self.service.leaving.store(true, Ordering::Relaxed);
        sleep(drain).await;
    }

    /// Finishes what is under way, and ends.
    pub async fn stop(self) {
        self.service.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.service.stop.cancel();
    }
}

/// Why a gate does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// The address is not free, or not ours.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot set up TLS")]
    Tls(#[source] TlsError),
}

type Answer = Response<Full<Bytes>>;

/// What answers requests.
struct Service {
    classes: Classes,
    rights: Rights,
    metrics: Metrics,
    peers: Arc<Peers>,
    room: Room,
    /// For the text of reviews that are judged now.
    reading: Semaphore,
    /// It was told to end soon.
    leaving: AtomicBool,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Service {
    async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Answer {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/validate") => self.review(Webhook::Classes, peer, request).await,
            (&Method::POST, "/validate-pods") => self.review(Webhook::Pods, peer, request).await,
            (&Method::GET, "/healthz") => text(StatusCode::OK, "ok"),
            (&Method::GET, "/readyz") => self.readiness(),
            (&Method::GET, "/metrics") => {
                text(StatusCode::OK, self.metrics.text(self.classes.count()))
            }
            (_, "/validate" | "/validate-pods" | "/healthz" | "/readyz" | "/metrics") => {
                text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
            }
            _ => text(StatusCode::NOT_FOUND, "not found"),
        }
    }

    /// Whether pods can be judged; classes alone can always be.
    fn readiness(&self) -> Answer {
        match self.classes.fault() {
            _ if self.leaving.load(Ordering::Relaxed) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "not ready: this gate is about to end")
            }
            Some(fault) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {fault}")),
            None => text(StatusCode::OK, "ok"),
        }
    }

    async fn review(&self, webhook: Webhook, peer: &Peer, request: Request<Incoming>) -> Answer {
        let begun = Instant::now();
        let (outcome, answer) = match self.judge(webhook, peer, request).await {
            Ok((uid, verdict)) => {
                let outcome = if verdict.is_allowed() { Outcome::Allowed } else { Outcome::Denied };
                (outcome, json(&review::answer(&uid, &verdict)))
            }
            Err(error) => {
                tracing::warn!(webhook = webhook.name(), error = %Chain(&error), "no verdict");
                (error.outcome(), text(error.status(), Chain(&error).to_string()))
            }
        };
        self.metrics.review(webhook, outcome, begun.elapsed());
        answer
    }

    async fn judge(
        &self,
        webhook: Webhook,
        peer: &Peer,
        request: Request<Incoming>,
    ) -> Result<(String, Verdict), JudgeError> {
        let text = self.room.read(peer, request.into_body()).await?;
        let kibibytes = u32::try_from(body::kibibytes(text.bytes.len())).unwrap_or(u32::MAX);
        let _reading = self.reading.acquire_many(kibibytes).await;
        let review = Review::read(&text.bytes).map_err(JudgeError::Review)?;
        let verdict = match webhook {
            Webhook::Classes => class::judge(&review),
            Webhook::Pods => self.judge_pod(&review).await?,
        };
        if let Some(refusal) = verdict.refusal() {
            let (namespace, name) = (review.namespace.as_str(), review.object_name());
            let reason = refusal.message();
            tracing::info!(webhook = webhook.name(), namespace, name, reason, "refused");
        }
        Ok((review.uid, verdict))
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum JudgeError {
    #[error("the body could not be read, or has more than {BODY_BYTES} bytes")]
    Body,
    #[error("too many large reviews are read at the moment")]
    Busy,
    #[error("the classes of the cluster are not known: {0}")]
    Classes(String),
    #[error("the API server could not be asked for a ProviderClass")]
    Class(#[source] Box<kube::Error>),
    #[error("the API server could not be asked what a service account may use")]
    Rights(#[source] rights::RightsError),
    #[error("the body is no review")]
    Review(#[source] review::ReviewError),
    #[error("the body took too long")]
    SlowBody,
}

impl JudgeError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Review(_) => StatusCode::BAD_REQUEST,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::Busy | Self::Class(_) | Self::Classes(_) | Self::Rights(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Body | Self::Review(_) | Self::SlowBody => Outcome::Unreadable,
            Self::Busy | Self::Class(_) | Self::Classes(_) | Self::Rights(_) => Outcome::Failed,
        }
    }
}

fn json(value: &Value) -> Answer {
    answer(StatusCode::OK, "application/json", value.to_string())
}

fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    answer(status, "text/plain; charset=utf-8", text.into())
}

fn answer(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    answer
}

/// Certificates are renewed while the gate runs.
async fn refresh(tls: Arc<Tls>) {
    loop {
        sleep(REFRESH).await;
        match tls.refresh() {
            Ok(true) => tracing::info!("the certificate was read again"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the certificate cannot be read again");
            }
        }
    }
}
