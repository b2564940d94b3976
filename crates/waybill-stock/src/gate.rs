//! `waybill gate`: the admission webhooks of a cluster whose API server is not ours.
//!
//! `/validate` judges ProviderClasses and `/validate-pods` the pods that use them (CSI-21, CSI-22). `/exec-enforce` and `/exec-record` sign
//! exec sessions into their commands, `/attach` records sessions that cannot be signed, `/debug-enforce` and `/debug-record` sign ephemeral
//! containers, and `/new-pods` gives pods what their references need. All of them are served below `/apis/exec.waybill.dev/v1/hooks/` as well, where an
//! API server reaches them through its own aggregator, and with them the rest of that group.
//!
//! What the gate keeps is in memory and dies with it: a signing key, whose public half is published, and the newest records. So any number
//! of replicas may run. When it cannot judge, it answers with an HTTP error and no verdict; then the `failurePolicy` of the webhook
//! decides, which is where an operator chooses between open and closed.

mod aggregated;
mod ask;
mod authority;
mod body;
mod callers;
mod certificates;
mod class;
mod classes;
mod connection;
mod debug;
mod keys;
mod metrics;
mod mutate;
mod nodes;
mod peers;
mod pod;
mod records;
mod references;
mod review;
pub(crate) mod rights;
mod session;
mod siblings;
pub(crate) mod signer;
pub(crate) mod tls;
mod trust;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use kube::Client;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::names::{label_faults, subdomain_faults};
use waybill_core::chain::Chain;

use self::{
    aggregated::Asked,
    body::Room,
    callers::Asker,
    certificates::Certificates,
    classes::Classes,
    keys::Keys,
    metrics::{Metrics, Outcome, Webhook},
    peers::{Peer, Peers},
    records::Records,
    review::{Review, Verdict},
    rights::Rights,
    siblings::Shared,
    signer::session_id,
    tls::{Tls, Watched},
    trust::Trust,
};
pub use self::{
    callers::Caller,
    records::RecordOutput,
    tls::{PairPaths, TlsError},
};

/// How often the files of TLS are looked at.
const REFRESH: Duration = Duration::from_secs(10);

/// How long a look at a pod or a key may take; shorter than a webhook may.
const POD_LIMIT: Duration = Duration::from_secs(3);

/// An object has 1.5 MiB at most in etcd; a review holds the new one and the old one.
const BODY_BYTES: usize = 7 << 20;

/// How much text of reviews is in memory as documents at once, in KiB; those can be thirty times as large.
/// The memory limit in `deploy/gate/gate.yaml` has room for that, for texts that are read and for connections.
const READ_AT_ONCE: usize = 11 << 10;

/// Seconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a gate is set up.
#[derive(Clone)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address at which other replicas reach this one; without it records are not shared.
    pub advertise: Option<IpAddr>,
    /// The certificate that API servers are shown.
    pub serving: Serving,
    /// Whose questions are answered.
    pub caller: Caller,
    /// The API group of ProviderClasses in this cluster.
    pub group: String,
    /// The namespace of the gate's own objects, and of those of nodes.
    pub namespace: String,
    /// How long a new key is published before it signs.
    pub key_lead: Duration,
    /// The time.
    pub clock: Clock,
}

/// Where the certificate comes from that API servers are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// From files, which are read again when they change.
    Files(PairPaths),
    /// The gate makes it, for these DNS names and addresses, and writes its authority into our webhook configurations.
    Own(Vec<String>),
}

/// A gate that runs. Dropping it ends everything at once.
pub struct Gate {
    address: SocketAddr,
    service: Arc<Service>,
    tasks: TaskTracker,
}

impl Gate {
    /// Starts a gate for the cluster of `client`, whose records go to `records`. It listens when this returns, and is ready when
    /// it knows the classes and its key is published.
    pub async fn start(
        config: Config,
        client: Client,
        records: RecordOutput,
    ) -> Result<Self, GateError> {
        let tls = Arc::new(Tls::default());
        let trust = Arc::new(Trust::new(config.caller.clone(), client.clone()));
        trust.start(&tls).map_err(GateError::Tls)?;
        let listen = |source| GateError::Listen { listen: config.listen, source };
        let socket = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let trusted = Arc::clone(&trust);
        let service = Service::new(&config, address.port(), &client, records, trusted)?;
        let service = Arc::new(service);
        let tasks = service.tasks.clone();
        let gate = Self { address, service, tasks };
        gate.keep_certificate(config, client, &tls)?;
        let believing = Arc::clone(&tls);
        gate.run(async move { trust.follow(believing).await });
        let service = Arc::clone(&gate.service);
        gate.run(async move { service.classes.follow().await });
        let service = Arc::clone(&gate.service);
        gate.run(async move { service.keys.keep().await });
        let service = Arc::clone(&gate.service);
        gate.run(async move { service.follow_siblings().await });
        gate.tasks.spawn(connection::accept(socket, tls, Arc::clone(&gate.service)));
        Ok(gate)
    }

    /// Shows a certificate and keeps it current.
    fn keep_certificate(
        &self,
        config: Config,
        client: Client,
        tls: &Arc<Tls>,
    ) -> Result<(), GateError> {
        let tls = Arc::clone(tls);
        let Config { serving, namespace, clock, .. } = config;
        match serving {
            Serving::Files(paths) => {
                let mut files = Watched::new([paths.certificate.clone(), paths.key.clone()]);
                files.refresh(|| tls::show_files(&tls, &paths)).map_err(GateError::Tls)?;
                self.run(refresh(tls, files, paths));
            }
            Serving::Own(names) => {
                let shared = Arc::clone(&self.service.shared);
                let own = Certificates { client, namespace, names, shared, clock };
                self.run(async move { own.keep(tls).await });
            }
        }
        Ok(())
    }

    /// Runs something until the gate is told to stop.
    fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.service.stop.clone().run_until_cancelled_owned(task));
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
        // By now the others have its records.
        self.service.keys.leave().await;
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
    /// There are no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The certificate or its key cannot be used.
    #[error("cannot set up TLS")]
    Tls(#[source] TlsError),
}

type Answer = Response<Full<Bytes>>;

/// What answers requests.
struct Service {
    classes: Classes,
    rights: Rights,
    keys: Keys,
    records: Records,
    /// Where other replicas reach this one.
    advertised: Option<String>,
    /// What is in the certificates of all replicas; none if an operator makes them.
    serving_name: Option<String>,
    /// Whom replicas believe.
    shared: Arc<Shared>,
    trust: Arc<Trust>,
    /// Of our objects.
    namespace: String,
    client: Client,
    clock: Clock,
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
    fn new(
        config: &Config,
        port: u16,
        client: &Client,
        records: RecordOutput,
        trust: Arc<Trust>,
    ) -> Result<Self, GateError> {
        let clock = || Arc::clone(&config.clock);
        let replica = session_id().map_err(|_| GateError::Random)?;
        let advertised = config.advertise.map(|ip| SocketAddr::new(ip, port).to_string());
        let (namespace, lead) = (&config.namespace, config.key_lead);
        let serving_name = match &config.serving {
            Serving::Files(_) => None,
            Serving::Own(names) => names.first().cloned(),
        };
        Ok(Self {
            classes: Classes::new(client.clone(), &config.group),
            rights: Rights::new(client.clone(), config.group.clone()),
            keys: Keys::new(client.clone(), namespace, advertised.clone(), lead, clock()),
            records: Records::new(records, replica.as_str()),
            advertised,
            serving_name,
            shared: Arc::default(),
            trust,
            namespace: config.namespace.clone(),
            client: client.clone(),
            clock: clock(),
            metrics: Metrics::default(),
            peers: Arc::default(),
            room: Room::default(),
            reading: Semaphore::new(READ_AT_ONCE),
            leaving: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Answers a request of a client that has proved to be `client`, if it has proved anything.
    async fn answer(
        &self,
        peer: &Peer,
        client: Option<&str>,
        request: Request<Incoming>,
    ) -> Answer {
        let path = request.uri().path().to_owned();
        match (request.method(), &*path) {
            (&Method::GET, "/healthz") => return text(StatusCode::OK, "ok"),
            (&Method::GET, "/readyz") => return self.readiness(),
            (&Method::GET, "/metrics") => {
                return text(StatusCode::OK, self.metrics.text(self.classes.count()));
            }
            (_, "/healthz" | "/readyz" | "/metrics") => return not_allowed(),
            _ => {}
        }
        if let Some(webhook) = Webhook::at(&path) {
            return match *request.method() {
                Method::POST if self.may_review(client, request.headers()) => {
                    self.review(webhook, peer, request).await
                }
                Method::POST => text(StatusCode::FORBIDDEN, "only API servers may ask this"),
                _ => not_allowed(),
            };
        }
        if path == siblings::PATH && request.method() == Method::POST {
            return self.answer_sibling(peer, request).await;
        }
        match Asked::at(&path) {
            Some(asked) if request.method() == Method::GET => {
                let asker = self.trust.asker(client, request.headers());
                let query = request.uri().query().unwrap_or_default().to_owned();
                self.answer_aggregated(asked, &query, asker).await
            }
            Some(_) => not_allowed(),
            None => text(StatusCode::NOT_FOUND, "not found"),
        }
    }

    async fn answer_sibling(&self, peer: &Peer, request: Request<Incoming>) -> Answer {
        if !self.is_sibling(request.headers()).await {
            self.metrics.refuse_stranger();
            return text(StatusCode::UNAUTHORIZED, "only other gates may ask this");
        }
        match self.room.read(peer, request.into_body()).await {
            Ok(asked) => self.tell_sibling(&asked.bytes),
            Err(error) => text(error.status(), Chain(&error).to_string()),
        }
    }

    fn may_review(&self, client: Option<&str>, headers: &HeaderMap) -> bool {
        let may = matches!(self.trust.asker(client, headers), Some(Asker::ApiServer));
        if !may {
            self.metrics.refuse_stranger();
        }
        may
    }

    /// Whether everything can be judged; classes alone can always be.
    fn readiness(&self) -> Answer {
        let faults = [self.classes.fault(), self.keys.fault(), self.trust.fault()];
        match faults.into_iter().flatten().next() {
            _ if self.leaving.load(Ordering::Relaxed) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "not ready: this gate is about to end")
            }
            Some(fault) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {fault}")),
            None => text(StatusCode::OK, "ok"),
        }
    }

    /// A pod as it is now; `None` if there is none.
    async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Value>, JudgeError> {
        // No pod can be called otherwise, and the names become part of an address.
        if !label_faults(namespace).is_empty() || !subdomain_faults(name).is_empty() {
            return Ok(None);
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let request = Request::get(path).body(Vec::new()).map_err(|_| JudgeError::SlowPod)?;
        let asked = timeout(POD_LIMIT, self.client.request::<Value>(request)).await;
        match asked.map_err(|_| JudgeError::SlowPod)? {
            Ok(pod) => Ok(Some(pod)),
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND => Ok(None),
            Err(error) => Err(JudgeError::Pod(Box::new(error))),
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
            Webhook::Attach => self.judge_attach(&review).await?,
            Webhook::Classes => class::judge(&review),
            Webhook::Debug(mode) => self.judge_debug(&review, mode).await?,
            Webhook::Exec(mode) => self.judge_exec(&review, mode).await?,
            Webhook::NewPods => self.judge_new_pod(&review).await?,
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
    #[error("nothing can be signed: {0}")]
    Keys(String),
    #[error("the API server could not be asked for a pod")]
    Pod(#[source] Box<kube::Error>),
    #[error("no verdict without a record")]
    Record(#[source] records::NotRecorded),
    #[error("the session could not be signed")]
    Sign(#[source] signer::SignerError),
    #[error("the API server did not answer for a pod")]
    SlowPod,
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
            Self::Busy
            | Self::Class(_)
            | Self::Classes(_)
            | Self::Keys(_)
            | Self::Pod(_)
            | Self::Record(_)
            | Self::Rights(_)
            | Self::Sign(_)
            | Self::SlowPod => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Body | Self::Review(_) | Self::SlowBody => Outcome::Unreadable,
            Self::Busy
            | Self::Class(_)
            | Self::Classes(_)
            | Self::Keys(_)
            | Self::Pod(_)
            | Self::Record(_)
            | Self::Rights(_)
            | Self::Sign(_)
            | Self::SlowPod => Outcome::Failed,
        }
    }
}

fn json(value: &Value) -> Answer {
    answer(StatusCode::OK, "application/json", value.to_string())
}

fn not_allowed() -> Answer {
    text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
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
async fn refresh(tls: Arc<Tls>, mut files: Watched, paths: PairPaths) {
    loop {
        sleep(REFRESH).await;
        match files.refresh(|| tls::show_files(&tls, &paths)) {
            Ok(true) => tracing::info!("the certificate was read again"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the certificate cannot be read again");
            }
        }
    }
}
