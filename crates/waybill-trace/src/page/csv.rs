//! Rows for spreadsheets, which would take some texts for formulas: those get an apostrophe in front.

use jiff::Timestamp;

use super::filter;
use crate::{End, RecordedProcess, RecordedSession};

/// The names of the columns for sessions.
pub(super) fn session_head() -> String {
    row([
        "started",
        "ended",
        "kind",
        "user",
        "impersonator",
        "uid",
        "groups",
        "addresses",
        "namespace",
        "pod",
        "container",
        "command",
        "state",
        "exit_code",
        "programs",
        "moved",
        "lost",
        "variables",
        "audit_id",
        "session",
        "container_id",
        "event_source",
    ])
}

/// One session.
pub(super) fn session(session: &RecordedSession) -> String {
    let trace = &session.trace;
    let caller = trace.caller.as_ref();
    let (state, code) = match trace.end {
        End::Running => ("running", String::new()),
        End::Exited { code, .. } => ("exited", code.to_string()),
        End::Over { .. } => ("over", String::new()),
        End::Unknown => ("unknown", String::new()),
    };
    let ended = matches!(trace.end, End::Exited { .. } | End::Over { .. });
    row([
        &trace.started.to_string(),
        &filter::end(session).filter(|_| ended).map(text).unwrap_or_default(),
        &name(&trace.kind),
        trace.user().unwrap_or_default(),
        caller.and_then(|caller| caller.impersonator.as_deref()).unwrap_or_default(),
        caller.map_or("", |caller| &caller.uid),
        &caller.map_or_else(String::new, |caller| caller.groups.join(" ")),
        &caller.map_or_else(String::new, |caller| caller.source.join(" ")),
        &trace.namespace,
        &trace.pod,
        &trace.container,
        &command(&trace.command),
        state,
        &code,
        &session.programs.to_string(),
        &trace.moved.len().to_string(),
        &session.lost.to_string(),
        &trace.variables.join(" "),
        trace.audit_id.as_deref().unwrap_or_default(),
        trace.session.as_deref().unwrap_or_default(),
        trace.container_id.as_deref().unwrap_or_default(),
        &session.event_source.map(|source| name(&source)).unwrap_or_default(),
    ])
}

/// The names of the columns for programs.
pub(super) fn program_head() -> String {
    row([
        "started",
        "ended",
        "user",
        "namespace",
        "pod",
        "container",
        "pid",
        "parent",
        "uid",
        "program",
        "arguments",
        "arguments_cut",
        "arguments_hidden",
        "state",
        "exit_code",
        "signal",
        "moved",
        "source",
        "session",
        "audit_id",
    ])
}

/// One program of a session.
pub(super) fn program(session: &RecordedSession, process: &RecordedProcess) -> String {
    let trace = &session.trace;
    row([
        &process.started.to_string(),
        &process.ended.map(text).unwrap_or_default(),
        trace.user().unwrap_or_default(),
        &trace.namespace,
        &trace.pod,
        &trace.container,
        &process.pid.to_string(),
        &process.parent.to_string(),
        &process.uid.to_string(),
        &process.program,
        &command(&process.arguments),
        &process.cut.to_string(),
        &process.hidden_at.len().to_string(),
        &name(&process.state),
        &number(process.exit_code),
        &number(process.signal),
        &process.moved.map(|reason| name(&reason)).unwrap_or_default(),
        &name(&process.source),
        &session.id,
        trace.audit_id.as_deref().unwrap_or_default(),
    ])
}

fn text(time: Timestamp) -> String {
    time.to_string()
}

fn number(number: Option<i32>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// As JSON has it.
fn name(variant: &impl serde::Serialize) -> String {
    let json = serde_json::to_value(variant).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

/// Words of a command, told apart as a shell would: those with anything but letters, digits and a few signs are in quotes.
fn command(words: &[String]) -> String {
    let is_bare = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_@%+=:,./~^-".contains(c))
    };
    let quoted = |word: &String| {
        if is_bare(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// One line, as RFC 4180 has it.
fn row<const N: usize>(cells: [&str; N]) -> String {
    cells.map(cell).join(",") + "\r\n"
}

fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    if text.contains(['"', ',', '\r', '\n', '\'']) || !guard.is_empty() {
        return format!("\"{guard}{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::saved::tests;

    #[test]
    fn a_text_stays_one_cell_and_never_becomes_a_formula() {
        assert_eq!(row(["a", "b,c", "d\"e", "f\ng"]), "a,\"b,c\",\"d\"\"e\",\"f\ng\"\r\n");
        for formula in ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"] {
            assert!(cell(formula).starts_with("\"'"), "{formula:?}");
        }
    }

    #[test]
    fn every_row_has_the_cells_of_its_head() {
        let one = tests::session("s1", "anna", "web", "02:10:00", Some("02:20:00"));
        let line = session(&one);
        assert_eq!(line.matches(',').count(), session_head().matches(',').count());
        assert!(
            line.contains(",anna,") && line.contains("\"sh -c make\"")
                || line.contains(",sh -c make,"),
            "{line}"
        );
        let line = program(&one, &tests::process("s1", 7, &["sh", "-c", "it's"], "02:10:01"));
        assert_eq!(line.matches(',').count(), program_head().matches(',').count());
        assert!(line.contains("\"sh -c 'it'\\''s'\""), "{line}");
    }
}
