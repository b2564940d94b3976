//! `waybill agent`: what every node of a stock cluster needs.
//!
//! It sets the node up ([`setup`]), keeps the directory that the wrapper reads, fetches values from the node's drivers
//! when the kubelet publishes a volume of a pod, and gives them to the wrapper for references that the API's pod has. Exec,
//! probes and containers that run need none of it: they go on while it is down.

mod directory;
mod fetch;
mod follow;
mod keys;
mod pods;
mod records;
mod register;
mod seal;
pub mod setup;
mod socket;
#[cfg(test)]
mod tests;
mod values;
mod volumes;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use kube::Client;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::stock::{Engine, Mode, WrapperConfig};
use waybill_csi::server::{PluginServer, ServerError};

pub(crate) use self::records::SERVER_NAME;
pub(crate) use self::register::is_of_the_class;
pub use self::{directory::DirectoryError, records::ServeError, register::RegisterError};
use self::{
    directory::RunDirectory,
    fetch::Drivers,
    follow::Follower,
    pods::Pods,
    records::{Records, RecordsServer},
    setup::{
        Host, HostError, NodeRuntime, RestartError, RuntimeKind, SetupError, SetupPlan, Wanted,
    },
    values::HeldValues,
    volumes::Volumes,
};

/// Where everything of ours is that has a namespace.
pub const NAMESPACE: &str = "waybill-system";

/// The plugin that brings tokens, as CSIDriver and volumes name it.
pub const PLUGIN: &str = "values.csi.waybill.dev";

/// The label of nodes on which pods of the RuntimeClass may run.
pub const READY_LABEL: &str = "waybill.dev/ready";

/// As which server-side apply knows us.
const MANAGER: &str = "waybill-agent";

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The node's name.
    pub node: String,
    /// Where the node's `/` is.
    pub root: PathBuf,
    /// The directory that the wrapper reads, as the node calls it.
    pub run: PathBuf,
    /// The kubelet's directory, as the node calls it.
    pub kubelet: PathBuf,
    /// What becomes of an exec without a session where the namespace does not say.
    pub mode: Mode,
    /// The API group of ProviderClasses.
    pub group: String,
    /// Where gates are told of sessions; port 0 takes a free one. Without it nobody is.
    pub records: Option<SocketAddr>,
    /// The clock of the machine.
    pub clock: fn() -> SystemTime,
}

impl AgentConfig {
    /// Where a path of the node is for this process.
    fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// An agent that runs. On drop it ends at once.
pub struct Agent {
    client: Client,
    config: AgentConfig,
    directory: RunDirectory,
    /// Whether everything was taken off the node, so that what the wrapper read goes, too.
    removed: AtomicBool,
    plugin: PluginServer,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Its directory.
    #[error("cannot keep what the wrapper needs")]
    Directory(#[from] DirectoryError),
    /// Its socket.
    #[error("cannot serve the wrapper")]
    Socket(#[source] io::Error),
    /// Its port for gates.
    #[error("cannot serve records of sessions")]
    Records(#[from] ServeError),
    /// Its sockets for the kubelet.
    #[error("cannot serve the kubelet")]
    Plugin(#[from] ServerError),
    /// The configuration of the node.
    #[error("cannot configure the node's runtime")]
    Setup(#[from] SetupError),
    /// The files of the node.
    #[error("cannot set the node up")]
    Host(#[from] HostError),
    /// The restart of its runtime.
    #[error("the node's runtime was configured, but does not know of it yet")]
    Restart(#[from] RestartError),
    /// The Node object.
    #[error("the node cannot be marked as ready")]
    Register(#[from] RegisterError),
}

impl Agent {
    /// Starts everything but the set-up of the node.
    pub async fn start(config: AgentConfig, client: Client) -> Result<Self, AgentError> {
        let directory = RunDirectory::open(&config.path(&config.run))?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let pods = Arc::new(Pods::new(config.mode));
        let values = Arc::new(HeldValues::default());
        let answers = socket::Answers { pods: Arc::clone(&pods), values: Arc::clone(&values) };
        let path = directory.layout().socket();
        socket::serve(&path, answers, &tasks, stop.clone()).map_err(AgentError::Socket)?;
        let plugin = plugin(&config, &client, &values)?;
        let kept = directory.clone();
        let records = Arc::new(Records::new(directory.clone(), &config.root));
        let server = match config.records {
            Some(listen) => {
                let (server, listener) =
                    RecordsServer::bind(listen, Arc::clone(&records), &config).await?;
                let serving = Arc::clone(&server).serve(listener);
                tasks.spawn(stop.clone().run_until_cancelled_owned(serving));
                Some(server)
            }
            None => None,
        };
        let follower = Arc::new(Follower {
            client: client.clone(),
            node: config.node.clone(),
            directory,
            pods,
            values,
            records,
            server,
            clock: config.clock,
        });
        macro_rules! follow {
            ($($part:ident),+) => {$({
                let follower = Arc::clone(&follower);
                let following = async move { follower.$part().await };
                tasks.spawn(stop.clone().run_until_cancelled_owned(following));
            })+};
        }
        follow!(pods, namespaces, keys, seals, sweep, ends);
        let removed = AtomicBool::new(false);
        Ok(Self { client, config, directory: kept, removed, plugin, tasks, stop })
    }

    /// Installs the wrapper and the handler, restarts the runtime if that changed something, and marks the node as ready.
    /// `enter` is what [`setup::Restart::carry_out`] needs.
    pub async fn set_up(&self, wrapper: &[u8], enter: &[PathBuf]) -> Result<(), AgentError> {
        let (plan, engine) = self.plan(Wanted::Installed).await?;
        let told = WrapperConfig {
            version: WrapperConfig::VERSION,
            runtime: PathBuf::from(&plan.real_runtime),
            run: self.config.run.clone(),
            mode: self.config.mode,
            engine: Some(engine),
        };
        let told = serde_json::to_string(&told).unwrap_or_default();
        let host = Host::new(&self.config.root);
        let changed = host.install(&plan, wrapper, &told)?;
        tracing::info!(changed.configuration, changed.wrapper, "the node is set up");
        self.restart(&plan, changed.configuration, enter).await?;
        register::announce(&self.client, &self.config.node).await?;
        tracing::info!("the node is ready");
        Ok(())
    }

    /// Takes away what [`Agent::set_up`] did, and the label last: who removes everything waits for that. While pods of the
    /// RuntimeClass live on the node, the handler stays, and a link to the real runtime in the place of the wrapper.
    pub async fn tear_down(&self, enter: &[PathBuf]) -> Result<(), AgentError> {
        let (client, node) = (&self.client, &self.config.node);
        register::label(client, node, Some("removing")).await?;
        let in_use = register::has_pods(client, node).await?;
        let (plan, _) = self.plan(Wanted::Removed).await?;
        let host = Host::new(&self.config.root);
        // Without the handler, no exec and no probe could enter the pods that live.
        let changed = !in_use && host.apply(&plan)?;
        host.remove_wrapper(&plan.real_runtime, in_use)?;
        self.restart(&plan, changed, enter).await?;
        self.removed.store(true, Ordering::Relaxed);
        register::label(client, node, None).await?;
        tracing::info!(in_use, "everything that could go is gone");
        Ok(())
    }

    /// Ends when the kubelet refuses the plugin, or its sockets fail.
    pub async fn failed(&self) -> String {
        self.plugin.failed().await
    }

    /// Lets calls under way end, and ends. What the wrapper reads stays, unless the node was to be cleared.
    pub async fn stop(self) {
        let Self { config, directory, removed, plugin, tasks, stop, .. } = self;
        plugin.stop().await;
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        if removed.into_inner() {
            directory.remove();
            // Only if nothing is in it.
            let _ = fs::remove_dir(config.path(&config.kubelet.join("plugins").join(PLUGIN)));
        }
    }

    /// Restarts the runtime if its files changed, now or when a restart failed. A file remembers that, in memory: a runtime
    /// that came up with the machine has read everything.
    async fn restart(
        &self,
        plan: &SetupPlan,
        changed: bool,
        enter: &[PathBuf],
    ) -> Result<(), AgentError> {
        let due = self.config.path(&self.config.run).join("restart");
        let failed = |source| HostError { path: due.display().to_string(), source };
        if changed {
            fs::write(&due, "").map_err(failed)?;
        }
        if due.exists() {
            plan.restart.carry_out(&self.config.root, enter).await?;
            fs::remove_file(&due).map_err(failed)?;
        }
        Ok(())
    }

    /// What is to be done on this node, and whose notes about containers count there.
    async fn plan(&self, wanted: Wanted) -> Result<(SetupPlan, Engine), AgentError> {
        let node = register::read(&self.client, &self.config.node).await?;
        let info = node.status.and_then(|status| status.node_info);
        let info = info.map(|info| (info.container_runtime_version, info.kubelet_version));
        let (runtime, kubelet) = info.unwrap_or_default();
        let runtime = NodeRuntime::parse(&runtime, &kubelet)?;
        let engine = match runtime.kind {
            RuntimeKind::Containerd => Engine::Containerd,
            RuntimeKind::Crio => Engine::Crio,
        };
        Ok((setup::plan(&runtime, wanted, &Host::new(&self.config.root))?, engine))
    }
}

fn plugin(
    config: &AgentConfig,
    client: &Client,
    values: &Arc<HeldValues>,
) -> Result<PluginServer, AgentError> {
    let plugins = config.kubelet.join("plugins");
    let drivers = Drivers::new(
        client.clone(),
        config.group.clone(),
        config.path(&plugins),
        config.node.clone(),
    );
    let volumes = Volumes {
        client: client.clone(),
        node: config.node.clone(),
        drivers,
        values: Arc::clone(values),
        root: config.root.clone(),
        kubelet: config.kubelet.clone(),
    };
    let endpoint = plugins.join(PLUGIN).join("csi.sock");
    let registry = config.path(&config.kubelet.join("plugins_registry"));
    let about = (PLUGIN, env!("CARGO_PKG_VERSION"));
    Ok(PluginServer::start(about, volumes, &config.path(&endpoint), &registry, &endpoint)?)
}
