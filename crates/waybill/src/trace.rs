//! `waybill trace`: who ran what in which container.

mod denied;
mod recorded;
mod remote;
mod serve;
mod stock;
mod table;
mod tree;
mod verify;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use waybill_core::chain::Chain;
use waybill_trace::{
    AuditLog, Filter, LiveProcess, Membership, Processes, Runtime, Trace, is_debug_container, join,
    join_debug, judge, process_started, read_processes, sort, trace_own_process,
};

use crate::{Outcome, runtime::parse_socket, state_dir::trusted_directory, terminal::escaped};

/// Show who ran what in which container.
///
/// Joins the audit log of the API server with the exec and attach sessions and debug containers of the runtime
/// on this machine, and with what runs in them now. Each exec session and each container has a cgroup that the
/// runtime knows by the kernel's ID, so a user is found whatever a process did to its environment, and after the
/// connection has ended too. A process that was moved is shown as moved, and nobody is named for it. What is typed
/// into an attached container runs as the container's own: then users are named who may have typed it. Names of
/// variables are shown, values never.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill trace                         every session that is known
  waybill trace --pod shop/web -f       sessions in one pod, as they begin and end
  waybill trace --user anna --since 2h
  waybill trace --pid 4711              who is behind this process
  waybill trace --command 'curl '       sessions in which this ran
  waybill trace --session 3f2a…         one session: what ran in it, and who else was there
  waybill trace --denied --since 1d     who tried and was refused, and why
  waybill trace verify                  whether the record is as it was written
  waybill trace export --since 7d       for a SIEM: JSON lines in the words of ECS
  waybill trace --serve                 all of it on a page, for a browser of this machine
  waybill trace --node worker-1         without root, by the right to get nodes/trace
  waybill trace --kubeconfig ~/.kube/config -n shop    all nodes, or a cluster with `waybill install`")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// Only sessions in this pod, as POD or NAMESPACE/POD.
    #[arg(long, global = true, value_name = "POD")]
    pod: Option<String>,

    /// Only sessions of this user.
    #[arg(long, global = true, value_name = "USER")]
    user: Option<String>,

    /// Only what ran within this time, such as 90s, 10m, 2h, 7d, or since a time of RFC 3339.
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,

    /// Only what began until this time ago, or until a time of RFC 3339.
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_since)]
    until: Option<Since>,

    /// Only sessions with this text in what was asked for, or in the programs that ran.
    #[arg(long, global = true, value_name = "TEXT")]
    command: Option<String>,

    /// Only sessions that were given this variable.
    #[arg(long, global = true, value_name = "NAME")]
    variable: Option<String>,

    /// Only the session with this name or audit ID, with what ran in it and who else was there.
    #[arg(long, global = true, value_name = "ID")]
    session: Option<String>,

    /// Also what ran in each session, as a tree.
    #[arg(long, conflicts_with = "follow")]
    tree: bool,

    /// Only what this process of the machine belongs to: an exec session, a debug container, or another
    /// container with those who could type into it.
    #[arg(long, value_name = "PID", conflicts_with = "follow")]
    pid: Option<u32>,

    /// Also what nobody asked for, such as probes and lifecycle hooks.
    #[arg(long, global = true)]
    probes: bool,

    /// Who tried to exec, attach or debug and was refused: when, as whom, what, and why. Needs the audit log alone.
    #[arg(long, conflicts_with_all = ["follow", "pid", "probes", "runtime"])]
    denied: bool,

    /// Go on, and show sessions as they begin and end.
    #[arg(short, long)]
    follow: bool,

    /// How to print: a table, a wide one, CSV, or JSON (one array; with --follow one object a line).
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,

    /// State directory of `waybill up`, which has the audit log and names the runtime's socket.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "WAYBILL_STATE_DIR",
        default_value = "/var/lib/waybill"
    )]
    state_dir: PathBuf,

    /// The audit log, if it is elsewhere.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// The runtime's socket, if it is elsewhere.
    #[arg(
        long,
        value_name = "unix:///PATH",
        value_parser = parse_socket,
        conflicts_with_all = ["kubeconfig", "context", "node"]
    )]
    runtime: Option<PathBuf>,

    #[command(flatten)]
    serve: serve::ServeArgs,

    #[command(flatten)]
    stock: stock::StockArgs,

    #[command(flatten)]
    remote: RemoteArgs,
}

/// Which nodes, if not this machine.
#[derive(clap::Args)]
struct RemoteArgs {
    /// Read the record of this node through the API server, without root; without it those of all nodes, with --kubeconfig.
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cluster")]
    node: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Csv,
    Json,
    Table,
    Wide,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Whether the record is as it was written: finds lines that were removed, changed or swapped.
    Verify {
        /// A hash of a line that is known from elsewhere, such as from an earlier run; may be given several times.
        #[arg(long, value_name = "HASH")]
        hash: Vec<String>,
    },
    /// Sessions and programs as JSON lines in the words of the Elastic Common Schema.
    Export,
}

/// What `--since` was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Ago(SignedDuration),
    Time(Timestamp),
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    if let Some(Action::Verify { hash }) = &args.action {
        return verify::run(args, hash);
    }
    if args.serve.is_of_file() {
        return serve::run(args, false);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_remote = runtime.block_on(remote::is_meant(args))?;
    if is_remote && args.denied {
        bail!(
            "who was refused is in the audit log of the API server: --denied reads it on its machine"
        );
    }
    if stock::is_meant(args) && !is_remote {
        drop(runtime);
        return stock::run(args);
    }
    if args.serve.is_wanted() {
        drop(runtime);
        return serve::run(args, is_remote);
    }
    if args.denied {
        return show_denied(args);
    }
    runtime.block_on(async {
        match (&args.action, args.pid) {
            (Some(Action::Export), _) => return recorded::export(args, is_remote).await,
            _ if is_remote && args.follow => return recorded::follow(args, true).await,
            _ if is_remote => return recorded::show(args, true).await,
            (None, Some(pid)) if Path::new(&format!("/proc/{pid}")).exists() => {}
            _ if args.follow => return recorded::follow(args, false).await,
            _ => return recorded::show(args, false).await,
        }
        // It runs, so that the kernel can tell whose it is.
        let filter = filter(args)?;
        let mut sources = Sources::open(args).await?;
        let traces = sources.of_process(args.pid.unwrap_or_default()).await?;
        let traces: Vec<_> = traces.into_iter().filter(|it| filter.takes(it)).collect();
        print(&traces, args.output)?;
        Ok(Outcome::Success)
    })
}

fn show_denied(args: &Args) -> Result<Outcome> {
    let mut audit = AuditLog::at(&named_audit_log(args)?);
    audit.refresh()?;
    let attempts = waybill_trace::denied(audit.requests(), &filter(args)?);
    let text = match args.output {
        Output::Json => escaped(&serde_json::to_string_pretty(&attempts)?) + "\n",
        Output::Csv | Output::Table | Output::Wide => denied::all(&attempts),
    };
    write!(io::stdout(), "{text}")?;
    Ok(Outcome::Success)
}

/// Where the parts of the answer come from.
pub(crate) struct Sources {
    audit: AuditLog,
    runtime: Runtime,
}

impl Sources {
    async fn open(args: &Args) -> Result<Self> {
        let audit = named_audit_log(args)?;
        let socket = args.runtime.clone();
        let socket = socket.unwrap_or_else(|| runtime_socket(&args.state_dir));
        let runtime = Runtime::connect(&socket).await.map_err(|error| {
            let error = Chain(&error);
            anyhow!(
                "{error}; is `waybill up` running? --state-dir says where, --runtime and --audit-log name the parts"
            )
        })?;
        Ok(Self { audit: AuditLog::at(&audit), runtime })
    }

    /// Those of the `waybill up` with this state directory.
    pub(crate) async fn of(state_dir: &Path) -> Result<Self> {
        let runtime = Runtime::connect(&runtime_socket(state_dir)).await?;
        Ok(Self { audit: AuditLog::at(&audit_log(state_dir)), runtime })
    }

    pub(crate) async fn read(&mut self) -> Result<Vec<Trace>> {
        Ok(self.look().await?.traces)
    }

    /// A process that seems to be moved is looked at again: between two questions sessions begin and end.
    async fn look(&mut self) -> Result<View> {
        let view = self.look_once(None).await?;
        if view.judged.values().any(|it| matches!(it, Membership::Moved(_))) {
            return self.look_once(Some(&view.judged)).await;
        }
        Ok(view)
    }

    /// Whom `before` does not call moved is not called so now.
    async fn look_once(&mut self, before: Option<&BTreeMap<u32, Membership>>) -> Result<View> {
        // First of all: then a session that the runtime does not know has ended.
        let processes = read_processes().context("reading /proc")?;
        let (sessions, cgroups) = self.runtime.sessions().await?;
        let containers = self.runtime.containers().await?;
        // After the sessions: a request is recorded before its session begins.
        self.audit.refresh()?;
        let requests = self.audit.requests();
        let lives = self.runtime.lives(|place| is_debug_container(requests, place)).await?;
        let mut judged = judge(&processes, &sessions, &cgroups);
        if let Some(before) = before {
            let moved = |it: Option<&Membership>| matches!(it, Some(Membership::Moved(_)));
            judged.retain(|pid, it| !moved(Some(it)) || moved(before.get(pid)));
        }
        let processes = Processes::new(&judged, LiveProcess::of);
        let mut traces = join(requests, &sessions, &containers, &processes, now());
        traces.extend(join_debug(requests, &lives, |life| processes.of_container(&life.id)));
        sort(&mut traces);
        Ok(View { traces, judged })
    }

    /// What a process of this machine belongs to.
    async fn of_process(&mut self, pid: u32) -> Result<Vec<Trace>> {
        let View { mut traces, judged } = self.look().await?;
        let container = match judged.get(&pid) {
            Some(Membership::Session(session)) => {
                traces.retain(|trace| trace.session.as_ref() == Some(session));
                return Ok(traces);
            }
            Some(Membership::Moved(moved)) => bail!(
                "process {pid} was moved, so nobody can be named for it: {}",
                moved.reason.describe()
            ),
            Some(Membership::Container(id)) => id,
            None => bail!(
                "process {pid} belongs to no exec session and no container of this machine's runtime"
            ),
        };
        let lives = self.runtime.lives(|_| true).await?;
        let life = lives.iter().find(|life| life.id == *container);
        let life = life.with_context(|| format!("the container of process {pid} is gone"))?;
        let started = process_started(pid, now());
        let started = started.with_context(|| format!("reading the start of process {pid}"))?;
        Ok(vec![trace_own_process(life, &traces, LiveProcess::of(pid), started)])
    }
}

/// What there was to see at one time.
struct View {
    traces: Vec<Trace>,
    judged: BTreeMap<u32, Membership>,
}

fn named_audit_log(args: &Args) -> Result<PathBuf> {
    match &args.audit_log {
        Some(named) => Ok(named.clone()),
        // Records that somebody else made would name whom they like.
        None => Ok(audit_log(&trusted_directory(&args.state_dir)?)),
    }
}

fn audit_log(state_dir: &Path) -> PathBuf {
    state_dir.join("audit/audit.log")
}

/// Under `waybill up` the socket is below the state directory; alone, the runtime has one place.
pub(crate) fn runtime_socket(state_dir: &Path) -> PathBuf {
    let own = state_dir.join("run/runtime.sock");
    let is_up = state_dir.join("up.lock").exists();
    if is_up || own.exists() { own } else { PathBuf::from("/run/waybill/runtime.sock") }
}

/// A time that was given, or how long ago it is.
fn since(given: Option<Since>) -> Result<Option<Timestamp>> {
    Ok(match given {
        Some(Since::Ago(ago)) => Some(now().checked_sub(ago)?),
        Some(Since::Time(time)) => Some(time),
        None => None,
    })
}

/// What the user wants to see.
fn filter(args: &Args) -> Result<Filter> {
    Ok(Filter {
        pod: args.pod.clone(),
        user: args.user.clone(),
        since: since(args.since)?,
        probes: args.probes || args.pid.is_some(),
    })
}

fn print(traces: &[Trace], output: Output) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match output {
        Output::Json => {
            let text = serde_json::to_string_pretty(traces)?;
            writeln!(stdout, "{}", escaped(&text))?;
        }
        Output::Csv | Output::Table | Output::Wide => write!(stdout, "{}", table::traces(traces))?,
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the clock enters here")]
fn now() -> Timestamp {
    Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default()
}

fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(time) = text.parse() {
        return Ok(Since::Time(time));
    }
    let expected = || "expected a number with s, m, h or d, or a time of RFC 3339".to_owned();
    let mut number = text.chars();
    let seconds = match number.next_back() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 24 * 3_600,
        _ => return Err(expected()),
    };
    let number: u32 = number.as_str().parse().map_err(|_| expected())?;
    Ok(Since::Ago(SignedDuration::from_secs(i64::from(number) * seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spans_or_points() {
        assert_eq!(parse_since("90s"), Ok(Since::Ago(SignedDuration::from_secs(90))));
        assert_eq!(parse_since("7d"), Ok(Since::Ago(SignedDuration::from_hours(168))));
        let point = "2026-01-02T03:04:05Z";
        assert_eq!(parse_since(point), Ok(Since::Time(point.parse().unwrap())));
        for wrong in ["", "h", "-1h", "1.5h", "1w", "é", "99999999999999999999d"] {
            assert!(parse_since(wrong).is_err(), "{wrong}");
        }
    }
}
