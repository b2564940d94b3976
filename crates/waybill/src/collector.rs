//! `waybill collector`: keeps a record of what runs in the sessions of this node.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result};
use jiff::SignedDuration;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use waybill_core::chain::Chain;
use waybill_trace::{
    Collector, CollectorConfig, EventSource, RecordServer, RecordServerConfig, Retention,
};

use crate::{
    Outcome,
    log::{self, LogFormat},
    rest,
    runtime::parse_socket,
    state_dir::own_directory,
};

/// Below the state directory.
pub(crate) const RECORD: &str = "trace";

/// Record what runs in the sessions of this node.
///
/// Takes from the kernel which programs start and end in exec sessions and debug containers, finds out whose session each is by
/// the cgroup that the runtime made for it, and writes it below STATE/trace together with who asked for the session. Lines are chained by
/// their hashes: `waybill trace verify` finds one that was removed or changed. `waybill trace` reads it.
///
/// Events come by eBPF; where the kernel does not take our program, by the proc connector, and else from looks at all processes, and every
/// answer says which. Whoever may `get` `nodes/trace` reads the record through the API server and the node, which asks at --listen. Arguments that look like secrets are hidden before anything is written. `waybill up` runs a collector itself.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill collector --state-dir /var/lib/waybill --runtime unix:///run/waybill/runtime.sock")]
pub(crate) struct Args {
    /// Directory of the record, which is in `trace` below it, and of the audit log.
    #[arg(long, value_name = "DIR", env = "WAYBILL_STATE_DIR", default_value = "/var/lib/waybill")]
    state_dir: PathBuf,

    /// The runtime's socket.
    #[arg(
        long,
        value_name = "unix:///PATH",
        value_parser = parse_socket,
        default_value = "unix:///run/waybill/runtime.sock"
    )]
    runtime: PathBuf,

    /// Where the node asks for the record.
    #[arg(
        long,
        value_name = "unix:///PATH",
        value_parser = parse_socket,
        default_value = "unix:///run/waybill/collector.sock"
    )]
    listen: PathBuf,

    /// The audit log of the API server, if one runs on this machine and it is not STATE/audit/audit.log.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// How many MiB of lines about programs are kept.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    max_programs: u64,

    /// How many MiB of lines about sessions are kept.
    #[arg(long, value_name = "MIB", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    max_sessions: u64,

    /// How many days lines are kept.
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..))]
    max_age: u16,

    /// Where events come from; the best source of this machine without it.
    #[arg(long, value_name = "SOURCE", alias = "events")]
    source: Option<Events>,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Log more; twice for everything. RUST_LOG overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Events {
    Ebpf,
    Connector,
    Scan,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    log::start_at(args.log_format, args.verbose);
    let config = config(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let collector = Collector::start(&config).await.context("the collector cannot begin")?;
        match collector.source() {
            (source, None) => info!(?source, "collecting"),
            (source, Some(why)) => warn!(?source, why, "collecting from a lesser source"),
        }
        let server = RecordServer::start(RecordServerConfig {
            socket: args.listen.clone(),
            directory: config.directory.clone(),
            runtime: config.runtime.clone(),
            audit_log: config.audit_log.clone(),
        });
        // Recording comes first.
        let _server = server.inspect_err(|error| {
            let socket = args.listen.display();
            warn!(%socket, error = %Chain(error), "the record is read on this machine alone");
        });
        rest::hold_little_memory();
        writeln!(io::stdout(), "serving on {}", config.directory.display())?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        collector.run(stop).await?;
        Ok(Outcome::Success)
    })
}

fn config(args: &Args) -> Result<CollectorConfig> {
    let state = own_directory(&args.state_dir)?;
    let usual = state.join("audit/audit.log");
    let audit_log = args.audit_log.clone().or_else(|| usual.exists().then_some(usual));
    let source = args.source.map(|events| match events {
        Events::Ebpf => EventSource::Ebpf,
        Events::Connector => EventSource::Connector,
        Events::Scan => EventSource::Scan,
    });
    Ok(CollectorConfig {
        directory: state.join(RECORD),
        runtime: args.runtime.clone(),
        audit_log,
        retention: Retention {
            programs: args.max_programs << 20,
            sessions: args.max_sessions << 20,
            age: SignedDuration::from_hours(i64::from(args.max_age) * 24),
        },
        source,
    })
}
