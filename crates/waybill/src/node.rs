//! `waybill node`: the node as a process of its own.

use std::{
    fs,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use waybill_api::gates::{FeatureGates, KubeVersion};
use waybill_client::Options;
use waybill_node::{Config, Directories, ExecEnvPolicy, Node, PairPaths};

use crate::{
    Outcome,
    log::{self, LogFormat},
    rest,
    runtime::parse_socket,
    up::host_name,
};

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

    /// Address of the node's own API.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10250")]
    listen: SocketAddr,

    /// Where the API server reaches the node; the address of --listen by default.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,

    /// The kubeconfig of the node.
    #[arg(long, value_name = "FILE", required_unless_present = "standalone")]
    kubeconfig: Option<PathBuf>,

    /// Run without an API server.
    #[arg(long, conflicts_with = "kubeconfig", requires = "static_pods")]
    standalone: bool,

    /// Directory of static pods: manifests that run here whatever the API server says.
    #[arg(long, value_name = "DIR")]
    static_pods: Option<PathBuf>,

    /// Certificate of the node's own API, as PEM.
    #[arg(long, value_name = "FILE")]
    tls_cert_file: PathBuf,

    /// The key of that certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    tls_key_file: PathBuf,

    /// Who vouches for clients of the node's own API, as PEM.
    #[arg(long, value_name = "FILE")]
    client_ca_file: PathBuf,

    /// The Kubernetes version whose defaults apply.
    #[arg(long, value_name = "VERSION", value_parser = KubeVersion::parse, default_value_t)]
    emulated_version: KubeVersion,

    /// Feature gates, as `A=true,B=false`.
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,

    /// What happens to the variables of an exec session if the runtime cannot pass them on.
    #[arg(long, value_name = "POLICY", default_value = "warn")]
    exec_env_policy: ExecEnv,

    /// The cgroup above those of all pods.
    #[arg(long, value_name = "PATH", default_value = "/waybill")]
    cgroup_root: String,

    /// How many pods the node takes.
    #[arg(long, value_name = "COUNT", default_value_t = 110)]
    max_pods: u32,

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

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ExecEnv {
    /// The session is refused.
    Deny,
    /// The session goes on without them, and there is a warning.
    Warn,
}

impl From<ExecEnv> for ExecEnvPolicy {
    fn from(policy: ExecEnv) -> Self {
        match policy {
            ExecEnv::Deny => Self::Deny,
            ExecEnv::Warn => Self::Warn,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let (format, verbose, drain) = (args.log_format, args.verbose, args.drain);
    let config = config(args)?;
    log::start_at(format, verbose);
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
    let directory = |path: &PathBuf| {
        let made = fs::create_dir_all(path).and_then(|()| fs::canonicalize(path));
        made.with_context(|| format!("creating {}", path.display()))
    };
    Ok(Config {
        name: args.name.unwrap_or_else(host_name),
        directories: Directories {
            state: directory(&args.state_dir)?,
            logs: directory(&args.log_dir)?,
        },
        runtime: args.runtime,
        listen: args.listen,
        address,
        serving: PairPaths { certificate: args.tls_cert_file, key: args.tls_key_file },
        client_ca: args.client_ca_file,
        cluster: args.kubeconfig.map(|kubeconfig| Options { kubeconfig, ..Options::default() }),
        static_pods: args.static_pods,
        gates,
        exec_env: args.exec_env_policy.into(),
        cgroup_root: args.cgroup_root,
        max_pods: args.max_pods,
        labels: args.labels.into_iter().collect(),
        clock: Arc::new(Timestamp::now),
    })
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
    fn labels_have_names() {
        let args = parse("--kubeconfig f --labels a=b,c=").unwrap();
        let labels: Vec<_> = args.labels.iter().map(|(it, value)| (&**it, &**value)).collect();
        assert_eq!(labels, [("a", "b"), ("c", "")]);
        assert!(parse("--kubeconfig f --labels a").is_err());
    }
}
