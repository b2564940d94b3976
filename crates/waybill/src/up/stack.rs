//! The roles together: started in the order in which they need one another, and stopped in reverse.

use std::{
    convert::Infallible,
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use waybill_api::gates::KubeVersion;
use waybill_apiserver::{NodeFiles, NodeIdentity, issue_node};
use waybill_client::{Options, Requests, connect};

use super::{
    Progress,
    drivers::{DriverChoice, Drivers},
    images, ports,
    role::Role,
    state::{self, Kept, State},
};
use crate::{
    apiserver::{EncryptionArgs, StoreArgs},
    builtin::BuiltIn,
    log::LogFormat,
};

const API_SERVER_PORT: u16 = 6443;

/// The node's own API is for the API server beside it, which learns its port from the node's object.
const NODE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A machine on which somebody tries something out has other things on its disk, and a tenth of it is much.
const EVICTION_HARD: &str =
    "memory.available<100Mi,nodefs.available<1%,imagefs.available<1%,pid.available<5%";

/// How many processes a pod may have unless `--node-flag=--pod-max-pids=…` says otherwise. Kernels have 32,768 for
/// everybody by default, so one pod cannot take them all; what people run in a pod has some hundreds.
const POD_MAX_PIDS: u32 = 4096;

/// How long pods may take to end, with some time for the node to clear up after them and to write their last
/// statuses.
const DRAIN: Duration = Duration::from_secs(50);

/// How long the other roles may take to end.
const STOP: Duration = Duration::from_secs(15);

/// How long a node may take to be ready once it serves.
const NODE_PATIENCE: Duration = Duration::from_secs(120);

/// How often certificates are looked at.
const CERTIFICATES: Duration = Duration::from_secs(3600);

/// What a stack is made of.
pub(crate) struct Plan {
    pub(crate) state_dir: PathBuf,
    /// The API server's address; the usual one or a free one if it is not given.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) store: StoreArgs,
    pub(crate) encryption: EncryptionArgs,
    pub(crate) runtime: RuntimeChoice,
    pub(crate) node_name: Option<String>,
    /// Further flags of the node, as a user would give them.
    pub(crate) node_flags: Vec<String>,
    /// Further flags of the collector.
    pub(crate) collector_flags: Vec<String>,
    /// Whether there is one.
    pub(crate) has_collector: bool,
    /// Drivers of variables that run beside it.
    pub(crate) drivers: Vec<DriverChoice>,
    pub(crate) built_in_images: Vec<BuiltIn>,
    pub(crate) emulated_version: KubeVersion,
    /// As the flag of every role takes them.
    pub(crate) gates: String,
    /// What else the API server may be told about env files.
    pub(crate) strict_env_file_mounts: bool,
    pub(crate) log_format: LogFormat,
    pub(crate) verbose: u8,
}

/// Which runtime the node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuntimeChoice {
    /// One of ours, as a role of the stack.
    Embedded,
    /// Somebody else's, at this socket.
    At(PathBuf),
}

/// A stack that runs. Its roles end with it at once, containers do not.
pub(crate) struct Stack {
    state: State,
    api_server: Role,
    runtime: Option<Role>,
    /// Of our own runtime's sessions.
    collector: Option<Role>,
    node: Role,
    drivers: Drivers,
    identity: NodeIdentity,
    first_image: Option<String>,
    /// An image that is imported when everything else runs.
    later: Option<(BuiltIn, PathBuf)>,
}

impl Stack {
    /// Starts everything; pods can be run when this returns.
    pub(crate) async fn start(plan: Plan, progress: &Progress) -> Result<Self> {
        plan.store.clone().config()?;
        let state = State::open(&plan.state_dir)?;
        progress.done("state", &state.dir().display().to_string());
        let listen = choose_listen(&state, plan.listen, progress)?;
        let mut api_server = api_server(&plan, &state, listen);
        let (socket, mut runtime) = match &plan.runtime {
            RuntimeChoice::At(socket) => (socket.clone(), None),
            RuntimeChoice::Embedded => (state.runtime_socket(), Some(runtime_role(&plan, &state))),
        };
        let mut drivers = Drivers::new(&plan, &state)?;
        let begin_runtime = async {
            match &mut runtime {
                Some(role) => begin(role, "runtime", progress).await,
                None => check_socket(&socket, progress).await,
            }
        };
        let (server, _, ()) = tokio::try_join!(
            begin(&mut api_server, "API server", progress),
            begin_runtime,
            drivers.start(progress),
        )?;
        // A port that was free is the server's from now on.
        if let Some(address) = server.strip_prefix("https://") {
            api_server.replace_argument(&listen.to_string(), address);
        }
        let identity = NodeIdentity {
            name: plan.node_name.clone().unwrap_or_else(state::host_name),
            addresses: vec![NODE_ADDRESS],
            server,
            dir: state.dir().join("node/pki"),
        };
        let files = issue_node(state.dir(), &identity, Timestamp::now())?;
        let embedded = runtime.is_some();
        let mut node = node(&plan, &state, &identity, &files, &socket);
        let mut collector = (embedded && plan.has_collector).then(|| collector_role(&plan, &state));
        let (_, (), first_image) = tokio::try_join!(
            async {
                progress.begin("node");
                let place = node.start().await?;
                wait_for_node(&files.kubeconfig, &identity.name, &place).await?;
                progress.done("node", &identity.name);
                Ok(())
            },
            async {
                if let Some(collector) = &mut collector
                    && let Err(error) = collector.start().await
                {
                    // Pods run without a record of their sessions' programs, and it is tried again.
                    progress.note(&format!("{error:#}"));
                }
                Ok(())
            },
            async {
                if !embedded || !plan.built_in_images.contains(&BuiltIn::Busybox) {
                    return Ok(None);
                }
                progress.begin("image");
                let image = images::ensure(&state, &socket, BuiltIn::Busybox).await?;
                let told = "this machine has no busybox; install busybox-static for one";
                progress.done("image", image.as_deref().unwrap_or(told));
                Ok::<_, anyhow::Error>(image)
            },
        )?;
        if !embedded {
            progress
                .note("another runtime takes no archives over CRI, so there is no built-in image");
        }
        let wants_tools = plan.built_in_images.contains(&BuiltIn::Tools);
        let later = (embedded && wants_tools).then(|| (BuiltIn::Tools, socket.clone()));
        progress.ready();
        Ok(Self {
            state,
            api_server,
            runtime,
            collector,
            node,
            drivers,
            identity,
            first_image,
            later,
        })
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.state.dir()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.dir().join("kubeconfig")
    }

    /// An image that pods can use without a registry.
    pub(crate) fn first_image(&self) -> Option<&str> {
        self.first_image.as_deref()
    }

    /// Whether variables can be had from drivers.
    pub(crate) fn has_drivers(&self) -> bool {
        !self.drivers.is_empty()
    }

    /// Imports what was left for later; returns its name.
    pub(crate) async fn import_rest(&mut self) -> Result<Option<String>> {
        let Some((image, socket)) = self.later.take() else { return Ok(None) };
        images::ensure(&self.state, &socket, image).await
    }

    /// Keeps every role running. Never returns.
    pub(crate) async fn keep(&mut self, progress: &Progress) -> Infallible {
        let Self { state, api_server, runtime, collector, node, drivers, identity, later, .. } =
            self;
        let import = async {
            if let Some((image, socket)) = later.take()
                && let Err(error) = images::ensure(state, &socket, image).await
            {
                progress.note(&format!("{} is not imported: {error:#}", image.name()));
            }
            std::future::pending::<Infallible>().await
        };
        let keep_runtime = async {
            match runtime {
                Some(runtime) => runtime.keep(progress).await,
                None => std::future::pending().await,
            }
        };
        let keep_collector = async {
            match collector {
                Some(collector) => collector.keep(progress).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = import => never,
            never = keep_collector => never,
            never = keep_runtime => never,
            never = api_server.keep(progress) => never,
            never = drivers.keep(progress) => never,
            never = keep_node(state, identity, node, progress) => never,
        }
    }

    /// Stops pods and then every role. Dropping it ends the roles at once.
    pub(crate) async fn stop(&mut self, progress: &Progress) -> Result<()> {
        let mut faults = Vec::new();
        let mut note = |result: Result<()>| faults.extend(result.err());
        progress.begin("stopping pods");
        note(self.node.stop(DRAIN).await);
        self.drivers.stop().await.into_iter().for_each(&mut note);
        // It records how the last sessions ended, for which it asks the runtime.
        if let Some(collector) = &mut self.collector {
            note(collector.stop(STOP).await);
        }
        if let Some(runtime) = &mut self.runtime {
            note(runtime.stop(STOP).await);
        }
        note(self.api_server.stop(STOP).await);
        if self.runtime.is_some() && faults.is_empty() {
            release(self.state.dir());
        }
        match faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }
}

/// Unmounts what the runtime keeps in memory, unless a container still uses it: then the next start finds
/// it there.
pub(crate) fn release(state_dir: &Path) {
    let _ = unmount(state::runtime_run_dir(state_dir), UnmountFlags::empty());
}

/// Keeps the node running, with certificates that are good.
async fn keep_node(
    state: &State,
    identity: &NodeIdentity,
    node: &mut Role,
    progress: &Progress,
) -> Infallible {
    loop {
        tokio::select! {
            never = node.keep(progress) => return never,
            () = sleep(CERTIFICATES) => {}
        }
        let renewed = match issue_node(state.dir(), identity, Timestamp::now()) {
            Ok(files) => files.renewed,
            Err(error) => {
                let error = waybill_core::chain::Chain(&error);
                progress.note(&format!("the node's certificates cannot be renewed: {error}"));
                false
            }
        };
        if renewed && let Err(error) = node.replace().await {
            progress.note(&format!("{error:#}"));
        }
    }
}

/// Where the API server listens: where the user says, or at the port of the last start, or at the next
/// one that is free.
fn choose_listen(
    state: &State,
    listen: Option<SocketAddr>,
    progress: &Progress,
) -> Result<SocketAddr> {
    if let Some(address) = listen {
        if address.ip().is_unspecified() {
            bail!("--listen needs an address that others can connect to, such as 127.0.0.1:6443");
        }
        TcpListener::bind(address).with_context(|| {
            format!("cannot listen on {address}; name another address with --listen")
        })?;
        return Ok(address);
    }
    let chosen = ports::choose(state.kept().api_server_port, API_SERVER_PORT);
    let chosen = chosen.context("finding a free port")?;
    let port = chosen.address.port();
    if let Some(taken) = chosen.taken {
        progress.note(&format!("port {taken} is taken; the API server uses {port}"));
    }
    state.keep(Kept { api_server_port: Some(port) })?;
    Ok(chosen.address)
}

pub(super) async fn begin(
    role: &mut Role,
    what: &'static str,
    progress: &Progress,
) -> Result<String> {
    progress.begin(what);
    let place = role.start().await?;
    progress.done(what, &place);
    Ok(place)
}

async fn check_socket(socket: &Path, progress: &Progress) -> Result<String> {
    progress.begin("runtime");
    tokio::net::UnixStream::connect(socket).await.with_context(|| {
        format!("no runtime answers at {}; start it, or leave --runtime away", socket.display())
    })?;
    let place = format!("unix://{}", socket.display());
    progress.done("runtime", &place);
    Ok(place)
}

/// Pods are given to a node once its object says that it is ready, and sessions find it once that says
/// where it serves now: the object may be of the last start.
async fn wait_for_node(kubeconfig: &Path, name: &str, place: &str) -> Result<()> {
    let options = Options { kubeconfig: kubeconfig.to_owned(), ..Options::default() };
    let requests = Requests::new(connect(&options).await?.client);
    let path = format!("/api/v1/nodes/{name}");
    let start = Instant::now();
    loop {
        let found = requests.get(&path).await;
        if found.as_ref().is_ok_and(|node| serves_at(node, place) && ready(node).is_ok()) {
            return Ok(());
        }
        if start.elapsed() > NODE_PATIENCE {
            let node = found.with_context(|| format!("node {name} is not there"))?;
            let why = ready(&node).err().unwrap_or("it does not say where it serves");
            bail!("node {name} is not ready after {} s: {why}", NODE_PATIENCE.as_secs());
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn serves_at(node: &Value, place: &str) -> bool {
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    port.is_some_and(|port| place.ends_with(&format!(":{port}")))
}

/// Or why it is not.
fn ready(node: &Value) -> Result<(), &str> {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|it| it.get("type").is_some_and(|kind| kind == "Ready"));
    let Some(condition) = condition else { return Err("it reports nothing") };
    if condition.get("status").is_some_and(|status| status == "True") {
        return Ok(());
    }
    Err(condition.get("message").and_then(Value::as_str).unwrap_or("it does not say why"))
}

fn api_server(plan: &Plan, state: &State, listen: SocketAddr) -> Role {
    let mut flags = Flags::new("apiserver");
    flags.add("--state-dir", state.dir());
    flags.add("--listen", listen.to_string());
    flags.add("--emulated-version", plan.emulated_version.to_string());
    flags.add("--feature-gates", &plan.gates);
    // Names of machines often mean nothing, not even to themselves.
    flags.add("--kubelet-preferred-address-types", "InternalIP,Hostname");
    if plan.strict_env_file_mounts {
        flags.0.push("--strict-env-file-mounts".into());
    }
    flags.0.extend(plan.store.flags());
    flags.0.extend(plan.encryption.flags());
    flags.role("apiserver", "apiserver", plan, state)
}

fn runtime_role(plan: &Plan, state: &State) -> Role {
    let mut flags = Flags::new("runtime");
    flags.add("--listen", format!("unix://{}", state.runtime_socket().display()));
    flags.add("--state-dir", state.dir().join("runtime"));
    flags.add("--run-dir", state.runtime_run_dir());
    flags.verbose(plan.verbose);
    flags.role("runtime", "runtime", plan, state)
}

fn collector_role(plan: &Plan, state: &State) -> Role {
    let mut flags = Flags::new("collector");
    flags.add("--state-dir", state.dir());
    flags.add("--runtime", format!("unix://{}", state.runtime_socket().display()));
    flags.add("--listen", format!("unix://{}", state.collector_socket().display()));
    flags.0.extend(plan.collector_flags.iter().map(OsString::from));
    flags.verbose(plan.verbose);
    flags.role("collector", "collector", plan, state)
}

fn node(
    plan: &Plan,
    state: &State,
    identity: &NodeIdentity,
    files: &NodeFiles,
    socket: &Path,
) -> Role {
    let mut flags = Flags::new("node");
    flags.add("--name", &identity.name);
    flags.add("--state-dir", state.dir().join("node"));
    flags.add("--log-dir", state.dir().join("logs/pods"));
    flags.add("--runtime", format!("unix://{}", socket.display()));
    flags.add("--collector", format!("unix://{}", state.collector_socket().display()));
    flags.add("--listen", SocketAddr::new(NODE_ADDRESS, 0).to_string());
    flags.add("--kubeconfig", &files.kubeconfig);
    flags.add("--tls-cert-file", &files.serving_certificate);
    flags.add("--tls-key-file", &files.serving_key);
    flags.add("--client-ca-file", &files.authority);
    flags.add("--emulated-version", plan.emulated_version.to_string());
    flags.add("--feature-gates", &plan.gates);
    flags.add("--cgroup-root", state.cgroup_root());
    // Its API server is ours.
    flags.add("--exec-sessions", "require");
    flags.add("--pod-max-pids", POD_MAX_PIDS.to_string());
    flags.add("--eviction-hard", EVICTION_HARD);
    flags.0.push("--drain".into());
    flags.0.extend(plan.node_flags.iter().map(OsString::from));
    flags.verbose(plan.verbose);
    flags.role("node", "node", plan, state)
}

/// A command line of ours.
pub(super) struct Flags(pub(super) Vec<OsString>);

impl Flags {
    pub(super) fn new(subcommand: &str) -> Self {
        Self(vec![subcommand.into()])
    }

    pub(super) fn add(&mut self, flag: &str, value: impl Into<OsString>) {
        self.0.extend([flag.into(), value.into()]);
    }

    pub(super) fn verbose(&mut self, level: u8) {
        self.0.extend((0..level).map(|_| OsString::from("-v")));
    }

    /// `name` is what people read; `log` is the name of the log.
    pub(super) fn role(
        mut self,
        name: &'static str,
        log: &str,
        plan: &Plan,
        state: &State,
    ) -> Role {
        let format = match plan.log_format {
            LogFormat::Json => "json",
            LogFormat::Text => "text",
        };
        self.add("--log-format", format);
        Role::new(name, self.0, state.log(log), plan.verbose > 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_ready_when_it_says_so_and_where_it_serves_now() {
        let node = |status: &str| {
            json!({"status": {
                "conditions": [{"type": "Ready", "status": status, "message": "no network"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 4711}},
            }})
        };
        assert_eq!(ready(&node("True")), Ok(()));
        assert_eq!(ready(&node("False")), Err("no network"));
        assert_eq!(ready(&json!({})), Err("it reports nothing"));
        assert!(serves_at(&node("True"), "https://127.0.0.1:4711"));
        assert!(!serves_at(&node("True"), "https://127.0.0.1:14711"));
        assert!(!serves_at(&json!({}), "https://127.0.0.1:4711"));
    }
}
