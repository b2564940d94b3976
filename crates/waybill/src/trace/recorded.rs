//! `waybill trace` on a machine with a record: sessions that are known now and those of the past, with what ran in them.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use anyhow::{Result, bail};
use futures_util::StreamExt;
use waybill_core::chain::Chain;
use waybill_trace::{
    Change, Coverage, End, Gap, GapReason, LiveSource, LocalRecord, ProcessQuery, RecordedSession,
    Runtime, SessionQuery, TraceSource, Whose, companions, csv, ecs,
};

use super::{
    Args, Output, named_audit_log,
    remote::{Detail, Remote},
    runtime_socket, since, table, tree,
};
use crate::{
    Outcome,
    collector::RECORD,
    terminal::{escaped, plain},
};

/// Opens the record of this machine. While the runtime does not answer, what is written down is shown alone.
pub(super) async fn open(args: &Args) -> Result<LocalRecord> {
    let directory = record_directory(args)?;
    let socket = args.runtime.clone().unwrap_or_else(|| runtime_socket(&args.state_dir));
    let live = match Runtime::connect(&socket).await {
        Ok(runtime) => Some(LiveSource::new(&named_audit_log(args)?, runtime)),
        Err(error) if !directory.exists() => bail!(
            "{}; is `waybill up` running? --state-dir says where, --runtime and --audit-log name the parts",
            Chain(&error)
        ),
        Err(error) => {
            writeln!(io::stderr(), "note: only what is on record is shown: {}", Chain(&error))?;
            None
        }
    };
    Ok(LocalRecord::new(&directory, live))
}

/// Where the record is. One that somebody else made would name whom they like.
pub(super) fn record_directory(args: &Args) -> Result<PathBuf> {
    let state = match crate::state_dir::trusted_directory(&args.state_dir) {
        Ok(state) => state,
        // Parts may be elsewhere, and then there is no record.
        Err(_) if args.runtime.is_some() && args.audit_log.is_some() => args.state_dir.clone(),
        Err(error) => return Err(error),
    };
    Ok(state.join(RECORD))
}

/// What the user wants to see.
pub(super) fn query(args: &Args) -> Result<SessionQuery> {
    Ok(SessionQuery {
        user: args.user.clone(),
        pod: args.pod.clone(),
        namespace: args.stock.namespace().map(str::to_owned),
        since: since(args.since)?,
        until: since(args.until)?,
        command: args.command.clone(),
        variable: args.variable.clone(),
        pid: args.pid,
        session: args.session.clone(),
        text: None,
        probes: args.probes || args.pid.is_some() || args.session.is_some(),
        limit: None,
    })
}

/// A record, what to ask of it, and everybody who may have been beside those who are found.
struct Reading {
    source: Box<dyn TraceSource>,
    query: SessionQuery,
    beside: Option<Vec<RecordedSession>>,
}

impl Reading {
    async fn open(args: &Args, is_remote: bool, detail: Detail) -> Result<Self> {
        let query = query(args)?;
        if !is_remote {
            let source = Box::new(open(args).await?);
            return Ok(Self { source, query, beside: None });
        }
        let Remote { record, .. } = Remote::open(args, &query, detail).await?;
        let beside = Some(record.with_beside());
        // What came is what was asked for.
        let query = SessionQuery { probes: true, ..SessionQuery::default() };
        Ok(Self { source: Box::new(record), query, beside })
    }
}

pub(super) async fn show(args: &Args, is_remote: bool) -> Result<Outcome> {
    let with_trees = shows_trees(args)?;
    let detail = Detail { programs: with_trees, beside: with_trees, follow: false };
    let reading = Reading::open(args, is_remote, detail).await?;
    let list = reading.source.sessions(&reading.query).await?;
    let mut output = io::stdout().lock();
    match args.output {
        Output::Json => {
            let text = serde_json::to_string_pretty(&list.sessions)?;
            writeln!(output, "{}", escaped(&text))?;
        }
        Output::Csv => {
            write!(output, "{}", csv::line(&csv::SESSION_COLUMNS.map(str::to_owned)))?;
            for session in &list.sessions {
                write!(output, "{}", csv::session_line(session))?;
            }
        }
        Output::Table | Output::Wide => {
            let text = match args.output {
                Output::Wide => table::wide(&list.sessions),
                _ => fitted(&table::all(&list.sessions)),
            };
            write!(output, "{text}")?;
        }
    }
    if with_trees {
        show_trees(&reading, &list.sessions, &mut output).await?;
    }
    drop(output);
    tell_coverage(&list.coverage, &list.sessions, args)?;
    Ok(Outcome::Success)
}

/// Trees are for people; what a program reads has nothing else in it.
fn shows_trees(args: &Args) -> Result<bool> {
    match args.output {
        Output::Csv if args.tree => {
            bail!("CSV has no trees: leave out --tree, or see `waybill trace export`")
        }
        Output::Csv | Output::Json => Ok(false),
        Output::Table | Output::Wide => Ok(args.tree || args.session.is_some()),
    }
}

/// What ran in each session, and who else was there.
async fn show_trees(
    reading: &Reading,
    sessions: &[RecordedSession],
    output: &mut impl Write,
) -> Result<()> {
    let record = &reading.source;
    let all = match &reading.beside {
        Some(beside) => beside.clone(),
        None => {
            let everything = SessionQuery { probes: true, ..SessionQuery::default() };
            record.sessions(&everything).await?.sessions
        }
    };
    for session in sessions {
        let query = ProcessQuery { session: Some(session.id.clone()), ..ProcessQuery::default() };
        let processes = record.processes(&query).await?;
        let others = companions(session, &all);
        write!(output, "\n{}", tree::text(session, &processes, &others))?;
    }
    Ok(())
}

/// Says on standard error what may be missing.
fn tell_coverage(coverage: &Coverage, sessions: &[RecordedSession], args: &Args) -> Result<()> {
    let mut error = io::stderr();
    match (&coverage.source, &coverage.why_not_better) {
        (None, _) => writeln!(
            error,
            "note: no collector runs, so what runs inside of sessions is not recorded now"
        )?,
        (Some(_), Some(why)) => {
            writeln!(error, "note: programs that were short may be missing; {why}")?;
        }
        (Some(_), None) => {}
    }
    let gaps: Vec<_> =
        coverage.gaps.iter().filter(|gap| is_of_interest(gap, sessions, args)).collect();
    for gap in gaps.iter().rev().take(GAPS).rev() {
        let why = why_missing(gap);
        let until = gap.until.map_or_else(|| "now".to_owned(), table::second);
        writeln!(error, "note: from {} to {until} {why}", table::second(gap.from))?;
    }
    if let Some(more) = gaps.len().checked_sub(GAPS).filter(|more| *more > 0) {
        writeln!(error, "note: and {more} times more before that")?;
    }
    let lost: u64 = sessions.iter().map(|session| session.lost).max().unwrap_or(0);
    if lost > 0 {
        writeln!(error, "note: up to {lost} programs of a session shown are not in the record")?;
    }
    Ok(())
}

fn why_missing(gap: &Gap) -> String {
    match (gap.reason, &gap.whose) {
        (GapReason::NotRunning, _) => "nobody recorded what ran".to_owned(),
        (GapReason::TooMany, _) => "the kernel told more than was taken".to_owned(),
        (GapReason::NotWritten, _) => "the record could not be written".to_owned(),
        (GapReason::OverShare, whose) => {
            let whose = whose.as_ref().map(ToString::to_string).unwrap_or_default();
            format!(
                "{} sessions of {} were counted and not kept, being more than one share of the record; the audit log has who asked for what",
                gap.events.unwrap_or(0),
                plain(&whose)
            )
        }
    }
}

/// Whether it is told of. Sessions that are not in the record are told of by whose they are.
fn is_of_interest(gap: &Gap, sessions: &[RecordedSession], args: &Args) -> bool {
    match &gap.whose {
        None => is_during(gap, sessions),
        Some(Whose::Node) => args.probes,
        Some(Whose::User(user)) => args.user.as_ref().is_none_or(|wanted| wanted == user),
        Some(Whose::Pod(_)) => true,
    }
}

/// So many times of which something is missing are told.
const GAPS: usize = 5;

/// Whether something of these sessions may be missing because of a gap.
fn is_during(gap: &Gap, sessions: &[RecordedSession]) -> bool {
    sessions.iter().any(|session| {
        let trace = &session.trace;
        let ended = match trace.end {
            End::Exited { at, .. } | End::Over { at } => Some(at),
            End::Running | End::Unknown => None,
        };
        ended.is_none_or(|at| at >= gap.from)
            && gap.until.is_none_or(|until| trace.started <= until)
    })
}

/// Lines as wide as the terminal, if it is one.
fn fitted(text: &str) -> String {
    let width = io::stdout()
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(io::stdout()).ok())
        .flatten()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width >= 40);
    match width {
        Some(width) => text.lines().map(|line| cut(line, width) + "\n").collect(),
        None => text.to_owned(),
    }
}

fn cut(line: &str, width: usize) -> String {
    match line.char_indices().nth(width) {
        Some(_) => line.chars().take(width - 1).chain(['…']).collect(),
        None => line.to_owned(),
    }
}

/// Shows each session when it is first seen, and again when it has ended.
pub(super) async fn follow(args: &Args, is_remote: bool) -> Result<Outcome> {
    if is_remote {
        let detail = Detail { follow: true, ..Detail::default() };
        let mut remote = Remote::open(args, &query(args)?, detail).await?;
        let record = remote.record.clone();
        // What comes is what was asked for.
        let all = SessionQuery { probes: true, ..SessionQuery::default() };
        return follow_record(args, &record, &all, async move {
            match remote.watch().await {
                Ok(()) => std::future::pending().await,
                Err(error) => error,
            }
        })
        .await;
    }
    let record = open(args).await?;
    let watched = record.clone();
    let watching = async move {
        watched.watch().await;
        anyhow::anyhow!("nothing is looked for any more")
    };
    follow_record(args, &record, &query(args)?, watching).await
}

async fn follow_record(
    args: &Args,
    record: &impl TraceSource,
    query: &SessionQuery,
    watching: impl Future<Output = anyhow::Error>,
) -> Result<Outcome> {
    let mut changes = record.changes();
    let mut shown = std::collections::HashMap::new();
    let mut table = table::Table::default();
    let mut show = |session: &RecordedSession| -> Result<()> {
        // A debug container that is not made yet has neither begun nor ended.
        if session.trace.end == End::Unknown && session.trace.session.is_none() {
            return Ok(());
        }
        let over = session.trace.end != End::Running;
        if shown.insert(session.id.clone(), over) != Some(over) {
            let line = match args.output {
                Output::Json => escaped(&serde_json::to_string(session)?),
                Output::Csv => csv::session_line(session).trim_end().to_owned(),
                Output::Table | Output::Wide => table.line(&session.trace),
            };
            writeln!(io::stdout(), "{line}")?;
        }
        Ok(())
    };
    for session in &record.sessions(query).await?.sessions {
        show(session)?;
    }
    tokio::pin!(watching);
    loop {
        tokio::select! {
            error = &mut watching => return Err(error),
            change = changes.next() => match change {
                Some(Change::Session(session)) if query.takes(&session, &[]) => show(&session)?,
                Some(Change::Missed | Change::Process(_)) => {
                    // What ran may be what is asked for.
                    for session in &record.sessions(query).await?.sessions {
                        show(session)?;
                    }
                }
                Some(Change::Session(_) | Change::Coverage(_)) => {}
                None => return Ok(Outcome::Success),
            },
            result = tokio::signal::ctrl_c() => {
                result?;
                return Ok(Outcome::Success);
            }
        }
    }
}

/// Everything that is asked for, one JSON object a line, in the words of the Elastic Common Schema.
pub(super) async fn export(args: &Args, is_remote: bool) -> Result<Outcome> {
    let detail = Detail { programs: true, ..Detail::default() };
    let Reading { source: record, query, .. } = Reading::open(args, is_remote, detail).await?;
    let list = record.sessions(&query).await?;
    let mut output = io::BufWriter::new(io::stdout().lock());
    for session in &list.sessions {
        writeln!(output, "{}", escaped(&ecs::session_event(session).to_string()))?;
        let of_session =
            ProcessQuery { session: Some(session.id.clone()), ..ProcessQuery::default() };
        for process in record.processes(&of_session).await? {
            let event = ecs::process_event(&process, Some(session));
            writeln!(output, "{}", escaped(&event.to_string()))?;
        }
    }
    output.flush()?;
    drop(output);
    tell_coverage(&list.coverage, &list.sessions, args)?;
    Ok(Outcome::Success)
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

    fn args(line: &str) -> Args {
        Cli::parse_from(line.split(' ')).args
    }

    /// Hole: `--tree -o csv` wrote the trees behind the CSV.
    #[test]
    fn what_a_program_reads_has_no_trees_in_it() {
        for (line, expected) in [
            ("trace --tree", Some(true)),
            ("trace --session a", Some(true)),
            ("trace --session a -o wide", Some(true)),
            ("trace", Some(false)),
            ("trace --session a -o csv", Some(false)),
            ("trace --tree -o json", Some(false)),
            ("trace --tree -o csv", None),
        ] {
            assert_eq!(shows_trees(&args(line)).ok(), expected, "{line}");
        }
    }

    #[test]
    fn sessions_that_are_not_kept_are_told_by_whose_they_are() {
        let gap: Gap = serde_json::from_value(serde_json::json!({
            "from": "2026-01-02T03:04:05Z", "until": "2026-01-02T03:05:05Z", "reason": "overShare",
            "events": 812, "whose": {"user": "mal\u{1b}lory"},
        }))
        .unwrap();
        assert!(why_missing(&gap).starts_with("812 sessions of mal\u{fffd}lory were counted"));
        assert!(is_of_interest(&gap, &[], &args("trace")));
        assert!(!is_of_interest(&gap, &[], &args("trace --user anna")));
        let of_node = Gap { whose: Some(Whose::Node), ..gap };
        assert!(!is_of_interest(&of_node, &[], &args("trace")));
        assert!(is_of_interest(&of_node, &[], &args("trace --probes")));
    }
}
