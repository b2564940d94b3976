//! Sessions and programs as the page gets them: short, times as numbers, texts cut to what is shown at first.
//!
//! Times are microseconds since 1970, which fit into the numbers of JavaScript until the year 2255.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use serde::Serialize;
use waybill_api::exec::AUDIT_ID_VARIABLE;

use super::filter;
use crate::{
    Coverage, End, EventSource, Gap, GapReason, LiveProcess, ProcessState, RecordedProcess,
    RecordedSession, TraceKind, Whose,
};

/// So much of a command is in a list.
const LISTED: usize = 400;

/// So much of the arguments of one program is in a tree.
const IN_TREE: usize = 2_048;

/// A session in the list.
#[derive(Debug, Serialize)]
pub(super) struct Row<'a> {
    id: &'a str,
    kind: TraceKind,
    user: Option<&'a str>,
    /// Who it was, if there is no user.
    nobody: Option<&'static str>,
    /// Who acted for the user.
    by: Option<&'a str>,
    ns: &'a str,
    pod: &'a str,
    container: &'a str,
    stdin: Option<bool>,
    command: Vec<&'a str>,
    /// Whether the command goes on.
    cut: bool,
    started: i64,
    ended: Option<i64>,
    state: &'static str,
    code: Option<i32>,
    programs: u64,
    lost: u64,
    moved: usize,
}

impl<'a> Row<'a> {
    pub(super) fn of(session: &'a RecordedSession) -> Self {
        Self::with_command(session, LISTED)
    }

    fn with_command(session: &'a RecordedSession, limit: usize) -> Self {
        let trace = &session.trace;
        let (command, cut) = shortened(&trace.command, limit);
        let (state, code) = match trace.end {
            End::Running => ("running", None),
            End::Exited { code, .. } => ("exited", Some(code)),
            End::Over { .. } => ("over", None),
            End::Unknown => ("unknown", None),
        };
        let ended = matches!(trace.end, End::Exited { .. } | End::Over { .. });
        Self {
            id: &session.id,
            kind: trace.kind,
            user: trace.user(),
            nobody: trace.caller.is_none().then(|| nobody(session)),
            by: trace.caller.as_ref().and_then(|caller| caller.impersonator.as_deref()),
            ns: &trace.namespace,
            pod: &trace.pod,
            container: &trace.container,
            stdin: trace.stdin,
            command,
            cut,
            started: trace.started.as_microsecond(),
            ended: filter::end(session).filter(|_| ended).map(Timestamp::as_microsecond),
            state,
            code,
            programs: session.programs,
            lost: session.lost,
            moved: trace.moved.len(),
        }
    }
}

/// Who is behind a session that has no user.
pub(super) fn nobody(session: &RecordedSession) -> &'static str {
    match session.trace.kind {
        _ if session.trace.audit_id.is_some() => "not in the audit log",
        TraceKind::Container if !session.trace.moved.is_empty() => "nobody (moved)",
        TraceKind::Exec => "the node",
        TraceKind::Container => "the container",
        TraceKind::Attach | TraceKind::Debug => "unknown",
    }
}

/// All about one session.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Whole<'a> {
    #[serde(flatten)]
    row: Row<'a>,
    uid: &'a str,
    groups: &'a [String],
    addresses: &'a [String],
    #[serde(rename = "auditID")]
    audit_id: Option<&'a str>,
    session: Option<&'a str>,
    #[serde(rename = "containerID")]
    container_id: Option<&'a str>,
    variables: Vec<Variable<'a>>,
    live: &'a [LiveProcess],
    moved_processes: Vec<Moved<'a>>,
    source: Option<EventSource>,
    complete: bool,
}

#[derive(Debug, Serialize)]
struct Variable<'a> {
    name: &'a str,
    from: &'static str,
}

#[derive(Debug, Serialize)]
struct Moved<'a> {
    pid: u32,
    command: &'a [String],
    reason: &'static str,
}

impl<'a> Whole<'a> {
    pub(super) fn of(session: &'a RecordedSession) -> Self {
        let trace = &session.trace;
        let caller = trace.caller.as_ref();
        let moved = trace.moved.iter().map(|moved| Moved {
            pid: moved.process.pid,
            command: &moved.process.command,
            reason: moved.reason.describe(),
        });
        Self {
            row: Row::with_command(session, usize::MAX),
            uid: caller.map_or("", |caller| &caller.uid),
            groups: caller.map_or(&[], |caller| &caller.groups),
            addresses: caller.map_or(&[], |caller| &caller.source),
            audit_id: trace.audit_id.as_deref(),
            session: trace.session.as_deref(),
            container_id: trace.container_id.as_deref(),
            variables: trace
                .variables
                .iter()
                .map(|name| Variable { name, from: origin(name) })
                .collect(),
            live: &trace.processes,
            moved_processes: moved.collect(),
            source: session.event_source,
            complete: session.complete,
        }
    }
}

/// Where a variable of a session is from: the API server sets one, and callers cannot set that.
fn origin(name: &str) -> &'static str {
    if name == AUDIT_ID_VARIABLE {
        "the API server: the audit ID"
    } else {
        "whoever asked for the session"
    }
}

/// A program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProgramRow<'a> {
    pid: u32,
    parent: u32,
    /// Who is above it in the tree.
    above: Option<u32>,
    uid: u32,
    program: &'a str,
    arguments: Vec<&'a str>,
    /// Whether the record has more of the arguments than are here.
    short: bool,
    /// How long all of them are, if they are not here.
    length: Option<usize>,
    /// Whether the record itself has not all.
    cut: bool,
    hidden_at: &'a [u32],
    hidden: usize,
    started: i64,
    ended: Option<i64>,
    exit: Option<i32>,
    signal: Option<i32>,
    running: bool,
    replaced: bool,
    moved: Option<&'static str>,
    source: EventSource,
}

impl<'a> ProgramRow<'a> {
    /// As it is in the tree.
    pub(super) fn of(process: &'a RecordedProcess) -> Self {
        Self::with_arguments(process, IN_TREE)
    }

    /// With all that the record has.
    pub(super) fn whole(process: &'a RecordedProcess) -> Self {
        Self::with_arguments(process, usize::MAX)
    }

    fn with_arguments(process: &'a RecordedProcess, limit: usize) -> Self {
        let (arguments, short) = shortened(&process.arguments, limit);
        let length = || process.arguments.iter().map(|one| one.chars().count() + 1).sum();
        Self {
            pid: process.pid,
            parent: process.parent,
            above: process.parent_program,
            uid: process.uid,
            program: cut(&process.program, IN_TREE).0,
            arguments,
            short,
            length: short.then(length),
            cut: process.cut,
            hidden_at: &process.hidden_at,
            hidden: process.hidden_at.len(),
            started: process.started.as_microsecond(),
            ended: process.ended.map(Timestamp::as_microsecond),
            exit: process.exit_code,
            signal: process.signal,
            running: process.state == ProcessState::Running,
            replaced: process.state == ProcessState::Replaced,
            moved: process.moved.map(crate::MoveReason::describe),
            source: process.source,
        }
    }
}

/// Names that can be chosen from, and how complete the record is.
#[derive(Debug, Serialize)]
pub(super) struct Facets<'a> {
    /// In the order in which they were first seen.
    users: Vec<&'a str>,
    /// As `namespace/pod`.
    pods: Vec<String>,
    namespaces: Vec<&'a str>,
    coverage: CoverageRow<'a>,
}

impl<'a> Facets<'a> {
    /// Of sessions that are sorted by their start.
    pub(super) fn of(sessions: &'a [RecordedSession], coverage: &'a Coverage) -> Self {
        let mut seen = HashSet::new();
        let users = sessions.iter().filter_map(|session| session.trace.user());
        let pods: BTreeSet<_> =
            sessions.iter().map(|session| (&session.trace.namespace, &session.trace.pod)).collect();
        let namespaces: BTreeSet<_> =
            sessions.iter().map(|session| session.trace.namespace.as_str()).collect();
        Self {
            users: users.filter(|user| seen.insert(*user)).collect(),
            pods: pods.into_iter().map(|(namespace, pod)| format!("{namespace}/{pod}")).collect(),
            namespaces: namespaces.into_iter().collect(),
            coverage: CoverageRow::of(coverage),
        }
    }
}

/// How complete the record is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CoverageRow<'a> {
    source: Option<EventSource>,
    why_not_better: Option<&'a str>,
    lost: u64,
    since: Option<i64>,
    gaps: Vec<GapRow>,
}

#[derive(Debug, Serialize)]
struct GapRow {
    from: i64,
    until: Option<i64>,
    reason: String,
    events: Option<u64>,
}

impl<'a> CoverageRow<'a> {
    pub(super) fn of(coverage: &'a Coverage) -> Self {
        Self {
            source: coverage.source,
            why_not_better: coverage.why_not_better.as_deref(),
            lost: coverage.lost,
            since: coverage.since.map(Timestamp::as_microsecond),
            gaps: coverage.gaps.iter().map(GapRow::of).collect(),
        }
    }
}

impl GapRow {
    fn of(gap: &Gap) -> Self {
        Self {
            from: gap.from.as_microsecond(),
            until: gap.until.map(Timestamp::as_microsecond),
            reason: match (gap.reason, &gap.whose) {
                (GapReason::NotRunning, _) => "nothing collected programs".to_owned(),
                (GapReason::TooMany, _) => {
                    "there were more programs than the collector could take".to_owned()
                }
                (GapReason::NotWritten, _) => {
                    "they could not be written, such as to a full disk".to_owned()
                }
                (GapReason::OverShare, whose) => format!(
                    "{} sessions of {} were counted and not kept, being more than one share; the audit log has who asked for what",
                    gap.events.unwrap_or(0),
                    whose.as_ref().unwrap_or(&Whose::Node)
                ),
            },
            events: gap.events,
        }
    }
}

/// The first words of a command line, `limit` bytes of them, and whether it goes on.
fn shortened(words: &[String], limit: usize) -> (Vec<&str>, bool) {
    let mut left = limit;
    let mut all = Vec::with_capacity(words.len().min(64));
    for word in words {
        if left == 0 {
            return (all, true);
        }
        let (part, is_cut) = cut(word, left);
        all.push(part);
        if is_cut {
            return (all, true);
        }
        // An empty word takes room, too.
        left = left.saturating_sub(part.len() + 1);
    }
    (all, false)
}

/// The beginning of a text, at most `limit` bytes, and whether that is not all.
fn cut(text: &str, limit: usize) -> (&str, bool) {
    let end = text.floor_char_boundary(limit);
    (text.get(..end).unwrap_or(text), end < text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_between_letters() {
        let words = ["sh".to_owned(), "é".repeat(10)];
        assert_eq!(shortened(&words, 100), (vec!["sh", "éééééééééé"], false));
        assert_eq!(shortened(&words, 6), (vec!["sh", "é"], true));
        assert_eq!(shortened(&words, 3), (vec!["sh"], true));
        let empty = vec![String::new(); 1_000];
        assert_eq!(shortened(&empty, 10).0.len(), 10);
    }
}
