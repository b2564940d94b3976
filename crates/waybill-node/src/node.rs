//! Start and stop of a node: how its parts are put together.

mod known;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kube::Client;
use rustix::process::{Resource, getrlimit};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};
use waybill_api::gates::FeatureGate;
use waybill_client::ConnectError;
use waybill_core::{id::PodUid, quantity::Quantity};
use waybill_stream::open_connections::MostConnections;

use self::known::{KnownEnvironments, KnownPods, Warnings};
use crate::{
    Clock,
    config::Config,
    cri::{
        Runtime, RuntimeSocketError,
        changes::{self, Change as RuntimeChange},
        sandbox::Machine,
    },
    csi::{Csi, Drivers, Rotations},
    directories::Directories,
    environment::{ApiEndpoint, NodeFacts, Provenance, Resolver},
    event::Recorder,
    image_collection::ImageCollector,
    objects::{CachedObjects, ClusterObjects, NoObjects, ObjectSource, WatchedObjects},
    pressure::Pressure,
    probe::Prober,
    register::{self, Facts, RegisterError},
    rotation::Rotation,
    server::{Metrics, PodLookup, Server, ServerConfig, ServerError, ServerParts},
    source::{self, Change as SourceChange},
    status::Writer,
    volume::Volumes,
    worker::{Cgroups, Images, Making, Surroundings, UserRanges, Workers, pids_of_all_pods},
};

/// News of the runtime that wait for the workers.
const QUEUE: usize = 256;
const HTTPS: u16 = 443;
/// What statuses and events under way may take when the node stops.
const FLUSH: Duration = Duration::from_secs(5);

/// A running node.
pub struct Node {
    server: Server,
    workers: Workers,
    writer: Writer,
    following: JoinHandle<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// A directory cannot be used.
    #[error("cannot make the directory {}", path.display())]
    Directory {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no client for the API server.
    #[error("cannot connect to the API server")]
    Cluster(#[from] ConnectError),
    /// The runtime cannot be used, or nothing is known of the machine.
    #[error("{what}")]
    Start {
        /// The part that does not start.
        what: &'static str,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl NodeError {
    fn start<E: std::error::Error + Send + Sync + 'static>(
        what: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Start { what, source: Box::new(source) }
    }
}

impl Node {
    /// Starts a node. It takes over what an earlier one left running, and is not ready for pods before
    /// the runtime answers.
    pub async fn start(config: Config) -> Result<Self, NodeError> {
        make_pods(&config.directories)?;
        make_directory(&config.directories.logs)?;
        let runtime = Runtime::at(&config.runtime)
            .map_err(NodeError::start::<RuntimeSocketError>("cannot use the runtime"))?;
        let session = match &config.cluster {
            Some(options) => Some(waybill_client::connect(options).await?),
            None => None,
        };
        let endpoint = session.as_ref().and_then(|session| api_endpoint(&session.server));
        let client = session.map(|session| session.client);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let clock = Arc::clone(&config.clock);
        let recorder =
            Recorder::start(client.clone(), &config.name, Arc::clone(&clock), &tasks, &stop);
        let writer = Writer::new(client.clone(), &tasks, &stop);
        let provenance = Arc::new(Provenance::new(config.directories.clone()));
        let pods = Arc::new(KnownPods::default());
        let metrics = Arc::new(Metrics::new(config.gates));
        let parts = ServerParts {
            pods: Arc::clone(&pods) as Arc<dyn PodLookup>,
            runtime: runtime.clone(),
            events: Arc::new(Warnings(recorder.clone())),
            provenance: Arc::new(KnownEnvironments {
                provenance: Arc::clone(&provenance),
                pods: Arc::clone(&pods),
            }),
            metrics: Arc::clone(&metrics),
            cluster: client.clone(),
        };
        let server = start_server(&config, parts).await?;
        let pressure = Pressure::new(config.eviction.clone(), config.directories.state.clone());
        let options =
            registration(&config, &runtime, &client, &recorder, server.address(), &pressure);
        let failed = NodeError::start::<RegisterError>("cannot find out about this node");
        let facts = register::start(options, &tasks, &stop).await.map_err(failed)?;
        let known = Arc::clone(&pods);
        let prober = Prober::new(
            runtime.clone(),
            recorder.clone(),
            &config.address.to_string(),
            Arc::clone(&clock),
            Arc::new(move |uid| known.wake(uid)),
            &tasks,
            &stop,
        );
        let known = Arc::clone(&pods);
        let collector = Arc::new(ImageCollector::new(
            runtime.clone(),
            config.image_limits,
            recorder.clone(),
            Arc::clone(&clock),
            Box::new(move || known.volume_images()),
        ));
        let parts = Parts {
            runtime: runtime.clone(),
            client: client.clone(),
            recorder: recorder.clone(),
            prober,
            writer: writer.clone(),
            provenance,
            metrics,
            endpoint,
            pressure,
            collector: Arc::clone(&collector),
        };
        let around = surroundings(&config, &facts, parts, &tasks, &stop);
        let workers = Workers::new(around);
        pods.set(workers.clone());
        tasks.spawn(workers.clone().watch_sizes());
        tasks.spawn(workers.clone().follow_rotations());
        let sources = source::start(
            source::Options {
                node: config.name.clone(),
                client,
                static_pods: config.static_pods.clone(),
                gates: config.gates,
                recorder: recorder.clone(),
                writer: writer.clone(),
                clock,
            },
            &tasks,
            &stop,
        );
        let rotation = Rotation {
            runtime: runtime.clone(),
            directories: config.directories.clone(),
            limits: config.log_limits,
            clock: Arc::clone(&config.clock),
        };
        tasks.spawn(stop.clone().run_until_cancelled_owned(rotation.run()));
        tasks.spawn(stop.clone().run_until_cancelled_owned(collector.run()));
        let (sender, changes) = mpsc::channel(QUEUE);
        tasks.spawn(changes::follow(runtime, config.name.clone(), sender, stop.clone()));
        let follower = Follower { workers: workers.clone(), directories: config.directories };
        let following = tasks.spawn(follower.run(sources, changes, stop.clone()));
        info!(node = config.name, address = %server.address(), "the node runs");
        Ok(Self { server, workers, writer, following, tasks, stop })
    }

    /// Where the node's own API listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns if the node ends by itself, with the reason.
    pub async fn failed(&mut self) -> String {
        match (&mut self.following).await {
            Ok(()) => "nobody tells the node of pods any more".to_owned(),
            Err(error) => format!("the node's main task ended: {error}"),
        }
    }

    /// Ends all pods, each within `grace` and its own. Their objects stay, so the next node runs them
    /// again.
    pub async fn drain(&self, grace: Duration) {
        self.following.abort();
        self.workers.drain(grace).await;
    }

    /// Ends the node. Containers go on, unless it was drained.
    pub async fn stop(self) {
        self.following.abort();
        self.workers.stop().await;
        if timeout(FLUSH, self.writer.flush()).await.is_err() {
            warn!("not every status could be written");
        }
        self.server.stop().await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn make_pods(directories: &Directories) -> Result<(), NodeError> {
    let failed = |source| NodeError::Directory { path: directories.pods(), source };
    directories.make_pods().map_err(failed)
}

fn make_directory(path: &Path) -> Result<(), NodeError> {
    fs::create_dir_all(path)
        .map_err(|source| NodeError::Directory { path: path.to_owned(), source })
}

async fn start_server(config: &Config, parts: ServerParts) -> Result<Server, NodeError> {
    let server = ServerConfig {
        listen: config.listen,
        serving: config.serving.clone(),
        client_ca: config.client_ca.clone(),
        node_name: config.name.clone(),
        gates: config.gates,
        exec_env: config.exec_env,
        exec_sessions: config.exec_sessions,
        clock: Arc::clone(&config.clock),
        connections: MostConnections::within(getrlimit(Resource::Nofile).current),
        collector: Some(config.collector.clone()),
    };
    let failed = NodeError::start::<ServerError>("cannot serve the node's API");
    Server::start(server, parts).await.map_err(failed)
}

fn registration(
    config: &Config,
    runtime: &Runtime,
    client: &Option<Client>,
    recorder: &Recorder,
    address: SocketAddr,
    pressure: &Pressure,
) -> register::Options {
    register::Options {
        name: config.name.clone(),
        address: config.address,
        port: address.port(),
        labels: config.labels.clone(),
        max_pods: config.max_pods,
        state: config.directories.state.clone(),
        pressure: pressure.clone(),
        runtime: runtime.clone(),
        client: client.clone(),
        recorder: recorder.clone(),
        clock: Arc::clone(&config.clock),
    }
}

/// What has been started before the workers.
struct Parts {
    runtime: Runtime,
    client: Option<Client>,
    recorder: Recorder,
    prober: Prober,
    writer: Writer,
    provenance: Arc<Provenance>,
    metrics: Arc<Metrics>,
    endpoint: Option<ApiEndpoint>,
    pressure: Pressure,
    collector: Arc<ImageCollector>,
}

fn surroundings(
    config: &Config,
    facts: &Facts,
    parts: Parts,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Surroundings {
    let Parts {
        runtime,
        client,
        recorder,
        prober,
        writer,
        provenance,
        metrics,
        endpoint,
        pressure,
        collector,
    } = parts;
    let clock: Clock = Arc::clone(&config.clock);
    let objects: Arc<dyn ObjectSource> = match client.clone() {
        Some(client) => Arc::new(CachedObjects::new(ClusterObjects::new(client))),
        None => Arc::new(NoObjects),
    };
    let node = Arc::new(node_facts(config, facts, endpoint));
    let directories = config.directories.clone();
    let volumes = Volumes::new(
        directories.clone(),
        Arc::clone(&objects),
        Arc::clone(&node),
        Arc::clone(&clock),
    );
    let gates = config.gates;
    let csi = Arc::new(Csi {
        config: config.csi.clone(),
        node: config.name.clone(),
        runtime: facts.runtime_name.clone(),
        drivers: Arc::new(Drivers::new(config.csi.plugins_dir.clone())),
        classes: WatchedObjects::new(client.clone(), tasks, stop),
        csi_drivers: WatchedObjects::new(client.clone(), tasks, stop),
        client,
        objects: Arc::clone(&objects),
        recorder: recorder.clone(),
        metrics: Arc::clone(&metrics),
        rotations: Rotations::new(Some(directories.clone())),
    });
    if gates.enabled(FeatureGate::CsiDirectEnvInjection) {
        csi.follow_drivers(tasks, stop);
    }
    let resolver = Resolver { objects, directories: directories.clone(), gates, node, csi };
    let memory = facts.capacity.get("memory").and_then(|text| Quantity::parse(&text.0).ok());
    let machine = Machine {
        node: config.name.clone(),
        directories: directories.clone(),
        cgroup_root: config.cgroup_root.clone(),
        memory: memory.map_or(0, Quantity::value),
    };
    Surroundings {
        runtime,
        runtime_name: facts.runtime_name.clone(),
        cgroups: cgroups(&machine, config.pod_max_pids, facts),
        making: Making::default(),
        machine,
        directories,
        host_ip: config.address.to_string(),
        clock,
        resolver,
        provenance,
        volumes,
        images: Images::default(),
        recorder,
        prober,
        writer,
        metrics,
        sysctls: config.sysctls.clone(),
        users: Arc::new(UserRanges::new(&config.directories, config.max_pods)),
        pressure,
        collector,
    }
}

/// Where pods are limited, with all of them together already limited to what the node has for them.
fn cgroups(machine: &Machine, pod_max_pids: i64, facts: &Facts) -> Cgroups {
    let cgroups = Cgroups::new(&machine.cgroup_root).with_pids_of_pod(pod_max_pids);
    let allocatable = |name: &str| Quantity::parse(&facts.allocatable.get(name)?.0).ok();
    let milli = allocatable("cpu").map_or(0, Quantity::milli_value);
    let memory = allocatable("memory").map_or(0, Quantity::value);
    cgroups.limit_all(milli, memory, pids_of_all_pods());
    cgroups
}

fn node_facts(config: &Config, facts: &Facts, endpoint: Option<ApiEndpoint>) -> NodeFacts {
    let allocatable = facts.allocatable.iter();
    NodeFacts {
        name: config.name.clone(),
        addresses: facts.ips.iter().map(ToString::to_string).collect(),
        allocatable: allocatable
            .filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0).ok()?)))
            .collect(),
        api_endpoint: endpoint,
    }
}

/// Host and port of a URL.
fn api_endpoint(url: &str) -> Option<ApiEndpoint> {
    let url: http::Uri = url.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']).to_owned();
    Some(ApiEndpoint { host, port: url.port_u16().unwrap_or(HTTPS) })
}

/// Passes news on to the workers.
struct Follower {
    workers: Workers,
    directories: Directories,
}

impl Follower {
    /// Returns when sources or runtime tell nothing any more, which they never do by themselves.
    async fn run(
        self,
        mut sources: mpsc::Receiver<SourceChange>,
        mut changes: mpsc::Receiver<RuntimeChange>,
        stop: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                change = sources.recv() => match change {
                    Some(SourceChange::Set(pod)) => self.workers.set(pod),
                    Some(SourceChange::Gone(uid)) => self.workers.gone(&uid),
                    Some(SourceChange::Synced) => self.workers.synced(),
                    None => return,
                },
                change = changes.recv() => match change {
                    Some(RuntimeChange::Pod(uid)) => self.workers.wake(&uid),
                    Some(RuntimeChange::Seen(uids)) => {
                        self.workers.seen(uids.into_iter().chain(self.with_directories()));
                        self.workers.settle_cgroups();
                    }
                    None => return,
                },
            }
        }
    }

    /// Pods that have a directory.
    fn with_directories(&self) -> Vec<PodUid> {
        let entries = fs::read_dir(self.directories.pods()).into_iter().flatten().flatten();
        entries.filter_map(|entry| PodUid::parse(entry.file_name().to_str()?).ok()).collect()
    }
}
