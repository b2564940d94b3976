//! The join: pure, so that what is told about people can be tested line by line.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    audit::{Caller, Request},
    process::{LiveProcess, Processes},
    runtime::{Container, Session},
};

/// One session and everything that is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The request's, in the audit log.
    #[serde(rename = "auditID")]
    pub audit_id: Option<String>,
    /// The runtime's name for the session; absent when it has forgotten it.
    pub session: Option<String>,
    /// Who asked. Absent for probes and hooks, which the node runs, and where the audit log has no such
    /// request.
    #[serde(flatten)]
    pub caller: Option<Caller>,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The command that was asked for.
    pub command: Vec<String>,
    /// The names of the variables that were set for the session, the audit ID's included.
    pub variables: Vec<String>,
    /// When it began.
    #[serde(with = "crate::time")]
    pub started: Timestamp,
    /// Whether and how it ended.
    pub end: End,
    /// What runs in it now, whatever it calls itself; also after the first process has ended.
    pub processes: Vec<LiveProcess>,
}

/// Whether and how a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum End {
    /// It has not.
    Running,
    /// Its first process exited.
    Exited {
        /// When.
        #[serde(with = "crate::time")]
        at: Timestamp,
        /// Its exit code.
        code: i32,
    },
    /// It has, and the runtime no longer knows how.
    Over {
        /// When the stream ended.
        #[serde(with = "crate::time")]
        at: Timestamp,
    },
}

/// Which sessions are wanted; everything that is set must match.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The pod, or `namespace/pod`.
    pub pod: Option<String>,
    /// The user who asked.
    pub user: Option<String>,
    /// Not those that ended before.
    pub since: Option<Timestamp>,
    /// Also what the node runs by itself, such as probes.
    pub probes: bool,
}

impl Trace {
    /// The name of who asked, if that is known.
    pub fn user(&self) -> Option<&str> {
        self.caller.as_ref().map(|caller| caller.user.as_str())
    }
}

impl Filter {
    /// Whether a session is wanted.
    pub fn takes(&self, trace: &Trace) -> bool {
        let pod = self.pod.as_deref().is_none_or(|pod| match pod.split_once('/') {
            Some((namespace, pod)) => trace.namespace == namespace && trace.pod == pod,
            None => trace.pod == pod,
        });
        let user = self.user.as_deref().is_none_or(|user| trace.user() == Some(user));
        let since = self.since.is_none_or(|since| match trace.end {
            End::Running => true,
            End::Exited { at, .. } | End::Over { at } => at >= since,
        });
        pod && user && since && (self.probes || trace.audit_id.is_some())
    }
}

/// Joins requests, sessions and processes; oldest first.
pub fn join(
    requests: &BTreeMap<String, Request>,
    sessions: &[Session],
    containers: &HashMap<String, Container>,
    processes: &Processes,
) -> Vec<Trace> {
    let known: HashSet<&str> =
        sessions.iter().filter_map(|session| session.audit_id.as_deref()).collect();
    let forgotten = requests
        .values()
        .filter(|request| request.began && !known.contains(request.audit_id.as_str()))
        .map(forgotten);
    let mut traces: Vec<Trace> = sessions
        .iter()
        .map(|session| {
            let request = session.audit_id.as_ref().and_then(|id| requests.get(id));
            let container = containers.get(&session.container).cloned().unwrap_or_default();
            traced(session, request, container, processes.of(&session.id))
        })
        .chain(forgotten)
        .collect();
    traces.sort_by(|one, other| {
        (one.started, &one.session, &one.audit_id).cmp(&(
            other.started,
            &other.session,
            &other.audit_id,
        ))
    });
    traces
}

fn traced(
    session: &Session,
    request: Option<&Request>,
    container: Container,
    processes: &[LiveProcess],
) -> Trace {
    let end = match session.ended {
        Some((at, code)) => End::Exited { at, code },
        None => End::Running,
    };
    let mut trace = Trace {
        audit_id: session.audit_id.clone(),
        session: Some(session.id.clone()),
        caller: None,
        namespace: container.namespace,
        pod: container.pod,
        container: container.name,
        command: Vec::new(),
        variables: session.variables.clone(),
        started: session.started,
        end,
        processes: processes.to_vec(),
    };
    if let Some(request) = request {
        who(&mut trace, request);
    }
    trace
}

/// A session that only the audit log remembers.
fn forgotten(request: &Request) -> Trace {
    let end = request.ended.map_or(End::Running, |at| End::Over { at });
    let mut trace = Trace {
        audit_id: Some(request.audit_id.clone()),
        session: None,
        caller: None,
        namespace: String::new(),
        pod: String::new(),
        container: String::new(),
        command: Vec::new(),
        variables: request.variables.clone(),
        started: request.received,
        end,
        processes: Vec::new(),
    };
    who(&mut trace, request);
    trace
}

fn who(trace: &mut Trace, request: &Request) {
    trace.caller = Some(request.caller.clone());
    trace.command.clone_from(&request.command);
    // The runtime's word counts for where; the request's fills in what it has forgotten.
    for (known, asked) in [
        (&mut trace.namespace, &request.namespace),
        (&mut trace.pod, &request.pod),
        (&mut trace.container, &request.container),
    ] {
        if known.is_empty() {
            known.clone_from(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(id: &str, user: &str) -> (String, Request) {
        let request = Request {
            audit_id: id.to_owned(),
            caller: Caller {
                user: user.to_owned(),
                uid: format!("uid-of-{user}"),
                impersonator: None,
                groups: vec!["dev".to_owned()],
                source: vec!["10.0.0.9".to_owned()],
            },
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: String::new(),
            command: vec!["sh".to_owned()],
            variables: Vec::new(),
            received: time(1),
            began: true,
            ended: None,
        };
        (id.to_owned(), request)
    }

    fn session(id: &str, audit_id: Option<&str>) -> Session {
        Session {
            id: id.to_owned(),
            container: "c1".to_owned(),
            pid: 7,
            started: time(2),
            ended: None,
            variables: vec!["KUBERNETES_EXEC_AUDIT_ID".to_owned()],
            audit_id: audit_id.map(str::to_owned),
        }
    }

    fn containers() -> HashMap<String, Container> {
        let container = Container {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            name: "app".to_owned(),
        };
        HashMap::from([("c1".to_owned(), container)])
    }

    /// EXEC-21, EXEC-48: two users in one container at the same time.
    #[test]
    fn overlapping_sessions_are_told_apart_by_their_audit_ids() {
        let requests = BTreeMap::from([request("a", "anna"), request("b", "ben")]);
        let sessions = [session("1", Some("b")), session("2", Some("a"))];
        let traces = join(&requests, &sessions, &containers(), &Processes::default());
        let found: Vec<_> = traces
            .iter()
            .map(|trace| (trace.session.as_deref().unwrap(), trace.user().unwrap()))
            .collect();
        assert_eq!(found, [("1", "ben"), ("2", "anna")]);
        assert_eq!(traces[0].container, "app");
        let ben = traces[0].caller.as_ref().unwrap();
        assert_eq!(
            (ben.groups.as_slice(), ben.uid.as_str()),
            (&["dev".to_owned()][..], "uid-of-ben")
        );
    }

    #[test]
    fn a_session_that_nobody_asked_for_has_no_user() {
        let traces =
            join(&BTreeMap::new(), &[session("1", None)], &containers(), &Processes::default());
        assert_eq!(traces[0].user(), None);
        assert!(!Filter::default().takes(&traces[0]));
        assert!(Filter { probes: true, ..Filter::default() }.takes(&traces[0]));
    }

    /// An ID that the audit log does not have is told, and no user with it.
    #[test]
    fn an_unknown_audit_id_names_no_user() {
        let requests = BTreeMap::from([request("a", "anna")]);
        let traces =
            join(&requests, &[session("1", Some("x"))], &containers(), &Processes::default());
        let unknown = traces.iter().find(|trace| trace.session.is_some()).unwrap();
        assert_eq!((unknown.user(), unknown.audit_id.as_deref()), (None, Some("x")));
    }

    #[test]
    fn what_the_runtime_has_forgotten_is_told_by_the_audit_log() {
        let mut requests = BTreeMap::from([request("a", "anna"), request("b", "ben")]);
        requests.get_mut("a").unwrap().ended = Some(time(9));
        requests.get_mut("b").unwrap().began = false;
        let traces = join(&requests, &[], &HashMap::new(), &Processes::default());
        assert_eq!(traces.len(), 1, "what never began is no session");
        assert_eq!(traces[0].end, End::Over { at: time(9) });
        assert_eq!(traces[0].pod, "web");
    }

    #[test]
    fn filters_take_what_matches_all_of_them() {
        let requests = BTreeMap::from([request("a", "anna")]);
        let mut over = session("1", Some("a"));
        over.ended = Some((time(5), 0));
        let traces = join(&requests, &[over], &containers(), &Processes::default());
        let takes = |filter: Filter| filter.takes(&traces[0]);
        assert!(takes(Filter { pod: Some("web".into()), ..Filter::default() }));
        assert!(takes(Filter { pod: Some("shop/web".into()), ..Filter::default() }));
        assert!(!takes(Filter { pod: Some("other/web".into()), ..Filter::default() }));
        assert!(!takes(Filter { user: Some("ben".into()), ..Filter::default() }));
        assert!(takes(Filter { since: Some(time(5)), ..Filter::default() }));
        assert!(!takes(Filter { since: Some(time(6)), ..Filter::default() }));
    }
}
