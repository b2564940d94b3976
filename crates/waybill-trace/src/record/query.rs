//! What is asked of a record. Everything that is set must match.

use jiff::Timestamp;

use super::{RecordedProcess, RecordedSession};
use crate::join::Filter;

/// Which sessions are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// The user who asked.
    pub user: Option<String>,
    /// The pod, or `namespace/pod`.
    pub pod: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// Not those that ended before.
    pub since: Option<Timestamp>,
    /// Not those that began after.
    pub until: Option<Timestamp>,
    /// Only with this text in what was asked for, or in a program or argument of what ran.
    pub command: Option<String>,
    /// Only with a variable of this name.
    pub variable: Option<String>,
    /// Only those in which this process ran, as the machine counts.
    pub pid: Option<u32>,
    /// Only the one with this name: its id in the record, the runtime's name, or its audit ID.
    pub session: Option<String>,
    /// Only with this text anywhere: user, groups, addresses, place, command, variables, programs, arguments.
    pub text: Option<String>,
    /// Also what the node runs by itself, such as probes.
    pub probes: bool,
    /// At most so many, the newest; all if absent.
    pub limit: Option<usize>,
}

/// Which programs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessQuery {
    /// Of the session with this id.
    pub session: Option<String>,
    /// Not those that ended before.
    pub since: Option<Timestamp>,
    /// Not those that began after.
    pub until: Option<Timestamp>,
    /// Only with this text in the program or an argument.
    pub text: Option<String>,
    /// Not so many of the oldest.
    pub offset: usize,
    /// At most so many, the oldest of the rest; all if absent.
    pub limit: Option<usize>,
}

impl SessionQuery {
    /// Whether a session is wanted, which ran these programs.
    pub fn takes(&self, session: &RecordedSession, processes: &[RecordedProcess]) -> bool {
        let trace = &session.trace;
        let filter = Filter {
            pod: self.pod.clone(),
            user: self.user.clone(),
            since: self.since,
            probes: self.probes,
        };
        let in_namespace = self.namespace.as_ref().is_none_or(|wanted| trace.namespace == *wanted);
        let has_variable =
            self.variable.as_ref().is_none_or(|wanted| trace.variables.contains(wanted));
        let is_named = self.session.as_ref().is_none_or(|wanted| {
            let names = [Some(&session.id), trace.session.as_ref(), trace.audit_id.as_ref()];
            names.contains(&Some(wanted))
        });
        let has_process = self.pid.is_none_or(|pid| {
            processes.iter().any(|process| process.pid == pid)
                || trace.processes.iter().any(|process| process.pid == pid)
        });
        filter.takes(trace)
            && self.until.is_none_or(|until| trace.started <= until)
            && in_namespace
            && has_variable
            && is_named
            && has_process
            && self.command.as_ref().is_none_or(|text| ran(text, session, processes))
            && self.text.as_ref().is_none_or(|text| tells(text, session, processes))
    }
}

/// Whether a text is in what was asked for, or in what ran.
fn ran(text: &str, session: &RecordedSession, processes: &[RecordedProcess]) -> bool {
    session.trace.command.join(" ").contains(text)
        || processes.iter().any(|process| process.has(text))
}

/// Whether a text is anywhere; capitals do not matter.
fn tells(text: &str, session: &RecordedSession, processes: &[RecordedProcess]) -> bool {
    let text = text.to_lowercase();
    let trace = &session.trace;
    let caller = trace.caller.iter().flat_map(|caller| {
        let names = [&caller.user, &caller.uid].into_iter().chain(&caller.impersonator);
        names.chain(&caller.groups).chain(&caller.source)
    });
    let place = [&session.id, &trace.namespace, &trace.pod, &trace.container];
    let names = place.into_iter().chain(&trace.audit_id).chain(&trace.variables).chain(caller);
    let command = trace.command.join(" ").to_lowercase();
    command.contains(&text)
        || names.into_iter().any(|name| name.to_lowercase().contains(&text))
        || processes.iter().any(|process| process.has_any_case(&text))
}

impl ProcessQuery {
    /// Whether a program is wanted.
    pub fn takes(&self, process: &RecordedProcess) -> bool {
        self.session.as_ref().is_none_or(|session| process.session == *session)
            && self.since.is_none_or(|since| process.ended.is_none_or(|at| at >= since))
            && self.until.is_none_or(|until| process.started <= until)
            && self.text.as_ref().is_none_or(|text| process.has_any_case(&text.to_lowercase()))
    }
}
