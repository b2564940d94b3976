//! Processes of a container's own cgroup: nobody's session, but somebody may have typed what started them.
//!
//! What is known is who could write to the container's first process, and when. Whether a process comes
//! of that is not known, so users are named as those who may be behind it, never as those who are.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    audit::Caller,
    container::ContainerLife,
    join::{End, Trace, TraceKind},
    process::LiveProcess,
};

/// How far the times of kernel and runtime may be apart.
const MARGIN: SignedDuration = SignedDuration::from_secs(1);

/// A process that belongs to a container and to no exec session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnProcess {
    /// As the machine counts.
    pub pid: u32,
    /// Its command line as it is now.
    pub command: Vec<String>,
    /// When it was started.
    #[serde(with = "crate::time")]
    pub started: Timestamp,
    /// Who could type into the container before that.
    pub may_have_been_started_by: Vec<PossibleStarter>,
}

/// Somebody who was attached with standard input before a process started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PossibleStarter {
    /// The request's, in the audit log.
    #[serde(rename = "auditID")]
    pub audit_id: Option<String>,
    /// Who it was, if the audit log tells.
    #[serde(flatten)]
    pub caller: Option<Caller>,
    /// When the session began.
    #[serde(with = "crate::time")]
    pub started: Timestamp,
    /// Whether and when it ended.
    pub end: End,
    /// Whether the session was open when the process started. What was typed in one that was over may run
    /// later all the same.
    pub open_when_it_started: bool,
}

/// What is known of a process of the container `life`, which is in no exec session.
pub fn trace_own_process(
    life: &ContainerLife,
    traces: &[Trace],
    process: LiveProcess,
    started: Timestamp,
) -> Trace {
    let LiveProcess { pid, command } = process;
    let starters = traces.iter().filter(|trace| could_type(trace, life, started));
    let process = OwnProcess {
        pid,
        command,
        started,
        may_have_been_started_by: starters.map(|trace| starter(trace, started)).collect(),
    };
    let debug = traces.iter().find(|trace| {
        trace.kind == TraceKind::Debug && trace.container_id.as_deref() == Some(&life.id)
    });
    let trace = debug.cloned().unwrap_or_else(|| container(life));
    Trace { process: Some(process), ..trace }
}

/// Whether that session could write to the container before the process started.
fn could_type(trace: &Trace, life: &ContainerLife, process_started: Timestamp) -> bool {
    let writes = trace.kind == TraceKind::Attach && trace.stdin != Some(false);
    let before = trace.started <= process_started.saturating_add(MARGIN).unwrap_or(process_started);
    let here = match &trace.container_id {
        Some(id) => *id == life.id,
        // The runtime has forgotten it; the request may not have named the container.
        None => {
            let place = &life.place;
            let after_its_life = trace.started > life.ended.map_or(Timestamp::MAX, |(at, _)| at);
            (&trace.namespace, &trace.pod) == (&place.namespace, &place.pod)
                && (trace.container.is_empty() || trace.container == place.name)
                && !after_its_life
                && ended(trace).is_none_or(|at| at >= life.created)
        }
    };
    writes && before && here
}

fn starter(trace: &Trace, process_started: Timestamp) -> PossibleStarter {
    let over = ended(trace)
        .and_then(|at| at.checked_add(MARGIN).ok())
        .is_some_and(|at| at < process_started);
    PossibleStarter {
        audit_id: trace.audit_id.clone(),
        caller: trace.caller.clone(),
        started: trace.started,
        end: trace.end,
        open_when_it_started: !over,
    }
}

fn ended(trace: &Trace) -> Option<Timestamp> {
    match trace.end {
        End::Exited { at, .. } | End::Over { at } => Some(at),
        End::Running | End::Unknown => None,
    }
}

/// The container of a pod, which nobody in particular started.
fn container(life: &ContainerLife) -> Trace {
    let end = match life.ended {
        Some((at, code)) => End::Exited { at, code },
        None => End::Running,
    };
    Trace {
        kind: TraceKind::Container,
        audit_id: None,
        session: None,
        caller: None,
        namespace: life.place.namespace.clone(),
        pod: life.place.pod.clone(),
        container: life.place.name.clone(),
        container_id: Some(life.id.clone()),
        stdin: None,
        command: Vec::new(),
        variables: Vec::new(),
        started: life.started.unwrap_or(life.created),
        end,
        processes: Vec::new(),
        privileged: false,
        process: None,
        moved: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Container;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn life() -> ContainerLife {
        ContainerLife {
            id: "c1".to_owned(),
            place: Container {
                namespace: "shop".to_owned(),
                pod: "web".to_owned(),
                name: "app".to_owned(),
            },
            pod_uid: "u1".to_owned(),
            created: time(10),
            started: Some(time(10)),
            ended: None,
        }
    }

    fn attach(user: &str, from: i64, to: Option<i64>) -> Trace {
        let caller = Caller {
            user: user.to_owned(),
            uid: String::new(),
            impersonator: None,
            groups: Vec::new(),
            source: Vec::new(),
        };
        Trace {
            kind: TraceKind::Attach,
            audit_id: Some(user.to_owned()),
            session: Some(user.to_owned()),
            caller: Some(caller),
            stdin: Some(true),
            started: time(from),
            end: to.map_or(End::Running, |to| End::Over { at: time(to) }),
            ..container(&life())
        }
    }

    fn starters(traces: &[Trace], started: i64) -> Vec<(String, bool)> {
        let process = LiveProcess { pid: 7, command: vec!["sleep".to_owned()] };
        let trace = trace_own_process(&life(), traces, process, time(started));
        assert_eq!((trace.kind, trace.user()), (TraceKind::Container, None), "no user is claimed");
        let process = trace.process.unwrap();
        let told = process.may_have_been_started_by.into_iter();
        told.map(|it| (it.caller.unwrap().user, it.open_when_it_started)).collect()
    }

    #[test]
    fn those_who_were_attached_before_a_process_started_may_be_behind_it() {
        let traces = [
            attach("early", 20, Some(30)),
            attach("open", 40, None),
            attach("closed-after", 45, Some(90)),
            attach("late", 60, None),
        ];
        let told = |user: &str, open| (user.to_owned(), open);
        assert_eq!(
            starters(&traces, 50),
            [told("early", false), told("open", true), told("closed-after", true)]
        );
        assert!(starters(&traces, 12).is_empty());
    }

    /// A session that could not write, one of another container, and one of an earlier container of that name.
    #[test]
    fn those_who_could_not_type_here_are_not_named() {
        let reader = Trace { stdin: Some(false), ..attach("reader", 20, None) };
        let other = Trace { container_id: Some("c2".to_owned()), ..attach("other", 20, None) };
        let gone = Trace { container_id: None, ..attach("gone", 1, Some(5)) };
        let elsewhere = Trace {
            container_id: None,
            container: "sidecar".to_owned(),
            ..attach("elsewhere", 20, None)
        };
        assert!(starters(&[reader, other, gone, elsewhere], 50).is_empty());
    }

    #[test]
    fn what_only_the_audit_log_remembers_counts() {
        let forgotten = Trace { container_id: None, ..attach("anna", 20, Some(30)) };
        let unnamed = Trace { container: String::new(), ..forgotten.clone() };
        assert_eq!(starters(&[forgotten, unnamed], 50).len(), 2);
    }

    #[test]
    fn a_process_of_a_debug_container_leads_to_who_added_it() {
        let debug = Trace { kind: TraceKind::Debug, ..attach("anna", 10, None) };
        let traces = [debug, attach("ben", 20, None)];
        let process = LiveProcess { pid: 7, command: Vec::new() };
        let trace = trace_own_process(&life(), &traces, process, time(50));
        assert_eq!((trace.kind, trace.user()), (TraceKind::Debug, Some("anna")));
        let starters = trace.process.unwrap().may_have_been_started_by;
        assert_eq!(starters.len(), 1);
        assert_eq!(starters[0].caller.as_ref().unwrap().user, "ben");
    }
}
