//! What all drivers have in common: flags, signals, the way from start to end.

use std::{
    io::{self, Write},
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;
use waybill_csi::{
    rate::Rate,
    server::{Config, Server, ServerError},
};

use crate::{
    Outcome,
    log::{self, LogFormat},
    rest,
    runtime::parse_socket,
    state_dir::own_directory,
    swap,
    up::host_name,
};

/// Drivers wait for others most of the time.
const THREADS: usize = 2;

/// Where and how a driver serves.
#[derive(clap::Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct ServeArgs {
    /// Socket to serve on: KUBELET/plugins/NAME/csi.sock.
    #[arg(long, value_name = "unix:///PATH", value_parser = parse_socket)]
    socket: PathBuf,

    /// Where the kubelet looks for new drivers: KUBELET/plugins_registry. Without it the driver does not register.
    #[arg(long, value_name = "DIR")]
    registration_dir: Option<PathBuf>,

    /// The path at which the kubelet sees the socket, if the driver runs in a container.
    #[arg(long, value_name = "PATH", requires = "registration_dir")]
    kubelet_socket: Option<PathBuf>,

    /// Name of the node; the host's name by default.
    #[arg(long, value_name = "NAME")]
    node_id: Option<String>,

    /// How many calls the pods of one namespace may cause in a second; 0 for any number.
    #[arg(long, value_name = "CALLS", default_value_t = Rate::default().per_second.get())]
    rate_limit: u32,

    /// How many of them may come at once.
    #[arg(long, value_name = "CALLS", default_value_t = Rate::default().burst)]
    rate_burst: NonZeroU32,

    /// How much the cache may hold.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    cache_bytes: usize,

    /// Address for metrics, at /metrics; port 0 takes a free one. Without it there are none.
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Log more; twice for everything. RUST_LOG overrides it. Values are never logged.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Starts a driver with `start`, and serves until a signal or a failure.
pub(super) fn serve<F>(args: ServeArgs, start: impl FnOnce(Config) -> F) -> Result<Outcome>
where
    F: Future<Output = Result<Server, ServerError>>,
{
    log::start_at(args.log_format, args.verbose);
    swap::stay_out();
    let config = config(args)?;
    let socket = config.socket.clone();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut server = start(config).await?;
        rest::hold_little_memory();
        writeln!(io::stdout(), "serving on unix://{}", socket.display())?;
        if let Some(address) = server.metrics_address() {
            info!(%address, "serving metrics");
        }
        let ended = loop {
            tokio::select! {
                result = tokio::signal::ctrl_c() => break result.map_err(Into::into),
                _ = terminate.recv() => break Ok(()),
                _ = hang_up.recv() => {
                    server.cache().clear();
                    info!("the cache is empty");
                }
                reason = server.failed() => break Err(anyhow!("the driver cannot go on: {reason}")),
            }
        };
        server.stop().await;
        ended.map(|()| Outcome::Success)
    })
}

fn config(args: ServeArgs) -> Result<Config> {
    let rate = NonZeroU32::new(args.rate_limit)
        .map(|per_second| Rate { per_second, burst: args.rate_burst });
    let registration_dir = args.registration_dir.as_deref().map(own_directory).transpose()?;
    Ok(Config {
        socket: in_own_directory(&args.socket)?,
        registration_dir,
        kubelet_socket: args.kubelet_socket,
        node_id: args.node_id.unwrap_or_else(host_name),
        rate,
        cache_bytes: args.cache_bytes,
        metrics_listen: args.metrics_listen,
    })
}

/// Whoever can write to the directory could put another socket into its place.
fn in_own_directory(socket: &Path) -> Result<PathBuf> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        bail!("--socket needs the path of a socket, not {}", socket.display());
    };
    let directory = own_directory(directory).context("the socket needs a place of its own")?;
    Ok(directory.join(name))
}
