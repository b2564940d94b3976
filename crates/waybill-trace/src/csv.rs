//! Sessions and programs as CSV (RFC 4180), for spreadsheets: a cell that a spreadsheet would take for a formula begins with a quote.

use crate::{
    join::{End, TraceKind},
    record::{RecordedProcess, RecordedSession},
};

/// The first line of a table of sessions.
pub const SESSION_COLUMNS: [&str; 17] = [
    "started",
    "ended",
    "state",
    "kind",
    "user",
    "impersonator",
    "from",
    "namespace",
    "pod",
    "container",
    "command",
    "variables",
    "session",
    "auditID",
    "eventSource",
    "programs",
    "lost",
];

/// The first line of a table of programs.
pub const PROCESS_COLUMNS: [&str; 13] = [
    "session",
    "started",
    "ended",
    "state",
    "exitCode",
    "signal",
    "pid",
    "parent",
    "parentProgram",
    "uid",
    "program",
    "arguments",
    "source",
];

/// A line of the table of sessions.
pub fn session_line(session: &RecordedSession) -> String {
    let trace = &session.trace;
    let (state, ended) = match trace.end {
        End::Running => ("running".to_owned(), String::new()),
        End::Exited { at, code } => (format!("exit {code}"), at.to_string()),
        End::Over { at } => ("over".to_owned(), at.to_string()),
        End::Unknown => ("unknown".to_owned(), String::new()),
    };
    let kind = match trace.kind {
        TraceKind::Exec => "exec",
        TraceKind::Attach => "attach",
        TraceKind::Debug => "debug",
        TraceKind::Container => "container",
    };
    let caller = trace.caller.as_ref();
    line(&[
        trace.started.to_string(),
        ended,
        state,
        kind.to_owned(),
        trace.user().unwrap_or_default().to_owned(),
        caller.and_then(|it| it.impersonator.clone()).unwrap_or_default(),
        caller.and_then(|it| it.source.last().cloned()).unwrap_or_default(),
        trace.namespace.clone(),
        trace.pod.clone(),
        trace.container.clone(),
        trace.command.join(" "),
        trace.variables.join(" "),
        trace.session.clone().unwrap_or_default(),
        trace.audit_id.clone().unwrap_or_default(),
        word(&session.event_source),
        session.programs.to_string(),
        session.lost.to_string(),
    ])
}

/// A line of the table of programs.
pub fn process_line(process: &RecordedProcess) -> String {
    let number = |number: Option<i32>| number.map(|it| it.to_string()).unwrap_or_default();
    line(&[
        process.session.clone(),
        format!("{:.6}", process.started),
        process.ended.map(|at| format!("{at:.6}")).unwrap_or_default(),
        word(&process.state),
        number(process.exit_code),
        number(process.signal),
        process.pid.to_string(),
        process.parent.to_string(),
        process.parent_program.map(|pid| pid.to_string()).unwrap_or_default(),
        process.uid.to_string(),
        process.program.clone(),
        process.arguments.join(" "),
        word(&process.source),
    ])
}

/// A line of any table, with its end.
pub fn line(cells: &[String]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| quoted(cell)).collect();
    cells.join(",") + "\r\n"
}

fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let guard = if is_formula { "'" } else { "" };
    if is_formula || cell.contains(['"', ',', '\r', '\n']) {
        return format!("\"{guard}{}\"", cell.replace('"', "\"\""));
    }
    cell.to_owned()
}

/// As in JSON.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_formulas_are_none() {
        let cells = ["a", "b,c", "d\"e", "=cmd()", "-1", ""].map(str::to_owned);
        assert_eq!(line(&cells), "a,\"b,c\",\"d\"\"e\",\"'=cmd()\",\"'-1\",\r\n");
    }
}
