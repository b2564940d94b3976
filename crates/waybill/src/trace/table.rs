//! Sessions as lines for people. What containers and users chose is shown without control characters.

use jiff::Timestamp;
use waybill_trace::{
    Caller, End, EventSource, LiveProcess, OwnProcess, PossibleStarter, RecordedSession, Trace,
    TraceKind,
};

use crate::terminal::plain;

const HEADER: [&str; 9] = [
    "STARTED",
    "KIND",
    "USER",
    "POD",
    "CONTAINER",
    "STATE",
    "COMMAND",
    "VARIABLES",
    "PROCESSES NOW",
];

const WIDE_HEADER: [&str; 14] = [
    "STARTED",
    "KIND",
    "USER",
    "FROM",
    "POD",
    "CONTAINER",
    "STATE",
    "COMMAND",
    "VARIABLES",
    "PROCESSES NOW",
    "PROGRAMS",
    "EVENTS",
    "SESSION",
    "AUDIT ID",
];

/// So much of a command is enough to know it by.
const COMMAND: usize = 48;

/// A whole table, each column as wide as it must be.
pub(super) fn all(sessions: &[RecordedSession]) -> String {
    let rows = sessions.iter().map(|session| cells(&session.trace));
    aligned(HEADER, rows) + doubt(sessions.iter().map(|session| &session.trace))
}

/// The same with everything that has a word for it.
pub(super) fn wide(sessions: &[RecordedSession]) -> String {
    let rows = sessions.iter().map(|session| {
        let [started, kind, user, pod, container, state, what, variables, now] =
            cells(&session.trace);
        let from = session.trace.caller.as_ref().and_then(|it| it.source.last());
        let events = match session.event_source {
            None => "none",
            Some(EventSource::Ebpf) => "ebpf",
            Some(EventSource::Connector) => "connector",
            Some(EventSource::Scan) => "scan",
        };
        let programs = match session.complete {
            true => session.programs.to_string(),
            false => format!("{} (+{}?)", session.programs, session.lost),
        };
        let audit_id = session.trace.audit_id.clone().unwrap_or_default();
        let from = plain(from.map_or("", String::as_str));
        [
            started,
            kind,
            user,
            from,
            pod,
            container,
            state,
            what,
            variables,
            now,
            programs,
            events.to_owned(),
            plain(&session.id),
            plain(&audit_id),
        ]
    });
    aligned(WIDE_HEADER, rows) + doubt(sessions.iter().map(|session| &session.trace))
}

/// Sessions as they are now.
pub(super) fn traces(traces: &[Trace]) -> String {
    let table = aligned(HEADER, traces.iter().map(cells));
    let notes = traces.iter().filter_map(|trace| trace.process.as_ref().map(note));
    table + &notes.collect::<String>() + doubt(traces)
}

/// What the word `privileged` in a table means.
fn doubt<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> &'static str {
    match traces.into_iter().any(|trace| trace.privileged) {
        true => {
            "\nprivileged: root in that container can move processes between cgroups, so a process may have been moved into \
             the session, or out of it.\n"
        }
        false => "",
    }
}

/// A header and rows, each column as wide as it must be.
pub(super) fn aligned<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = vec![header.map(str::to_owned)];
    table.extend(rows);
    let mut widths = [0; N];
    for row in &table {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    table.iter().map(|row| joined(row, &widths) + "\n").collect()
}

/// About a container's own process: who may be behind it.
fn note(own: &OwnProcess) -> String {
    let OwnProcess { pid, command, started, may_have_been_started_by } = own;
    let name = process(&LiveProcess { pid: *pid, command: command.clone() });
    let head = format!("\nProcess {name} is the container's own, started {}.", second(*started));
    if may_have_been_started_by.is_empty() {
        return format!("{head} Nobody is known to have been attached with stdin before that.\n");
    }
    let lines: String = may_have_been_started_by.iter().map(starter).collect();
    format!("{head} It may have been started by what was typed by:\n{lines}")
}

fn starter(one: &PossibleStarter) -> String {
    let user = one.caller.as_ref().map_or_else(|| UNKNOWN.to_owned(), user);
    let until = match one.end {
        End::Exited { at, .. } | End::Over { at } => second(at),
        End::Running | End::Unknown => "now".to_owned(),
    };
    let note = if one.open_when_it_started { "" } else { ", which is before the process started" };
    format!("  {}, attached from {} to {until}{note}\n", plain(&user), second(one.started))
}

/// Lines that come one by one, so their widths are guessed.
#[derive(Default)]
pub(super) struct Table {
    widths: [usize; HEADER.len()],
}

impl Table {
    pub(super) fn line(&mut self, trace: &Trace) -> String {
        let cells = cells(trace);
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = cell.chars().count().max(*width);
        }
        joined(&cells, &self.widths)
    }
}

fn joined<const N: usize>(cells: &[String; N], widths: &[usize; N]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        line.push_str(&format!("{cell:<width$}   ", width = *width));
    }
    line.trim_end().to_owned()
}

/// A user whom nothing names.
const UNKNOWN: &str = "(unknown)";

pub(super) fn user(caller: &Caller) -> String {
    match caller {
        Caller { user, impersonator: Some(by), .. } => format!("{user} (by {by})"),
        Caller { user, .. } => user.clone(),
    }
}

fn cells(trace: &Trace) -> [String; HEADER.len()] {
    let user = match (&trace.caller, trace.kind) {
        (Some(caller), _) => user(caller),
        (None, _) if trace.audit_id.is_some() => "(not in the audit log)".to_owned(),
        (None, TraceKind::Container) if !trace.moved.is_empty() => "(moved)".to_owned(),
        (None, TraceKind::Exec) => "(the node)".to_owned(),
        (None, TraceKind::Container) => "(the container)".to_owned(),
        (None, TraceKind::Attach | TraceKind::Debug) => UNKNOWN.to_owned(),
    };
    let what = match trace.stdin {
        Some(true) => "(reads and types)".to_owned(),
        Some(false) => "(reads)".to_owned(),
        None => command(&trace.command),
    };
    let state = match trace.end {
        End::Running => "running".to_owned(),
        End::Exited { code, .. } => format!("exit {code}"),
        End::Over { .. } => "over".to_owned(),
        End::Unknown => "not there".to_owned(),
    };
    // Where root in the container can move processes, the cgroup proves less.
    let state = if trace.privileged { format!("{state}, privileged") } else { state };
    [
        second(trace.started),
        kind(trace.kind).to_owned(),
        plain(&user),
        plain(&format!("{}/{}", trace.namespace, trace.pod)),
        plain(&trace.container),
        state,
        what,
        plain(&trace.variables.join(",")),
        processes(trace),
    ]
}

/// As much of a command line as is enough to know it by.
pub(super) fn command(words: &[String]) -> String {
    cut(&plain(&words.join(" ")))
}

fn processes(trace: &Trace) -> String {
    let moved = trace.moved.iter().map(|it| format!("{} (moved)", process(&it.process)));
    trace.processes.iter().map(process).chain(moved).collect::<Vec<_>>().join(", ")
}

pub(super) fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

pub(super) fn kind(kind: TraceKind) -> &'static str {
    match kind {
        TraceKind::Exec => "exec",
        TraceKind::Attach => "attach",
        TraceKind::Debug => "debug",
        TraceKind::Container => "container",
    }
}

fn process(process: &LiveProcess) -> String {
    let name = process.command.first().map_or("?", String::as_str);
    let name = name.rsplit('/').next().unwrap_or(name);
    format!("{} {}", process.pid, cut(&plain(name)))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(COMMAND) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use waybill_trace::{MoveReason, MovedProcess};

    use super::*;
    use crate::terminal::{escaped, rearranges};

    fn trace() -> Trace {
        Trace {
            kind: TraceKind::Exec,
            audit_id: Some("a".to_owned()),
            session: Some("1".to_owned()),
            caller: Some(Caller {
                user: "anna".to_owned(),
                uid: String::new(),
                impersonator: None,
                groups: Vec::new(),
                source: Vec::new(),
            }),
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "app".to_owned(),
            container_id: None,
            stdin: None,
            command: vec!["sh".to_owned(), "-c".to_owned(), "x\u{1b}[2J".to_owned()],
            variables: vec!["KUBERNETES_EXEC_AUDIT_ID".to_owned()],
            started: Timestamp::from_second(1_767_323_045).unwrap(),
            end: End::Running,
            processes: vec![LiveProcess { pid: 7, command: vec!["/bin/sh".to_owned()] }],
            privileged: false,
            moved: Vec::new(),
            process: None,
        }
    }

    /// A command with a mark for right-to-left text turned the rest of its line around.
    #[test]
    fn no_letter_of_a_command_rearranges_the_table() {
        for letter in ['\u{202e}', '\u{2066}', '\u{2028}', '\u{200b}', '\u{9b}', '\r', '\u{feff}'] {
            assert_eq!(plain(&format!("a{letter}b")), "a\u{fffd}b");
        }
        assert_eq!(plain("añ…→ü"), "añ…→ü");
    }

    /// Hole: U+009B begins a control sequence, and JSON lets it through.
    #[test]
    fn no_letter_of_a_command_reaches_a_terminal_as_json() {
        let commands = ["a\u{9b}31mb", "a\u{7f}\u{202e}\u{feff}b", "añ…→ü\n\u{1b}[0m"];
        for pretty in [false, true] {
            let json = match pretty {
                true => serde_json::to_string_pretty(&commands),
                false => serde_json::to_string(&commands),
            };
            let text = escaped(&json.unwrap());
            assert!(!text.chars().any(|char| char != '\n' && rearranges(char)), "{text:?}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), commands);
        }
    }

    #[test]
    fn a_moved_process_is_told_to_be_one_and_nobodys() {
        let process = LiveProcess { pid: 8, command: vec!["/bin/sleep".to_owned()] };
        let moved = MovedProcess { process, reason: MoveReason::OlderThanSession };
        let here = Trace { moved: vec![moved], ..trace() };
        assert!(traces(std::slice::from_ref(&here)).contains("7 sh, 8 sleep (moved)"));
        let kind = TraceKind::Container;
        let table = traces(&[Trace { kind, audit_id: None, session: None, caller: None, ..here }]);
        assert!(table.contains("(moved)") && !table.contains("(the container)"), "{table}");
    }

    /// Where the machine's cgroups were mounted into a container, another user than the right one was named, and nothing said so.
    #[test]
    fn a_session_whose_cgroup_proves_little_is_told_to_be_one() {
        let table = traces(&[Trace { privileged: true, ..trace() }]);
        assert!(table.contains("running, privileged   "), "{table}");
        assert!(table.contains("a process may have been moved"), "{table}");
        let usual = trace();
        assert!(!traces(std::slice::from_ref(&usual)).contains("privileged"));
        let json = |trace: &Trace| serde_json::to_value(trace).unwrap();
        assert_eq!(json(&Trace { privileged: true, ..trace() })["privileged"], true);
        assert!(json(&usual).get("privileged").is_none());
    }

    /// Nobody is said to have started what they may have started.
    #[test]
    fn who_may_be_behind_a_process_is_told_as_a_possibility() {
        let starter = |open| PossibleStarter {
            audit_id: None,
            caller: trace().caller,
            started: trace().started,
            end: End::Running,
            open_when_it_started: open,
        };
        let told = |starters: Vec<PossibleStarter>| {
            let process = OwnProcess {
                pid: 7,
                command: vec!["/bin/sleep".to_owned()],
                started: trace().started,
                may_have_been_started_by: starters,
            };
            let kind = TraceKind::Container;
            traces(&[Trace {
                kind,
                caller: None,
                audit_id: None,
                process: Some(process),
                ..trace()
            }])
        };
        let text = told(vec![starter(true), starter(false)]);
        assert!(text.contains("(the container)"), "{text}");
        assert!(
            text.ends_with(
                "Process 7 sleep is the container's own, started 2026-01-02 03:04:05. It may have \
                 been started by what was typed by:\n  anna, attached from 2026-01-02 03:04:05 to \
                 now\n  anna, attached from 2026-01-02 03:04:05 to now, which is before the process \
                 started\n"
            ),
            "{text}"
        );
        assert!(told(Vec::new()).contains("Nobody is known to have been attached"));
    }

    #[test]
    fn a_line_tells_who_where_what_and_what_runs_now() {
        let table = traces(&[trace()]);
        let line = table.lines().nth(1).unwrap();
        let words: Vec<_> = line.split("   ").map(str::trim).filter(|it| !it.is_empty()).collect();
        assert_eq!(
            words,
            [
                "2026-01-02 03:04:05",
                "exec",
                "anna",
                "shop/web",
                "app",
                "running",
                "sh -c x\u{fffd}[2J",
                "KUBERNETES_EXEC_AUDIT_ID",
                "7 sh"
            ]
        );
    }

    #[test]
    fn what_nobody_asked_for_is_the_nodes() {
        let mut probe = trace();
        (probe.audit_id, probe.caller) = (None, None);
        assert!(traces(&[probe.clone()]).contains("(the node)"));
        probe.audit_id = Some("x".to_owned());
        assert!(traces(&[probe]).contains("(not in the audit log)"));
    }
}
