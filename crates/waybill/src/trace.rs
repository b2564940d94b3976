//! `waybill trace`: who ran what in which container.

mod table;

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use waybill_trace::{
    AuditLog, Container, End, Filter, LiveProcess, Membership, Processes, Runtime, Trace, join,
    judge, read_processes,
};

use self::table::Table;
use crate::{Outcome, runtime::parse_socket};

/// How often is looked while following.
const LOOK: Duration = Duration::from_millis(500);

/// Show who ran what in which container.
///
/// Joins the audit log of the API server with the exec sessions of the runtime on this machine, and with
/// what runs in them now. Each session has a cgroup that the runtime made and knows by the kernel's ID, so a user is
/// found whatever a process did to its environment, and after the connection has ended too. A process that was
/// moved is shown as moved, and nobody is named for it. Names of variables are shown, values never.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill trace                         every session that is known
  waybill trace --pod shop/web -f       sessions in one pod, as they begin and end
  waybill trace --user anna --since 2h
  waybill trace --pid 4711              who is behind this process")]
pub(crate) struct Args {
    /// Only sessions in this pod, as POD or NAMESPACE/POD.
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// Only sessions of this user.
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// Only what ran within this time, such as 90s, 10m, 2h, 7d, or since a time of RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,

    /// Only the session that this process of the machine belongs to.
    #[arg(long, value_name = "PID", conflicts_with = "follow")]
    pid: Option<u32>,

    /// Also what nobody asked for, such as probes and lifecycle hooks.
    #[arg(long)]
    probes: bool,

    /// Go on, and show sessions as they begin and end.
    #[arg(short, long)]
    follow: bool,

    /// How to print: a table, or JSON (one array; with --follow one object a line).
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,

    /// State directory of `waybill up`, which has the audit log and names the runtime's socket.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/waybill")]
    state_dir: PathBuf,

    /// The audit log, if it is elsewhere.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// The runtime's socket, if it is elsewhere.
    #[arg(long, value_name = "unix:///PATH", value_parser = parse_socket)]
    runtime: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Json,
    Table,
}

/// What `--since` was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Ago(SignedDuration),
    Time(Timestamp),
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut sources = Sources::open(args).await?;
        let mut wanted = Wanted::new(args)?;
        if args.follow {
            follow(&mut sources, &wanted, args.output).await
        } else {
            let view = sources.look().await?;
            if let Some(pid) = args.pid {
                wanted.session = Some(view.session_of(pid)?);
                wanted.filter.probes = true;
            }
            let traces: Vec<_> = view.traces.into_iter().filter(|it| wanted.takes(it)).collect();
            print(&traces, args.output)?;
            Ok(Outcome::Success)
        }
    })
}

/// Where the parts of the answer come from.
pub(crate) struct Sources {
    audit: AuditLog,
    runtime: Runtime,
}

impl Sources {
    async fn open(args: &Args) -> Result<Self> {
        let audit = args.audit_log.clone().unwrap_or_else(|| audit_log(&args.state_dir));
        let socket = args.runtime.clone();
        let socket = socket.unwrap_or_else(|| runtime_socket(&args.state_dir));
        let runtime = Runtime::connect(&socket).await.context(
            "is `waybill up` running? --state-dir says where, --runtime and --audit-log name the parts",
        )?;
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
        let mut view = self.look_once(None).await?;
        if view.judged.values().any(|it| matches!(it, Membership::Moved(_))) {
            view = self.look_once(Some(&view.judged)).await?;
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
        let mut judged = judge(&processes, &sessions, &cgroups);
        if let Some(before) = before {
            let moved = |it: Option<&Membership>| matches!(it, Some(Membership::Moved(_)));
            judged.retain(|pid, it| !moved(Some(it)) || moved(before.get(pid)));
        }
        let processes = Processes::new(&judged, LiveProcess::of);
        let traces = join(self.audit.requests(), &sessions, &containers, &processes, now());
        Ok(View { traces, judged, containers })
    }
}

/// What there was to see at one time.
struct View {
    traces: Vec<Trace>,
    judged: BTreeMap<u32, Membership>,
    containers: HashMap<String, Container>,
}

impl View {
    /// The session of a process, if one can be named for it.
    fn session_of(&self, pid: u32) -> Result<String> {
        match self.judged.get(&pid) {
            Some(Membership::Session(session)) => Ok(session.clone()),
            Some(Membership::Moved(moved)) => bail!(
                "process {pid} was moved, so nobody can be named for it: {}",
                moved.reason.describe()
            ),
            Some(Membership::Container(id)) => {
                let Container { namespace, pod, name } =
                    self.containers.get(id).cloned().unwrap_or_default();
                bail!(
                    "process {pid} belongs to no exec session: it is one of the own processes of container \
                     {name:?} of pod {namespace}/{pod}"
                )
            }
            None => bail!("process {pid} belongs to no exec session of this machine's runtime"),
        }
    }
}

fn audit_log(state_dir: &Path) -> PathBuf {
    state_dir.join("audit/audit.log")
}

/// Under `waybill up` the socket is below the state directory; alone, the runtime has one place.
pub(crate) fn runtime_socket(state_dir: &Path) -> PathBuf {
    let own = state_dir.join("run/runtime.sock");
    if own.exists() { own } else { PathBuf::from("/run/waybill/runtime.sock") }
}

/// What the user wants to see.
struct Wanted {
    filter: Filter,
    session: Option<String>,
}

impl Wanted {
    fn new(args: &Args) -> Result<Self> {
        let since = match args.since {
            Some(Since::Ago(ago)) => Some(now().checked_sub(ago)?),
            Some(Since::Time(time)) => Some(time),
            None => None,
        };
        let filter =
            Filter { pod: args.pod.clone(), user: args.user.clone(), since, probes: args.probes };
        Ok(Self { filter, session: None })
    }

    fn takes(&self, trace: &Trace) -> bool {
        let session = self.session.is_none() || self.session == trace.session;
        session && self.filter.takes(trace)
    }
}

/// Shows each session when it is first seen, and again when it has ended.
async fn follow(sources: &mut Sources, wanted: &Wanted, output: Output) -> Result<Outcome> {
    let mut shown: HashMap<(Option<String>, Option<String>), bool> = HashMap::new();
    let mut table = Table::default();
    loop {
        for trace in sources.read().await? {
            let over = trace.end != End::Running;
            let key = (trace.audit_id.clone(), trace.session.clone());
            if wanted.takes(&trace) && shown.insert(key, over) != Some(over) {
                let line = match output {
                    Output::Json => serde_json::to_string(&trace)?,
                    Output::Table => table.line(&trace),
                };
                writeln!(io::stdout(), "{line}")?;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            result = tokio::signal::ctrl_c() => {
                result?;
                return Ok(Outcome::Success);
            }
        }
    }
}

fn print(traces: &[Trace], output: Output) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut stdout, traces)?;
            writeln!(stdout)?;
        }
        Output::Table => write!(stdout, "{}", table::all(traces))?,
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
