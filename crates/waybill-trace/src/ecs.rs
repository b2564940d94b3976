//! The record for other tools: one JSON object a line, with the field names of the Elastic Common Schema (ECS 8).
//!
//! Fields of ours that the schema has no name for are below `waybill`.

use serde_json::{Map, Value, json};

use crate::{
    join::{End, TraceKind},
    record::{ProcessState, RecordedProcess, RecordedSession},
};

const VERSION: &str = "8.11";

/// A session: an event that lasts from its start to its end.
pub fn session_event(session: &RecordedSession) -> Value {
    let trace = &session.trace;
    let (ended, code) = match trace.end {
        End::Exited { at, code } => (Some(at), Some(code)),
        End::Over { at } => (Some(at), None),
        End::Running | End::Unknown => (None, None),
    };
    let action = match trace.kind {
        TraceKind::Exec => "exec",
        TraceKind::Attach => "attach",
        TraceKind::Debug => "debug",
        TraceKind::Container => "container",
    };
    let mut event = json!({
        "@timestamp": trace.started.to_string(),
        "ecs": {"version": VERSION},
        "event": {
            "kind": "event", "category": ["session"], "type": [if ended.is_some() { "end" } else { "start" }],
            "action": action, "id": trace.audit_id, "start": trace.started.to_string(),
            "end": ended.map(|at| at.to_string()), "provider": "waybill",
        },
        "process": {"args": trace.command, "command_line": trace.command.join(" "), "exit_code": code},
        "waybill": {
            "session": session.id, "variables": trace.variables, "eventSource": session.event_source,
            "programs": session.programs, "lost": session.lost, "complete": session.complete,
        },
    });
    place(&mut event, session);
    without_nulls(event)
}

/// A program that ran in a session.
pub fn process_event(process: &RecordedProcess, session: Option<&RecordedSession>) -> Value {
    let kind = if process.state == ProcessState::Running { "start" } else { "end" };
    let mut event = json!({
        "@timestamp": format!("{:.6}", process.started),
        "ecs": {"version": VERSION},
        "event": {
            "kind": "event", "category": ["process"], "type": [kind], "action": "exec",
            "start": format!("{:.6}", process.started),
            "end": process.ended.map(|at| format!("{at:.6}")), "provider": "waybill",
        },
        "process": {
            "pid": process.pid, "executable": process.program, "args": process.arguments,
            "args_count": process.arguments.len(), "command_line": process.arguments.join(" "),
            "exit_code": process.exit_code, "start": format!("{:.6}", process.started),
            "end": process.ended.map(|at| format!("{at:.6}")), "parent": {"pid": process.parent},
            "real_user": {"id": process.uid.to_string()},
        },
        "waybill": {
            "session": process.session, "signal": process.signal, "state": process.state, "cut": process.cut,
            "hiddenAt": process.hidden_at, "moved": process.moved, "eventSource": process.source,
            "parentProgram": process.parent_program,
        },
    });
    if let Some(session) = session {
        place(&mut event, session);
    }
    // Nobody is named for what was moved.
    if process.moved.is_some()
        && let Some(event) = event.as_object_mut()
    {
        event.remove("user");
        event.remove("source");
    }
    without_nulls(event)
}

/// Who, from where, and in which container.
fn place(event: &mut Value, session: &RecordedSession) {
    let trace = &session.trace;
    let Some(event) = event.as_object_mut() else { return };
    if let Some(caller) = &trace.caller {
        let user = json!({"name": caller.user, "id": caller.uid, "group": {"name": caller.groups}});
        event.insert("user".to_owned(), user);
        event.insert("source".to_owned(), json!({"ip": caller.source.last()}));
        if let Some(by) = &caller.impersonator {
            event.insert("related".to_owned(), json!({"user": [caller.user, by]}));
        }
    }
    let container = json!({"id": trace.container_id, "name": trace.container});
    event.insert("container".to_owned(), container);
    let orchestrator = json!({
        "type": "kubernetes", "namespace": trace.namespace,
        "resource": {"type": "pod", "name": trace.pod},
    });
    event.insert("orchestrator".to_owned(), orchestrator);
}

/// What is not known is left out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                members.map(|(name, value)| (name, without_nulls(value))).collect::<Map<_, _>>(),
            )
        }
        value => value,
    }
}
