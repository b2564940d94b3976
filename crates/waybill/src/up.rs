//! `waybill up`: API server, runtime and node of one machine, kept running together.

mod drivers;
mod images;
mod ports;
mod progress;
mod role;
mod stack;
mod state;

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
};

use anyhow::{Result, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use waybill_api::gates::{FeatureGates, KubeVersion};

pub(crate) use self::{
    drivers::{DriverChoice, DriverFlag},
    progress::Progress,
    stack::{Plan, RuntimeChoice, Stack, release},
    state::{cgroup_root, host_name},
};
use crate::{
    Outcome,
    apiserver::{EncryptionArgs, StoreArgs},
    builtin::BuiltIn,
    log::LogFormat,
    machine::{self, Finding},
    rest,
    runtime::parse_socket,
};

/// Run a whole cluster on this machine.
///
/// Starts an API server, a container runtime and a node, and keeps them running. The first start makes
/// keys, certificates and state below the state directory; the next one goes on with what is there.
/// Nothing else has to be installed: stock kubectl works with the kubeconfig that is written, and an
/// image to try is built in.
///
/// That kubeconfig holds no credential. It runs `waybill login`, which gets a token for your Unix user
/// that lives ten minutes. Root may do everything; others are called unix:NAME, and RBAC says what
/// they may do.
///
/// Ctrl-C stops pods with their grace, at most 30 s, and then the rest. What was applied is kept and
/// runs again at the next start. A second Ctrl-C does not wait. Should this process be killed, then
/// containers go on, and the next start takes them over.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill up
  waybill up --state-dir /srv/waybill --listen 127.0.0.1:7443
  waybill up --store etcd=http://127.0.0.1:2379
  waybill up --runtime unix:///run/containerd/containerd.sock
  waybill up --node-flag=--static-pods=/etc/waybill/pods
  waybill up --driver os --driver mock='--script /root/script.yaml'

Then, in another terminal:
  export KUBECONFIG=/var/lib/waybill/kubeconfig
  kubectl run hello --image=waybill.dev/busybox:1 -- sh -c 'echo hello; sleep 3600'
  kubectl logs hello

Built-in images are waybill.dev/busybox:1, from this machine's busybox where it has one, and
waybill.dev/tools:1, with the waybill program. The first is called busybox:latest too, as long as no
other image is; kubectl run --image=busybox needs --image-pull-policy=IfNotPresent to use it.

It needs root, namespaces, the overlay file system and cgroups, and says what it misses.
Logs: STATE/logs/{apiserver,runtime,collector,node,driver-KIND}.log, those of containers below STATE/logs/pods.")]
pub(crate) struct Args {
    /// Directory for everything; made if it is missing.
    #[arg(long, value_name = "DIR", env = "WAYBILL_STATE_DIR", default_value = "/var/lib/waybill")]
    state_dir: PathBuf,

    /// Address of the API server. Without it, 127.0.0.1:6443 or the next free port, which is kept.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    encryption: EncryptionArgs,

    /// The container runtime: `embedded`, or the socket of another one, as `unix:///PATH`.
    #[arg(long, value_name = "RUNTIME", default_value = "embedded", value_parser = parse_runtime)]
    runtime: RuntimeChoice,

    /// Name of the node; the host's name by default.
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,

    /// A further flag of the node, as `waybill node --help` has them; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    node_flag: Vec<String>,

    /// A further flag of the collector, as `waybill collector --help` has them; may be given several times.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    collector_flag: Vec<String>,

    /// Do not record what runs in sessions.
    #[arg(long, conflicts_with = "collector_flag")]
    no_collector: bool,

    /// A driver of environment variables that runs beside the node; may be given several times.
    ///
    /// The kind, as `waybill driver --help` lists them, and further flags of it after `=`, with spaces between them.
    /// Without this it is `os`; `none` for no driver.
    #[arg(long, value_name = "KIND[=FLAGS]", value_parser = DriverFlag::parse)]
    driver: Vec<DriverFlag>,

    /// Images that are made from programs of this machine and imported.
    #[arg(
        long,
        value_name = "IMAGES",
        value_delimiter = ',',
        default_values = ["busybox", "tools"]
    )]
    built_in_images: Vec<BuiltIn>,

    /// The Kubernetes version whose rules apply.
    #[arg(long, value_name = "VERSION", value_parser = KubeVersion::parse, default_value_t)]
    emulated_version: KubeVersion,

    /// Feature gates, as `A=true,B=false`; all are on otherwise.
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,

    /// Refuse pods that mount a volume in a container that reads an env file from it, or in one
    /// that is no init container; without this they are warned of.
    #[arg(long)]
    strict_env_file_mounts: bool,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Show the logs of all parts, and log more; twice for everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    check_machine("up", &args.runtime)?;
    let gates = all_on_but(&args.feature_gates, args.emulated_version)?;
    let plan = Plan {
        state_dir: args.state_dir,
        listen: args.listen,
        store: args.store,
        encryption: args.encryption,
        runtime: args.runtime,
        node_name: args.node_name,
        node_flags: args.node_flag,
        collector_flags: args.collector_flag,
        has_collector: !args.no_collector,
        drivers: DriverFlag::choose(args.driver)?,
        built_in_images: args.built_in_images,
        emulated_version: args.emulated_version,
        gates,
        strict_env_file_mounts: args.strict_env_file_mounts,
        log_format: args.log_format,
        verbose: args.verbose,
    };
    // One thread: the kernel ends our children with the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(plan, &Progress::to_people()))
}

/// Says what this machine lacks for `command`.
pub(crate) fn check_machine(command: &str, runtime: &RuntimeChoice) -> Result<()> {
    let missing = machine::missing(runtime == &RuntimeChoice::Embedded);
    if missing.is_empty() {
        return Ok(());
    }
    let line = |it: &Finding| format!("  - {}: {}; {}", it.subject, it.seen, it.remedy);
    let lines: Vec<_> = missing.iter().map(line).collect();
    bail!("`waybill {command}` cannot run here, it misses:\n{}", lines.join("\n"))
}

async fn serve(plan: Plan, progress: &Progress) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    let mut stack = tokio::select! {
        stack = Stack::start(plan, progress) => stack?,
        () = signals.next() => {
            progress.note("stopped before everything was ready");
            return Ok(Outcome::Failure);
        }
    };
    say_what_next(&stack)?;
    rest::hold_little_memory();
    tokio::select! {
        () = signals.next() => {}
        never = stack.keep(progress) => match never {},
    }
    progress.note("stopping: pods get their grace, 30 s at most; Ctrl-C again does not wait");
    tokio::select! {
        stopped = stack.stop(progress) => {
            stopped?;
            progress.note("stopped; `waybill up` goes on with what is there");
            Ok(Outcome::Success)
        }
        () = signals.next() => {
            progress.note("not waiting; containers may still run, the next start takes them over");
            Ok(Outcome::Exit(130))
        }
    }
}

/// What asks for the end.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Every gate on, then what the user says.
pub(crate) fn all_on_but(flag: &str, emulated: KubeVersion) -> Result<String> {
    let mut on = FeatureGates::new(emulated);
    let known: Vec<_> = on.iter().map(|state| state.gate).collect();
    // Not every version has every gate, and some gates need others, which may stand behind them.
    for gate in known.iter().chain(&known) {
        on = on.with(*gate, true).unwrap_or(on);
    }
    let on = on.iter().filter(|state| state.enabled).map(|state| format!("{}=true", state.gate));
    let gates: Vec<_> = on.chain([flag.to_owned()]).filter(|it| !it.is_empty()).collect();
    let gates = gates.join(",");
    FeatureGates::parse(&gates, emulated)?;
    Ok(gates)
}

fn say_what_next(stack: &Stack) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let state = stack.state_dir().display();
    let image = stack.first_image();
    writeln!(output, "\nTry next, in another terminal:")?;
    writeln!(output, "  export KUBECONFIG={}", stack.kubeconfig().display())?;
    match image {
        Some(image) => {
            let line = "echo hello from $HOSTNAME; sleep 3600";
            writeln!(output, "  kubectl run hello --image={image} -- sh -c '{line}'")?;
            writeln!(output, "  kubectl logs hello")?;
            writeln!(output, "  kubectl exec hello -- env")?;
            writeln!(output, "  waybill env hello          # where each variable came from")?;
            writeln!(
                output,
                "  waybill trace --serve      # who ran what, on a page for your browser"
            )?;
            if stack.has_drivers() {
                let what = "variables from a driver: a class and a variable to copy";
                writeln!(output, "  waybill driver os --help   # {what}")?;
            }
        }
        None => {
            writeln!(output, "  kubectl get nodes")?;
            writeln!(output, "  kubectl auth whoami")?;
            writeln!(output, "  kubectl explain pod.spec.containers.env.valueFrom")?;
        }
    }
    writeln!(output, "\nCtrl-C stops it; everything is kept in {state}.")?;
    output.flush()
}

fn parse_runtime(text: &str) -> Result<RuntimeChoice, String> {
    match text {
        "embedded" => Ok(RuntimeChoice::Embedded),
        socket => parse_socket(socket)
            .map(RuntimeChoice::At)
            .map_err(|_| "expected `embedded`, or unix:///PATH with an absolute path".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_gates_are_on_unless_the_user_says_otherwise() {
        let parse = |flag: &str, version| {
            FeatureGates::parse(&all_on_but(flag, version).unwrap(), version).unwrap()
        };
        assert!(parse("", KubeVersion::NEWEST) == FeatureGates::all_on());
        let off = parse("ExecRequestID=false", KubeVersion::NEWEST);
        assert_eq!(off.iter().filter(|state| !state.enabled).count(), 1);
        let old = KubeVersion::parse("1.34").unwrap();
        assert!(parse("", old).iter().any(|state| state.enabled));
        assert!(all_on_but("Nonsense=true", old).is_err());
    }

    #[test]
    fn a_runtime_is_embedded_or_at_a_socket() {
        assert_eq!(parse_runtime("embedded"), Ok(RuntimeChoice::Embedded));
        assert_eq!(parse_runtime("unix:///a"), Ok(RuntimeChoice::At("/a".into())));
        assert!(parse_runtime("containerd").is_err());
    }
}
