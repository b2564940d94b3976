//! `waybill node`: the node as a process of its own.

mod csi;

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Error, Result, bail};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use waybill_api::{
    gates::{FeatureGates, KubeVersion},
    node::node_may_set_label,
};
use waybill_client::{Options, Program};
use waybill_core::{duration::parse_duration, quantity::Quantity};
use waybill_node::{
    Config, Directories, EvictionLimits, EvictionThresholds, ExecEnvPolicy, ExecSessionPolicy,
    ImageLimits, LogLimits, Node, PairPaths, SysctlPolicy,
};

use self::csi::CsiArgs;
use crate::{
    Outcome,
    log::{self, LogFormat},
    rest,
    runtime::parse_socket,
    state_dir::own_directory,
    swap,
    up::host_name,
};

/// Above the flags without which no node starts, in its help.
const REQUIRED: &str = "Required";

/// How long pods may take to end when the node is drained.
const DRAIN: Duration = Duration::from_secs(30);

/// Run a node: the pods that an API server, or a directory, gives to it.
///
/// Does what kubelets do, over CRI with any container runtime: makes the environments and volumes of
/// pods, starts and restarts their containers, probes them, reports their status, and serves exec,
/// attach, port-forward and logs to the API server. It remembers where every variable came from, for
/// `waybill env`.
///
/// Nothing depends on this process: stop it, upgrade it or kill it, and containers go on; started
/// again, it finds them at the runtime. Only --drain makes it stop the pods when it is told to stop.
///
/// With --standalone there is no API server, and the pods are those in the directory of static pods.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill node --kubeconfig node.conf --tls-cert-file node.crt --tls-key-file node.key \\
    --client-ca-file ca.crt --address 192.0.2.7 --listen 192.0.2.7:10250
  waybill node --standalone --static-pods /etc/waybill/pods --tls-cert-file node.crt \\
    --tls-key-file node.key --client-ca-file ca.crt
  waybill node … --runtime unix:///run/containerd/containerd.sock

The kubeconfig's user must be system:node:NAME in the group system:nodes. The API server checks the
serving certificate, which must name the address. `waybill up` makes all of these by itself.")]
pub(crate) struct Args {
    /// Name of the node; the host's name by default.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Directory for volumes and other files of pods; made if it is missing.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/waybill/node")]
    state_dir: PathBuf,

    /// Directory for logs of containers; made if it is missing.
    #[arg(long, value_name = "DIR", default_value = "/var/log/pods")]
    log_dir: PathBuf,

    /// Socket of the container runtime.
    #[arg(
        long,
        value_name = "unix:///PATH",
        default_value = "unix:///run/waybill/runtime.sock",
        value_parser = parse_socket
    )]
    runtime: PathBuf,

    /// Socket of the collector, whose record those may read who are allowed nodes/trace.
    #[arg(
        long,
        value_name = "unix:///PATH",
        default_value = "unix:///run/waybill/collector.sock",
        value_parser = parse_socket
    )]
    collector: PathBuf,

    /// Address of the node's own API.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10250")]
    listen: SocketAddr,

    /// Where the API server reaches the node; the address of --listen by default.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,

    /// The kubeconfig of the node; not with --standalone.
    #[arg(long, value_name = "FILE", required_unless_present = "standalone", help_heading = REQUIRED)]
    kubeconfig: Option<PathBuf>,

    /// Run without an API server.
    #[arg(long, conflicts_with = "kubeconfig", requires = "static_pods")]
    standalone: bool,

    /// Directory of static pods: manifests that run here whatever the API server says.
    #[arg(long, value_name = "DIR")]
    static_pods: Option<PathBuf>,

    /// Certificate of the node's own API, as PEM.
    #[arg(long, value_name = "FILE", help_heading = REQUIRED)]
    tls_cert_file: PathBuf,

    /// The key of that certificate, as PEM.
    #[arg(long, value_name = "FILE", help_heading = REQUIRED)]
    tls_key_file: PathBuf,

    /// Who vouches for clients of the node's own API, as PEM.
    #[arg(long, value_name = "FILE", help_heading = REQUIRED)]
    client_ca_file: PathBuf,

    /// The Kubernetes version whose defaults apply.
    #[arg(long, value_name = "VERSION", value_parser = KubeVersion::parse, default_value_t)]
    emulated_version: KubeVersion,

    /// Feature gates, as `A=true,B=false`.
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,

    /// Refuse exec sessions with variables if the runtime cannot pass them on; without this they begin
    /// without them, and there is a warning event.
    #[arg(long)]
    require_exec_env_support: bool,

    /// Which exec and attach sessions are served.
    ///
    /// The API server signs each session that it opens, so that nobody can start processes or type into
    /// running ones around it and its audit log, by nodes/proxy or at the node's own address. `ignore` is for the time in which
    /// only some of several API servers sign.
    #[arg(long, value_name = "WHICH", default_value = "auto")]
    exec_sessions: ExecSessions,

    /// The cgroup above those of all pods.
    #[arg(long, value_name = "PATH", default_value = "/waybill")]
    cgroup_root: String,

    /// How large the log of a container grows before it is rotated; a negative size for no limit.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10Mi",
        value_parser = parse_log_size,
        allow_hyphen_values = true
    )]
    container_log_max_size: LogSize,

    /// How many files a container's log may have, with the one that is written.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(2..)
    )]
    container_log_max_files: u16,

    /// How much of the disk may be used, in percent, before images that nobody uses go; 100 for any.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 85,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    image_gc_high_threshold: u8,

    /// Images that nobody uses go until no more of the disk is used than this, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 80,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    image_gc_low_threshold: u8,

    /// Images that have come later than this ago stay, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    image_gc_min_age: u64,

    /// What must be left of memory, disks and process ids, in a kubelet's words; what is not named is not watched.
    ///
    /// With less than this the node says so in its conditions and makes room: images that nobody uses and containers that have
    /// ended go first, then pods, one after the other. New pods are refused meanwhile. An empty list watches nothing. The last one
    /// given counts.
    #[arg(
        long,
        value_name = "SIGNAL<AMOUNT,…",
        default_value_t,
        value_parser = EvictionThresholds::parse,
        overrides_with = "eviction_hard"
    )]
    eviction_hard: EvictionThresholds,

    /// How long there must be enough of something before the node's condition about it ends, such as 5m.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_period)]
    eviction_pressure_transition_period: Duration,

    /// Kernel settings that pods may ask for besides the safe ones, such as `net.core.somaxconn,kernel.msg*`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allowed_unsafe_sysctls: Vec<String>,

    #[command(flatten)]
    csi: CsiArgs,

    /// How many pods the node takes.
    #[arg(long, value_name = "COUNT", default_value_t = 110)]
    max_pods: u32,

    /// How many processes and threads a pod may have, those of exec sessions included; -1 for no limit of its own.
    ///
    /// A pod that forks without end then meets its limit instead of the machine's. All pods together leave a tenth
    /// of the machine's processes alone in any case. The last one given counts.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = -1,
        value_parser = clap::value_parser!(i64).range(-1..),
        allow_hyphen_values = true,
        overrides_with = "pod_max_pids"
    )]
    pod_max_pids: i64,

    /// Labels of the node's object, as `a=b,c=d`.
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = parse_label)]
    labels: Vec<(String, String)>,

    /// Stop all pods before stopping: each gets its grace, at most 30 s.
    #[arg(long)]
    drain: bool,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Log more; twice for everything. RUST_LOG overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ExecSessions {
    /// Those that the API server signed, if it publishes keys for them; otherwise all.
    Auto,
    /// All, signed or not.
    Ignore,
    /// Those that the API server signed.
    Require,
}

impl From<ExecSessions> for ExecSessionPolicy {
    fn from(sessions: ExecSessions) -> Self {
        match sessions {
            ExecSessions::Auto => Self::Auto,
            ExecSessions::Ignore => Self::Ignore,
            ExecSessions::Require => Self::Require,
        }
    }
}

/// How large a log may be; nothing if it may be as large as it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogSize(Option<u64>);

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let (format, verbose, drain) = (args.log_format, args.verbose, args.drain);
    let config = config(args)?;
    log::start_at(format, verbose);
    swap::stay_out();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut node = Node::start(config).await?;
        rest::hold_little_memory();
        writeln!(io::stdout(), "serving on https://{}", node.address())?;
        tokio::select! {
            result = tokio::signal::ctrl_c() => result?,
            _ = terminate.recv() => {}
            reason = node.failed() => bail!("the node failed: {reason}"),
        }
        if drain {
            node.drain(DRAIN).await;
        }
        node.stop().await;
        Ok(Outcome::Success)
    })
}

fn config(args: Args) -> Result<Config> {
    let gates = FeatureGates::parse(&args.feature_gates, args.emulated_version)?;
    let address = args.address.unwrap_or(args.listen.ip());
    if address.is_unspecified() {
        bail!("the API server needs an address of this node; name one with --address");
    }
    if args.standalone && args.exec_sessions == ExecSessions::Require {
        bail!("without an API server nobody signs exec sessions; leave --exec-sessions at auto");
    }
    if args.image_gc_low_threshold >= args.image_gc_high_threshold {
        bail!("--image-gc-low-threshold must be lower than --image-gc-high-threshold");
    }
    let state = own_directory(&args.state_dir)?;
    Ok(Config {
        csi: args.csi.config(&state)?,
        name: args.name.unwrap_or_else(host_name),
        directories: Directories { state, logs: own_directory(&args.log_dir)? },
        runtime: args.runtime,
        collector: args.collector,
        listen: args.listen,
        address,
        serving: PairPaths { certificate: args.tls_cert_file, key: args.tls_key_file },
        client_ca: args.client_ca_file,
        cluster: args.kubeconfig.map(|kubeconfig| Options {
            kubeconfig,
            program: Program("waybill-node"),
            ..Options::default()
        }),
        static_pods: args.static_pods,
        gates,
        exec_env: if args.require_exec_env_support {
            ExecEnvPolicy::Deny
        } else {
            ExecEnvPolicy::Warn
        },
        exec_sessions: args.exec_sessions.into(),
        cgroup_root: args.cgroup_root,
        max_pods: args.max_pods,
        pod_max_pids: args.pod_max_pids,
        image_limits: ImageLimits {
            high_percent: args.image_gc_high_threshold,
            low_percent: args.image_gc_low_threshold,
            least_age: Duration::from_secs(args.image_gc_min_age),
        },
        eviction: EvictionLimits {
            thresholds: args.eviction_hard,
            transition_period: args.eviction_pressure_transition_period,
        },
        log_limits: LogLimits {
            max_bytes: args.container_log_max_size.0,
            max_files: args.container_log_max_files.into(),
        },
        sysctls: SysctlPolicy::allowing(&args.allowed_unsafe_sysctls).map_err(Error::msg)?,
        labels: args.labels.into_iter().collect(),
        clock: Arc::new(Timestamp::now),
    })
}

fn parse_log_size(text: &str) -> Result<LogSize, String> {
    let size = Quantity::parse(text).map_err(|error| error.to_string())?;
    if size.is_zero() {
        return Err("a log needs some room; a negative size is no limit".to_owned());
    }
    Ok(LogSize(u64::try_from(size.value()).ok()))
}

fn parse_period(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a duration, such as 30s or 5m".to_owned())
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, _)) if !node_may_set_label(name) => Err(
            "a node may not set this label itself: labels of kubernetes.io and k8s.io other than a \
             kubelet's are the administrator's; use kubectl label node"
                .to_owned(),
        ),
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    const FILES: &str = "--tls-cert-file c --tls-key-file k --client-ca-file a";

    fn parse(line: &str) -> Result<Args, String> {
        let line = format!("waybill {FILES} {line}");
        let parsed = Cli::try_parse_from(line.split_whitespace());
        parsed.map(|cli| cli.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_has_an_api_server_or_static_pods() {
        assert!(parse("--kubeconfig f").is_ok());
        assert!(parse("--kubeconfig f --static-pods d").is_ok());
        assert!(parse("--standalone --static-pods d").is_ok());
        assert!(parse("").is_err() && parse("--standalone").is_err());
        assert!(parse("--standalone --static-pods d --kubeconfig f").is_err());
    }

    #[test]
    fn sessions_are_signed_by_an_api_server() {
        let check = |line: &str, expected: bool| {
            let found = config(parse(line).unwrap()).map(drop);
            assert_eq!(found.is_ok(), expected, "{line}: {found:?}");
        };
        let dir = tempfile::tempdir().unwrap();
        let dirs = format!("--state-dir {0}/s --log-dir {0}/l", dir.path().display());
        check(&format!("--kubeconfig f --exec-sessions require {dirs}"), true);
        check(&format!("--standalone --static-pods d {dirs}"), true);
        check(&format!("--standalone --static-pods d --exec-sessions require {dirs}"), false);
        assert!(parse("--kubeconfig f --exec-sessions never").is_err());
    }

    #[test]
    fn thresholds_are_written_as_for_kubelets() {
        let thresholds = |flag: &str| {
            parse(&format!("--kubeconfig f {flag}")).map(|args| args.eviction_hard.to_string())
        };
        assert!(
            thresholds("").unwrap().starts_with("memory.available<100Mi,nodefs.available<10%,")
        );
        assert_eq!(
            thresholds("--eviction-hard nodefs.available<1Gi").unwrap(),
            "nodefs.available<1Gi"
        );
        assert!(thresholds("--eviction-hard disk<1Gi").is_err());
        let last = "--eviction-hard nodefs.available<1Gi --eviction-hard=";
        assert_eq!(thresholds(last).unwrap(), "");
        let period = parse("--kubeconfig f --eviction-pressure-transition-period 1m30s").unwrap();
        assert_eq!(period.eviction_pressure_transition_period, Duration::from_secs(90));
        assert!(parse("--kubeconfig f --eviction-pressure-transition-period soon").is_err());
    }

    #[test]
    fn logs_have_limits_or_none() {
        let size = |flag: &str| {
            parse(&format!("--kubeconfig f {flag}")).map(|args| args.container_log_max_size.0)
        };
        assert_eq!(size(""), Ok(Some(10 << 20)));
        assert_eq!(size("--container-log-max-size 4Ki"), Ok(Some(4096)));
        assert_eq!(size("--container-log-max-size -1"), Ok(None));
        assert!(size("--container-log-max-size 0").is_err());
        assert!(size("--container-log-max-size large").is_err());
        assert!(parse("--kubeconfig f --container-log-max-files 1").is_err());
    }

    #[test]
    fn processes_of_a_pod_have_a_limit_or_none() {
        let most =
            |flags: &str| parse(&format!("--kubeconfig f {flags}")).map(|args| args.pod_max_pids);
        assert_eq!(most(""), Ok(-1));
        assert_eq!(most("--pod-max-pids 4096"), Ok(4096));
        // `waybill up` gives one, and a user of it another.
        assert_eq!(most("--pod-max-pids 4096 --pod-max-pids=-1"), Ok(-1));
        assert!(most("--pod-max-pids -2").is_err() && most("--pod-max-pids many").is_err());
    }

    #[test]
    fn the_help_tells_required_flags_from_others() {
        let help = Cli::command().render_help().to_string();
        let (_, required) = help.split_once("Required:").unwrap();
        for flag in ["--kubeconfig", "--tls-cert-file", "--tls-key-file", "--client-ca-file"] {
            assert!(required.contains(flag), "{flag}: {help}");
        }
        assert!(!required.contains("--max-pods"), "{help}");
    }

    #[test]
    fn labels_have_names() {
        let args = parse("--kubeconfig f --labels a=b,c=").unwrap();
        let labels: Vec<_> = args.labels.iter().map(|(it, value)| (&**it, &**value)).collect();
        assert_eq!(labels, [("a", "b"), ("c", "")]);
        assert!(parse("--kubeconfig f --labels a").is_err());
        assert!(parse("--kubeconfig f --labels node.kubernetes.io/type=x").is_ok());
        assert!(parse("--kubeconfig f --labels node-role.kubernetes.io/worker=").is_err());
    }
}
