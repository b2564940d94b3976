//! Sessions as lines for people. What containers and users chose is shown without control characters.

use waybill_trace::{Caller, End, LiveProcess, Trace};

const HEADER: [&str; 8] =
    ["STARTED", "USER", "POD", "CONTAINER", "STATE", "COMMAND", "VARIABLES", "PROCESSES NOW"];

/// So much of a command is enough to know it by.
const COMMAND: usize = 48;

/// A whole table, each column as wide as it must be.
pub(super) fn all(traces: &[Trace]) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(traces.iter().map(cells));
    let mut widths = [0; HEADER.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    rows.iter().map(|row| joined(row, &widths) + "\n").collect()
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

fn joined(cells: &[String; HEADER.len()], widths: &[usize; HEADER.len()]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        line.push_str(&format!("{cell:<width$}   ", width = *width));
    }
    line.trim_end().to_owned()
}

fn cells(trace: &Trace) -> [String; HEADER.len()] {
    let user = match &trace.caller {
        Some(Caller { user, impersonator: Some(by), .. }) => format!("{user} (by {by})"),
        Some(Caller { user, .. }) => user.clone(),
        None if trace.audit_id.is_some() => "(not in the audit log)".to_owned(),
        None if trace.session.is_none() => "(moved)".to_owned(),
        None => "(the node)".to_owned(),
    };
    let state = match trace.end {
        End::Running => "running".to_owned(),
        End::Exited { code, .. } => format!("exit {code}"),
        End::Over { .. } => "over".to_owned(),
    };
    [
        trace.started.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        plain(&user),
        plain(&format!("{}/{}", trace.namespace, trace.pod)),
        plain(&trace.container),
        state,
        cut(&plain(&trace.command.join(" "))),
        plain(&trace.variables.join(",")),
        processes(trace),
    ]
}

fn processes(trace: &Trace) -> String {
    let moved = trace.moved.iter().map(|it| format!("{} (moved)", process(&it.process)));
    trace.processes.iter().map(process).chain(moved).collect::<Vec<_>>().join(", ")
}

fn process(process: &LiveProcess) -> String {
    let name = process.command.first().map_or("?", String::as_str);
    let name = name.rsplit('/').next().unwrap_or(name);
    format!("{} {}", process.pid, cut(&plain(name)))
}

fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(COMMAND) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use waybill_trace::{MoveReason, MovedProcess};

    use super::*;

    fn trace() -> Trace {
        Trace {
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
            command: vec!["sh".to_owned(), "-c".to_owned(), "x\u{1b}[2J".to_owned()],
            variables: vec!["KUBERNETES_EXEC_AUDIT_ID".to_owned()],
            started: Timestamp::from_second(1_767_323_045).unwrap(),
            end: End::Running,
            processes: vec![LiveProcess { pid: 7, command: vec!["/bin/sh".to_owned()] }],
            moved: Vec::new(),
        }
    }

    #[test]
    fn a_moved_process_is_told_to_be_one_and_nobodys() {
        let process = LiveProcess { pid: 8, command: vec!["/bin/sleep".to_owned()] };
        let moved = MovedProcess { process, reason: MoveReason::OlderThanSession };
        let here = Trace { moved: vec![moved], ..trace() };
        assert!(all(&[here.clone()]).contains("7 sh, 8 sleep (moved)"));
        let left = Trace { audit_id: None, session: None, caller: None, ..here };
        let table = all(&[left]);
        assert!(table.contains("(moved)") && !table.contains("(the node)"), "{table}");
    }

    #[test]
    fn a_line_tells_who_where_what_and_what_runs_now() {
        let table = all(&[trace()]);
        let line = table.lines().nth(1).unwrap();
        let words: Vec<_> = line.split("   ").map(str::trim).filter(|it| !it.is_empty()).collect();
        assert_eq!(
            words,
            [
                "2026-01-02 03:04:05",
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
        assert!(all(&[probe.clone()]).contains("(the node)"));
        probe.audit_id = Some("x".to_owned());
        assert!(all(&[probe]).contains("(not in the audit log)"));
    }
}
