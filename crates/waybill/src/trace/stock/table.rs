//! Sessions of a stock cluster as lines for people. What containers and users chose is shown without control characters.

use waybill_trace::{End, Standing, StockTrace};

use super::super::table::{aligned, command, kind, second, user};
use crate::terminal::plain;

const HEADER: [&str; 10] = [
    "STARTED",
    "KIND",
    "USER",
    "POD",
    "CONTAINER",
    "NODE",
    "STATE",
    "COMMAND",
    "VARIABLES",
    "PROCESSES NOW",
];

/// A whole table, each column as wide as it must be.
pub(super) fn all(traces: &[StockTrace]) -> String {
    aligned(HEADER, traces.iter().map(cells))
}

/// Lines that come one by one, so their widths are guessed.
#[derive(Default)]
pub(super) struct Lines {
    widths: [usize; HEADER.len()],
}

impl Lines {
    pub(super) fn line(&mut self, trace: &StockTrace) -> String {
        let cells = cells(trace);
        let mut line = String::new();
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = cell.chars().count().max(*width);
            line.push_str(&format!("{cell:<width$}   ", width = *width));
        }
        line.trim_end().to_owned()
    }
}

fn cells(trace: &StockTrace) -> [String; HEADER.len()] {
    let who = match (trace.standing, &trace.caller) {
        (_, Some(caller)) => user(caller),
        (Standing::Contradicted, None) => "(contradicted)".to_owned(),
        (Standing::Nobody | Standing::Refused, None) => "(nobody)".to_owned(),
        (
            Standing::Attributed | Standing::Recorded | Standing::Waiting | Standing::Unknown,
            None,
        ) => "(not known any more)".to_owned(),
    };
    // Where root in the container can move processes, the cgroup proves less.
    let doubt = if trace.privileged && trace.cgroup_id.is_some() { ", privileged" } else { "" };
    let state = match (trace.standing, trace.end) {
        (Standing::Refused, _) => "refused".to_owned(),
        (Standing::Waiting, _) => "not begun".to_owned(),
        (_, End::Running) => "running".to_owned(),
        (_, End::Exited { code, .. }) => format!("exit {code}"),
        (_, End::Over { .. }) => "over".to_owned(),
        (_, End::Unknown) => "recorded".to_owned(),
    };
    let what = match &trace.reason {
        Some(reason) if trace.command.is_empty() => plain(reason),
        Some(reason) => format!("{} ({})", command(&trace.command), plain(reason)),
        None => command(&trace.command),
    };
    let processes = trace.processes.iter().map(|process| {
        let name = process.command.first().map_or("?", String::as_str);
        format!("{} {}", process.pid, plain(name.rsplit('/').next().unwrap_or(name)))
    });
    [
        second(trace.started),
        kind(trace.kind).to_owned(),
        plain(&who),
        plain(&format!("{}/{}", trace.namespace, trace.pod)),
        plain(&trace.container),
        plain(trace.node.as_deref().unwrap_or_default()),
        format!("{state}{doubt}"),
        what,
        plain(&trace.variables.join(",")),
        processes.collect::<Vec<_>>().join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use waybill_trace::{Caller, LiveProcess, TraceKind};

    use super::*;

    fn trace() -> StockTrace {
        StockTrace {
            kind: TraceKind::Exec,
            session: Some("0".repeat(32)),
            audit_id: None,
            standing: Standing::Attributed,
            caller: Some(Caller {
                user: "anna".to_owned(),
                uid: String::new(),
                impersonator: None,
                groups: Vec::new(),
                source: Vec::new(),
            }),
            credential_id: None,
            reason: None,
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "app".to_owned(),
            container_id: None,
            node: Some("n1".to_owned()),
            tty: false,
            command: vec!["sh".to_owned(), "x\u{1b}[2J".to_owned()],
            variables: vec!["LEVEL".to_owned()],
            started: Timestamp::from_second(1_767_323_045).unwrap(),
            end: End::Running,
            cgroup_id: Some(5),
            privileged: false,
            processes: vec![LiveProcess { pid: 7, command: vec!["/bin/sh".to_owned()] }],
        }
    }

    #[track_caller]
    fn check(trace: &StockTrace, expected: &[&str]) {
        let table = all(std::slice::from_ref(trace));
        let line = table.lines().nth(1).unwrap();
        let words: Vec<_> = line.split("   ").map(str::trim).filter(|it| !it.is_empty()).collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn a_line_tells_who_where_what_and_what_runs_now() {
        let place = ["shop/web", "app", "n1"];
        let first = ["2026-01-02 03:04:05", "exec", "anna"];
        let rest = ["running", "sh x\u{fffd}[2J", "LEVEL", "7 sh"];
        check(&trace(), &[&first[..], &place, &rest].concat());
    }

    /// Nobody is named whom the records do not name, and doubt is told.
    #[test]
    fn what_is_not_known_is_said() {
        let nobody = StockTrace { caller: None, standing: Standing::Nobody, ..trace() };
        assert!(all(std::slice::from_ref(&nobody)).contains("(nobody)"));
        let contradicted = StockTrace {
            caller: None,
            standing: Standing::Contradicted,
            reason: Some("two users".to_owned()),
            ..trace()
        };
        let table = all(&[contradicted]);
        assert!(table.contains("(contradicted)") && table.contains("(two users)"), "{table}");
        let unknown = StockTrace { caller: None, standing: Standing::Unknown, ..trace() };
        assert!(all(&[unknown]).contains("(not known any more)"));
        let doubtful = StockTrace { privileged: true, ..trace() };
        assert!(all(&[doubtful]).contains("running, privileged"));
    }
}
