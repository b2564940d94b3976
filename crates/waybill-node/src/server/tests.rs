//! The server as its clients see it: over TLS, with a runtime, a streaming server and an API server
//! that are made up.

mod access;
mod authority;
mod client;
mod cluster;
mod exec;
mod information;
mod logs;
mod runtime;
mod session;
pub(super) mod signer;
mod streaming;
mod trace;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waybill_api::gates::FeatureGates;

use self::{
    authority::Authority, client::Client, cluster::FakeCluster, runtime::FakeRuntime,
    streaming::FakeStreaming,
};
use waybill_stream::open_connections::MostConnections;

use super::{
    EventSink, ExecEnvPolicy, ExecSessionPolicy, Metrics, PodLookup, ProvenanceLookup, Server,
    ServerConfig, ServerParts,
};
use crate::{
    Clock,
    cri::Runtime,
    pod::{Pod, PodOrigin},
};

/// Far beyond what anything here takes; a test that hangs shall say where.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and everything that it talks to.
struct Fixture {
    authority: Authority,
    runtime: FakeRuntime,
    streaming: FakeStreaming,
    cluster: Option<FakeCluster>,
    events: Arc<Events>,
    now: Arc<Mutex<Timestamp>>,
    server: Server,
}

/// How a server is set up.
struct Setup {
    cluster: bool,
    gates: FeatureGates,
    exec_env: ExecEnvPolicy,
    exec_sessions: ExecSessionPolicy,
    /// Which keys of exec sessions the API server publishes, or how it refuses to.
    keys: Result<Value, StatusCode>,
    now: Timestamp,
    connections: MostConnections,
    collector: Option<std::path::PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cluster: true,
            gates: FeatureGates::all_on(),
            exec_env: ExecEnvPolicy::Warn,
            exec_sessions: ExecSessionPolicy::Auto,
            keys: Err(StatusCode::NOT_FOUND),
            now: Timestamp::UNIX_EPOCH,
            connections: MostConnections::default(),
            collector: None,
        }
    }
}

impl Fixture {
    async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    async fn with(setup: Setup) -> Self {
        let authority = Authority::new();
        let streaming = FakeStreaming::start().await;
        let runtime = FakeRuntime::start(&streaming.url());
        let cluster = if setup.cluster { Some(FakeCluster::start().await) } else { None };
        if let Some(cluster) = &cluster {
            cluster.publish(setup.keys);
        }
        let events = Arc::new(Events::default());
        let now = Arc::new(Mutex::new(setup.now));
        let shown = Arc::clone(&now);
        let clock: Clock = Arc::new(move || *shown.lock().unwrap());
        let config = ServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            serving: authority.serving(),
            client_ca: authority.certificate_path(),
            node_name: "node-1".to_owned(),
            gates: setup.gates,
            exec_env: setup.exec_env,
            exec_sessions: setup.exec_sessions,
            clock,
            connections: setup.connections,
            collector: setup.collector,
        };
        let parts = ServerParts {
            pods: Arc::new(Pods(vec![Arc::new(web())])),
            runtime: Runtime::at(&runtime.socket()).unwrap(),
            events: Arc::<Events>::clone(&events),
            provenance: Arc::new(Provenance),
            metrics: Arc::new(Metrics::new(setup.gates)),
            cluster: cluster.as_ref().map(FakeCluster::client),
        };
        let server = Server::start(config, parts).await.unwrap();
        Self { authority, runtime, streaming, cluster, events, now, server }
    }

    /// A client with the API server's certificate.
    fn client(&self) -> Client {
        self.client_as("kube-apiserver-kubelet-client", &["waybill:node-clients"])
    }

    fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        Client::new(self.server.address(), self.authority.client(Some((user, groups))))
    }

    fn anonymous(&self) -> Client {
        Client::new(self.server.address(), self.authority.client(None))
    }

    /// Puts the clock forward.
    fn pass(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    fn cluster(&self) -> &FakeCluster {
        self.cluster.as_ref().unwrap()
    }
}

/// What was said about pods.
#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Events {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl EventSink for Events {
    fn warn(&self, pod: &Pod, reason: &str, message: &str) {
        self.0.lock().unwrap().push(format!("{} {reason}: {message}", pod.name()));
    }
}

struct Pods(Vec<Arc<Pod>>);

impl PodLookup for Pods {
    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<Pod>> {
        let found = self.0.iter().find(|pod| {
            (pod.namespace(), pod.name()) == (namespace, name)
                && uid.is_none_or(|uid| pod.uid().as_str() == uid)
        });
        found.cloned()
    }

    fn all(&self) -> Vec<Arc<Pod>> {
        self.0.clone()
    }
}

struct Provenance;

impl ProvenanceLookup for Provenance {
    fn find(&self, pod: &Pod, container: &str) -> Option<Value> {
        (container == "main").then(|| json!({ "pod": pod.name(), "container": container }))
    }
}

/// A pod with two containers, of which the second has a terminal.
fn web() -> Pod {
    let object = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u-1" },
        "spec": { "containers": [
            { "name": "main", "image": "i" },
            { "name": "shell", "image": "i", "tty": true },
        ] },
    });
    Pod::from_value(object, PodOrigin::ApiServer).unwrap()
}

/// Returns when `is_so`; for what nobody can wait for.
async fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited too long");
        sleep(Duration::from_millis(2)).await;
    }
}
