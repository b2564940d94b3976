//! The node's own API: exec, attach, port-forward, logs, and what monitors ask.
//!
//! HTTPS alone. Every request is authenticated, then authorized, then routed; nobody is anonymous.
//! Queries of exec hold values of variables and are logged nowhere.

mod answer;
mod authn;
mod authz;
mod cache;
mod connection;
mod containers;
mod exec;
mod features;
mod log;
mod metrics;
mod pods;
mod route;
mod running;
mod session;
mod stats;
mod stream;
mod tls;
mod trace;

#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{Request, StatusCode};
use hyper::body::Incoming;
use kube::Client;
use serde_json::Value;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::gates::FeatureGates;
use waybill_core::chain::Chain;
use waybill_stream::{
    long_target,
    open_connections::{MostConnections, OpenConnection, OpenConnections},
};

use self::{
    answer::{Answer, Refusal, json, text},
    authn::{Authenticator, Peer},
    authz::Authorizer,
    features::Features,
    route::{Attributes, ContainerPath, PodPath, Route, RouteError},
    running::RunningIds,
    session::Sessions,
    tls::Tls,
};
pub use self::{exec::ExecEnvPolicy, session::ExecSessionPolicy, tls::PairPaths};
pub(crate) use self::{metrics::Metrics, tls::TlsError};
use crate::{Clock, cri::Runtime, pod::Pod};

/// How often the files of TLS are looked at.
const REFRESH: Duration = Duration::from_secs(10);

/// How the node's API is set up.
#[derive(Clone)]
pub(crate) struct ServerConfig {
    /// Port 0 takes a free one.
    pub(crate) listen: SocketAddr,
    pub(crate) serving: PairPaths,
    /// Who vouches for client certificates.
    pub(crate) client_ca: PathBuf,
    /// The name of this node, whose use callers must be allowed.
    pub(crate) node_name: String,
    pub(crate) gates: FeatureGates,
    pub(crate) exec_env: ExecEnvPolicy,
    pub(crate) exec_sessions: ExecSessionPolicy,
    pub(crate) clock: Clock,
    pub(crate) connections: MostConnections,
    /// The socket of whoever records what runs in sessions.
    pub(crate) collector: Option<PathBuf>,
}

/// What the node's API is made from.
pub(crate) struct ServerParts {
    pub(crate) pods: Arc<dyn PodLookup>,
    pub(crate) runtime: Runtime,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) provenance: Arc<dyn ProvenanceLookup>,
    pub(crate) metrics: Arc<Metrics>,
    /// Who reviews tokens and rights. Without it only certificates of two groups are served.
    pub(crate) cluster: Option<Client>,
}

/// The pods that the node knows.
pub(crate) trait PodLookup: Send + Sync {
    /// By name, and by uid if one is given.
    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<Pod>>;

    fn all(&self) -> Vec<Arc<Pod>>;
}

/// Where warnings about pods go.
pub(crate) trait EventSink: Send + Sync {
    /// Never blocks.
    fn warn(&self, pod: &Pod, reason: &str, message: &str);
}

/// Where the variables of containers come from.
pub(crate) trait ProvenanceLookup: Send + Sync {
    /// Names and origins of one container's variables, without values; `None` if it was not started.
    fn find(&self, pod: &Pod, container: &str) -> Option<Value>;
}

/// A server that runs. Dropping it ends everything at once.
pub(crate) struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Starts a server; it serves when this returns.
    pub(crate) async fn start(
        config: ServerConfig,
        parts: ServerParts,
    ) -> Result<Self, ServerError> {
        let tls = Tls::read(config.serving, config.client_ca).map_err(ServerError::Tls)?;
        let tls = Arc::new(tls);
        let listen = |source| ServerError::Listen { listen: config.listen, source };
        let socket = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let service = Arc::new(Service {
            gates: config.gates,
            exec_env: config.exec_env,
            authenticator: Authenticator::new(parts.cluster.clone(), Arc::clone(&config.clock)),
            sessions: Sessions::new(
                config.exec_sessions,
                parts.cluster.clone(),
                Arc::clone(&config.clock),
            ),
            authorizer: Authorizer::new(parts.cluster, &config.node_name),
            node_name: config.node_name,
            clock: config.clock,
            pods: parts.pods,
            runtime: parts.runtime,
            events: parts.events,
            provenance: parts.provenance,
            metrics: parts.metrics,
            features: Features::default(),
            running_ids: RunningIds::default(),
            collector: config.collector,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let connections = OpenConnections::new(config.connections);
        let accepting =
            connection::accept(socket, Arc::clone(&tls), Arc::clone(&service), connections);
        tasks.spawn(accepting);
        let background = async move {
            service.sessions.prepare().await;
            refresh(tls).await;
        };
        tasks.spawn(stop.clone().run_until_cancelled_owned(background));
        Ok(Self { address, stop, tasks })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends everything, sessions included, and waits for it.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    #[error("cannot listen on {listen}")]
    Listen {
        listen: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot set up TLS for the node's API")]
    Tls(#[source] TlsError),
}

/// What answers requests.
struct Service {
    node_name: String,
    gates: FeatureGates,
    exec_env: ExecEnvPolicy,
    sessions: Sessions,
    clock: Clock,
    authenticator: Authenticator,
    authorizer: Authorizer,
    pods: Arc<dyn PodLookup>,
    runtime: Runtime,
    events: Arc<dyn EventSink>,
    provenance: Arc<dyn ProvenanceLookup>,
    metrics: Arc<Metrics>,
    features: Features,
    running_ids: RunningIds,
    collector: Option<PathBuf>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Service {
    /// Answers one request.
    async fn answer(&self, peer: Option<&Peer>, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let mut label = "other";
        let answer = match self.serve(peer, request, &mut label).await {
            Ok(answer) => answer,
            Err(refusal) => {
                tracing::debug!(%method, path, error = %Chain(&refusal), "request refused");
                refusal.answer()
            }
        };
        self.metrics.request(&method, label, answer.status().as_u16());
        answer
    }

    async fn serve(
        &self,
        peer: Option<&Peer>,
        request: Request<Incoming>,
        label: &mut &'static str,
    ) -> Result<Answer, Refusal> {
        let asked = Instant::now();
        let (method, path) = (request.method(), request.uri().path());
        let user = self.authenticator.authenticate(peer, request.headers()).await?;
        if let Some(open) = request.extensions().get::<Arc<OpenConnection>>() {
            open.note_known();
        }
        let attributes = Attributes::of(method, path).ok_or(Refusal::Method)?;
        self.authorizer.authorize(&user, &attributes).await?;
        let route = Route::find(method, path)?;
        *label = route.label();
        match &route {
            Route::Attach(path) => self.attach(request, path, asked).await,
            Route::Environment(path) => self.environment(path),
            Route::Exec(path) => self.exec(request, path, asked).await,
            Route::Health => Ok(text(StatusCode::OK, "ok")),
            Route::Logs(path) => self.logs(path, long_target::query(&request)).await,
            Route::Metrics => Ok(answer::metrics(self.metrics.text(self.pods.all().len()))),
            Route::Pods => self.pods(),
            Route::PortForward(path) => self.port_forward(request, path, asked).await,
            Route::RunningPods => self.running_pods().await,
            Route::StatsSummary => self.stats_summary().await,
            Route::Trace => self.trace(&user, &request).await,
        }
    }

    fn environment(&self, path: &ContainerPath) -> Result<Answer, Refusal> {
        let pod = self.find_pod(&path.pod)?;
        let name = &path.container;
        if pod.container(name).is_none() {
            return Err(Refusal::ContainerNotFound(name.clone()));
        }
        let unknown = || {
            let reason = "it was not made yet, or by a node that kept no notes";
            Refusal::NotFound(format!("nothing is known of the variables of {name:?}: {reason}"))
        };
        json(&self.provenance.find(&pod, name).ok_or_else(unknown)?)
    }

    fn find_pod(&self, path: &PodPath) -> Result<Arc<Pod>, Refusal> {
        let found = self.pods.find(&path.namespace, &path.name, path.uid.as_deref());
        found.ok_or(Refusal::PodNotFound)
    }
}

impl From<RouteError> for Refusal {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::Method => Self::Method,
            RouteError::NoSuchPath => Self::NoSuchPath,
        }
    }
}

/// Certificates are renewed while the node runs.
async fn refresh(tls: Arc<Tls>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        match tls.refresh() {
            Ok(true) => tracing::info!("the certificates of the node's API were read again"),
            Ok(false) => {}
            Err(error) => {
                let error = Chain(&error);
                tracing::warn!(%error, "the certificates of the node's API cannot be read again");
            }
        }
    }
}
