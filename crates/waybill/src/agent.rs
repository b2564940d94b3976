//! `waybill agent`: what every node of a stock cluster needs.

use std::{
    fs,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use waybill_api::stock::Mode;
use waybill_client::{Options, Session, connect, connect_in_cluster};
use waybill_core::chain::Chain;
use waybill_stock::agent::{Agent, AgentConfig};

use crate::{
    Outcome,
    log::{self, LogFormat},
    rest, swap,
};

/// Before a node that could not be set up is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Serve a node of a cluster whose components are not ours.
///
/// Installs the wrapper around the node's OCI runtime and a runtime handler for it, and restarts the node's runtime if that
/// changed something. Keeps what the wrapper needs in memory below /run/waybill, and fetches values for pods from the
/// node's drivers. `waybill install` runs it on every node.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the node.
    #[arg(long, value_name = "NAME")]
    node_name: String,

    /// Where the node's / is.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The wrapper to install, for this process. Without it the node is left as it is.
    #[arg(long, value_name = "FILE")]
    wrapper: Option<PathBuf>,

    /// Take everything off the node in place of setting it up, and then only wait.
    #[arg(long, conflicts_with = "wrapper")]
    remove: bool,

    /// The directory that the wrapper reads, for the node.
    #[arg(long, value_name = "DIR", default_value = "/run/waybill")]
    run_dir: PathBuf,

    /// The directory of the kubelet, for the node.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,

    /// What becomes of an exec without a session, in namespaces whose label waybill.dev/exec does not say.
    #[arg(long, value_name = "MODE", default_value = "record")]
    mode: ModeArg,

    /// The API group of ProviderClasses in the cluster.
    #[arg(long, value_name = "GROUP", default_value = "waybill.dev")]
    provider_class_group: String,

    /// The address at which gates ask for records of sessions. Without it nobody is told of them.
    #[arg(long, value_name = "IP")]
    records_address: Option<IpAddr>,

    /// The port there.
    #[arg(long, value_name = "PORT", default_value_t = 9447)]
    records_port: u16,

    /// The kubeconfig of the cluster. Without it, this must be a pod of the cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Log more; twice for everything. RUST_LOG overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// It is refused
    Enforce,
    /// It happens, and is on record as nobody's
    Record,
}

/// Run a program of another root. The agent asks the node's systemd with it.
#[derive(clap::Args)]
pub(crate) struct OnHostArgs {
    /// The root.
    root: PathBuf,

    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    log::start_at(args.log_format, args.verbose);
    swap::stay_out();
    // Read before anything is done: a node is set up whole or not at all.
    let read = |path: &PathBuf| {
        fs::read(path).with_context(|| format!("cannot read the wrapper {}", path.display()))
    };
    let wrapper = args.wrapper.as_ref().map(read).transpose()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let session = session(args.kubeconfig.clone()).await?;
        let agent = Agent::start(config(args), session.client).await?;
        rest::hold_little_memory();
        writeln!(io::stdout(), "serving")?;
        let enter = [std::env::current_exe()?, PathBuf::from("on-host")];
        let failed = tokio::select! {
            result = tokio::signal::ctrl_c() => { result?; None }
            _ = terminate.recv() => None,
            () = set_up(&agent, wrapper.as_deref(), args.remove, &enter) => None,
            reason = agent.failed() => Some(reason),
        };
        agent.stop().await;
        match failed {
            Some(reason) => bail!("{reason}"),
            None => Ok(Outcome::Success),
        }
    })
}

/// Runs a program with another root in place of this one.
pub(crate) fn run_on_host(args: &OnHostArgs) -> Result<Outcome> {
    let [program, arguments @ ..] = args.command.as_slice() else { return Ok(Outcome::Usage) };
    rustix::process::chroot(&args.root).context("cannot enter the root")?;
    std::env::set_current_dir(Path::new("/"))?;
    // It returns only if it fails.
    Err(Command::new(program).args(arguments).exec()).context("cannot run the program")
}

/// Brings the node into its state, as often as it takes, and then waits for ever.
async fn set_up(agent: &Agent, wrapper: Option<&[u8]>, remove: bool, enter: &[PathBuf]) {
    loop {
        let done = match (wrapper, remove) {
            (Some(wrapper), _) => agent.set_up(wrapper, enter).await,
            (None, true) => agent.tear_down(enter).await,
            (None, false) => Ok(()),
        };
        match done {
            Ok(()) => return std::future::pending().await,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "the node is not set up; trying again");
            }
        }
        sleep(AGAIN).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the binary")]
fn config(args: &Args) -> AgentConfig {
    AgentConfig {
        node: args.node_name.clone(),
        root: args.root.clone(),
        run: args.run_dir.clone(),
        kubelet: args.kubelet_dir.clone(),
        mode: match args.mode {
            ModeArg::Enforce => Mode::Enforce,
            ModeArg::Record => Mode::Record,
        },
        group: args.provider_class_group.clone(),
        records: args.records_address.map(|ip| SocketAddr::new(ip, args.records_port)),
        clock: SystemTime::now,
    }
}

async fn session(kubeconfig: Option<PathBuf>) -> Result<Session> {
    Ok(match kubeconfig {
        Some(kubeconfig) => connect(&Options { kubeconfig, ..Options::default() }).await?,
        None => connect_in_cluster()?,
    })
}
