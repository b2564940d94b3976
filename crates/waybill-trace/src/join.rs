//! The join: pure, so that what is told about people can be tested line by line.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    audit::{Asked, Caller, Request},
    membership::{Membership, MoveReason, Moved},
    process::LiveProcess,
    runtime::{Container, Session},
    typed::OwnProcess,
};

/// One session and everything that is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// What it is.
    pub kind: TraceKind,
    /// The request's, in the audit log.
    #[serde(rename = "auditID")]
    pub audit_id: Option<String>,
    /// The runtime's name for the session, or for the debug container; absent when it has forgotten it.
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
    /// The runtime's name for the container; absent when it has forgotten it.
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
    /// Whether a client that attached could write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<bool>,
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
    #[serde(default)]
    pub processes: Vec<LiveProcess>,
    /// Whether root in its container could move processes between cgroups, so that one here may be somebody else's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// What is in its cgroup and did not begin there, or may not have. Of a container: what left its cgroups.
    #[serde(default)]
    pub moved: Vec<MovedProcess>,
    /// The process that was asked about, if it is a container's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<OwnProcess>,
}

/// A process that was moved: nobody is named for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedProcess {
    /// The process.
    #[serde(flatten)]
    pub process: LiveProcess,
    /// What gives it away.
    pub reason: MoveReason,
}

/// The processes of sessions and of containers, and those that were moved.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    sessions: HashMap<String, Vec<LiveProcess>>,
    containers: HashMap<String, Vec<LiveProcess>>,
    moved: Vec<(Moved, LiveProcess)>,
}

impl Processes {
    /// Sorts processes by what was judged of them; `look_up` is asked for their command lines.
    pub fn new(judged: &BTreeMap<u32, Membership>, look_up: impl Fn(u32) -> LiveProcess) -> Self {
        let mut all = Self::default();
        for (pid, membership) in judged {
            let process = look_up(*pid);
            match membership {
                Membership::Session(id) => {
                    all.sessions.entry(id.clone()).or_default().push(process);
                }
                Membership::Container(id) => {
                    all.containers.entry(id.clone()).or_default().push(process);
                }
                Membership::Moved(moved) => all.moved.push((moved.clone(), process)),
            }
        }
        all
    }

    /// A container's own.
    pub fn of_container(&self, id: &str) -> Vec<LiveProcess> {
        self.containers.get(id).cloned().unwrap_or_default()
    }

    /// Those in the cgroup of a session, or in none, that were moved.
    fn moved(&self, takes: impl Fn(&Moved) -> bool) -> Vec<MovedProcess> {
        let moved = self.moved.iter().filter(|(moved, _)| takes(moved));
        moved
            .map(|(moved, process)| MovedProcess { process: process.clone(), reason: moved.reason })
            .collect()
    }
}

/// What is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceKind {
    /// A process that was started in a container, and what descends from it.
    Exec,
    /// A client at the streams of a container's own process.
    Attach,
    /// A container that was added to a pod that runs.
    Debug,
    /// A container of a pod. Nobody in particular is behind its processes.
    Container,
}

/// Whether and how a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The runtime does not have the container: it was not made yet, or is removed already.
    Unknown,
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
    pub(crate) fn takes_pod(&self, namespace: &str, pod: &str) -> bool {
        self.pod.as_deref().is_none_or(|wanted| match wanted.split_once('/') {
            Some(wanted) => wanted == (namespace, pod),
            None => wanted == pod,
        })
    }

    /// Whether a session is wanted.
    pub fn takes(&self, trace: &Trace) -> bool {
        let pod = self.takes_pod(&trace.namespace, &trace.pod);
        let user = self.user.as_deref().is_none_or(|user| trace.user() == Some(user));
        let since = self.since.is_none_or(|since| match trace.end {
            End::Running => true,
            End::Exited { at, .. } | End::Over { at } => at >= since,
            End::Unknown => trace.started >= since,
        });
        // Probes do not attach.
        let asked = trace.audit_id.is_some() || trace.kind == TraceKind::Attach;
        pod && user && since && (self.probes || asked || !trace.moved.is_empty())
    }
}

/// Joins requests, sessions and processes; oldest first. What left its container's cgroups is told as of the time `now`.
pub fn join(
    requests: &BTreeMap<String, Request>,
    sessions: &[Session],
    containers: &HashMap<String, Container>,
    processes: &Processes,
    now: Timestamp,
) -> Vec<Trace> {
    let known: HashSet<&str> =
        sessions.iter().filter_map(|session| session.audit_id.as_deref()).collect();
    let forgotten = requests
        .values()
        .filter(|request| request.began && !known.contains(request.audit_id.as_str()))
        .filter_map(forgotten);
    let mut traces: Vec<Trace> = sessions
        .iter()
        .map(|session| {
            let request = session.audit_id.as_ref().and_then(|id| requests.get(id));
            let container = containers.get(&session.container).cloned().unwrap_or_default();
            traced(session, request, container, processes)
        })
        .chain(forgotten)
        .chain(outside(containers, processes, now))
        .collect();
    sort(&mut traces);
    traces
}

/// Oldest first.
pub fn sort(traces: &mut [Trace]) {
    traces.sort_by(|one, other| {
        (one.started, &one.session, &one.audit_id).cmp(&(
            other.started,
            &other.session,
            &other.audit_id,
        ))
    });
}

/// Of each container, what is in no cgroup that the runtime made for it.
fn outside(
    containers: &HashMap<String, Container>,
    processes: &Processes,
    now: Timestamp,
) -> Vec<Trace> {
    let outside = processes.moved.iter().filter(|(moved, _)| moved.session.is_none());
    let ids: BTreeSet<Option<&str>> =
        outside.map(|(moved, _)| moved.container.as_deref()).collect();
    let traces = ids.into_iter().map(|id| {
        let container = id.and_then(|id| containers.get(id)).cloned().unwrap_or_default();
        Trace {
            container_id: id.map(str::to_owned),
            moved: processes
                .moved(|moved| moved.session.is_none() && moved.container.as_deref() == id),
            ..empty(TraceKind::Container, now, container)
        }
    });
    traces.collect()
}

/// Nothing but a place.
pub(crate) fn empty(kind: TraceKind, started: Timestamp, container: Container) -> Trace {
    Trace {
        kind,
        audit_id: None,
        session: None,
        caller: None,
        namespace: container.namespace,
        pod: container.pod,
        container: container.name,
        container_id: None,
        stdin: None,
        command: Vec::new(),
        variables: Vec::new(),
        started,
        end: End::Running,
        processes: Vec::new(),
        privileged: false,
        moved: Vec::new(),
        process: None,
    }
}

pub(crate) fn traced(
    session: &Session,
    request: Option<&Request>,
    container: Container,
    processes: &Processes,
) -> Trace {
    let end = match (session.ended, session.attached) {
        (Some((at, _)), Some(_)) => End::Over { at },
        (Some((at, code)), None) => End::Exited { at, code },
        (None, _) => End::Running,
    };
    let kind = if session.attached.is_some() { TraceKind::Attach } else { TraceKind::Exec };
    let mut trace = Trace {
        audit_id: session.audit_id.clone(),
        session: Some(session.id.clone()),
        container_id: Some(session.container.clone()),
        stdin: session.attached.map(|attached| attached.stdin),
        variables: session.variables.clone(),
        end,
        processes: processes.sessions.get(&session.id).cloned().unwrap_or_default(),
        moved: processes.moved(|moved| moved.session.as_ref() == Some(&session.id)),
        privileged: session.privileged,
        ..empty(kind, session.started, container)
    };
    if let Some(request) = request {
        who(&mut trace, request);
    }
    trace
}

/// A session that only the audit log remembers.
pub(crate) fn forgotten(request: &Request) -> Option<Trace> {
    let (kind, stdin) = match request.asked {
        Asked::Exec => (TraceKind::Exec, None),
        Asked::Attach { stdin } => (TraceKind::Attach, Some(stdin)),
        Asked::Debug { .. } => return None,
    };
    let end = request.ended.map_or(End::Running, |at| End::Over { at });
    let mut trace = Trace {
        audit_id: Some(request.audit_id.clone()),
        stdin,
        variables: request.variables.clone(),
        end,
        ..empty(kind, request.received, Container::default())
    };
    who(&mut trace, request);
    Some(trace)
}

pub(crate) fn who(trace: &mut Trace, request: &Request) {
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
    use crate::runtime::Attached;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(id: &str, user: &str) -> (String, Request) {
        let request = Request {
            audit_id: id.to_owned(),
            asked: Asked::Exec,
            verb: "create".to_owned(),
            user_agent: String::new(),
            caller: Caller {
                user: user.to_owned(),
                uid: format!("uid-of-{user}"),
                impersonator: None,
                groups: vec!["dev".to_owned()],
                source: vec!["10.0.0.9".to_owned()],
            },
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            pod_uid: String::new(),
            container: String::new(),
            command: vec!["sh".to_owned()],
            variables: Vec::new(),
            received: time(1),
            began: true,
            ended: None,
            refusal: None,
            sessions: Vec::new(),
        };
        (id.to_owned(), request)
    }

    fn session(id: &str, audit_id: Option<&str>) -> Session {
        Session {
            id: id.to_owned(),
            attached: None,
            container: "c1".to_owned(),
            pid: 7,
            started: time(2),
            ended: None,
            variables: vec!["KUBERNETES_EXEC_AUDIT_ID".to_owned()],
            audit_id: audit_id.map(str::to_owned),
            cgroup_id: 5,
            made_at: 0,
            privileged: false,
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
        let traces = join(&requests, &sessions, &containers(), &Processes::default(), time(3));
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
    fn who_attached_is_told_with_whether_they_could_write() {
        let (id, mut asked) = request("a", "anna");
        asked.asked = Asked::Attach { stdin: true };
        let requests = BTreeMap::from([(id, asked)]);
        let mut attach = session("1", Some("a"));
        attach.attached = Some(Attached { stdin: true });
        attach.ended = Some((time(9), 0));
        let traces =
            join(&requests, &[attach.clone()], &containers(), &Processes::default(), time(3));
        let trace = &traces[0];
        assert_eq!(
            (trace.kind, trace.user(), trace.stdin),
            (TraceKind::Attach, Some("anna"), Some(true))
        );
        assert_eq!(trace.end, End::Over { at: time(9) });
        // Also where the API server signs nothing: it is no probe.
        attach.audit_id = None;
        let traces =
            join(&BTreeMap::new(), &[attach], &containers(), &Processes::default(), time(3));
        assert!(Filter::default().takes(&traces[0]));
        // And when the runtime has forgotten it.
        let traces = join(&requests, &[], &HashMap::new(), &Processes::default(), time(3));
        assert_eq!((traces[0].kind, traces[0].stdin), (TraceKind::Attach, Some(true)));
    }

    /// A user is named for processes that are believed, and moved ones are shown where they are without one.
    #[test]
    fn a_moved_process_is_nobodys() {
        let moved = |container: Option<&str>, session: Option<&str>| {
            Membership::Moved(Moved {
                container: container.map(str::to_owned),
                session: session.map(str::to_owned),
                reason: MoveReason::OutsideItsContainer,
            })
        };
        let judged = BTreeMap::from([
            (7, Membership::Session("1".to_owned())),
            (8, moved(Some("c1"), Some("1"))),
            (9, moved(Some("c1"), None)),
            (10, Membership::Container("c1".to_owned())),
        ]);
        let processes = Processes::new(&judged, |pid| LiveProcess { pid, command: Vec::new() });
        let requests = BTreeMap::from([request("a", "anna")]);
        let sessions = [session("1", Some("a"))];
        let traces = join(&requests, &sessions, &containers(), &processes, time(3));
        let pids =
            |moved: &[MovedProcess]| moved.iter().map(|it| it.process.pid).collect::<Vec<_>>();
        assert_eq!(processes.of_container("c1"), [LiveProcess { pid: 10, command: Vec::new() }]);
        assert_eq!(traces[0].processes, [LiveProcess { pid: 7, command: Vec::new() }]);
        assert_eq!(pids(&traces[0].moved), [8]);
        assert_eq!((traces[1].user(), pids(&traces[1].moved)), (None, vec![9]));
        assert_eq!(traces[1].container, "app");
        assert!(Filter::default().takes(&traces[1]));
    }

    #[test]
    fn a_session_that_nobody_asked_for_has_no_user() {
        let traces = join(
            &BTreeMap::new(),
            &[session("1", None)],
            &containers(),
            &Processes::default(),
            time(3),
        );
        assert_eq!(traces[0].user(), None);
        assert!(!Filter::default().takes(&traces[0]));
        assert!(Filter { probes: true, ..Filter::default() }.takes(&traces[0]));
    }

    /// An ID that the audit log does not have is told, and no user with it.
    #[test]
    fn an_unknown_audit_id_names_no_user() {
        let requests = BTreeMap::from([request("a", "anna")]);
        let traces = join(
            &requests,
            &[session("1", Some("x"))],
            &containers(),
            &Processes::default(),
            time(3),
        );
        let unknown = traces.iter().find(|trace| trace.session.is_some()).unwrap();
        assert_eq!((unknown.user(), unknown.audit_id.as_deref()), (None, Some("x")));
    }

    #[test]
    fn what_the_runtime_has_forgotten_is_told_by_the_audit_log() {
        let mut requests = BTreeMap::from([request("a", "anna"), request("b", "ben")]);
        requests.get_mut("a").unwrap().ended = Some(time(9));
        requests.get_mut("b").unwrap().began = false;
        let traces = join(&requests, &[], &HashMap::new(), &Processes::default(), time(3));
        assert_eq!(traces.len(), 1, "what never began is no session");
        assert_eq!(traces[0].end, End::Over { at: time(9) });
        assert_eq!(traces[0].pod, "web");
    }

    #[test]
    fn filters_take_what_matches_all_of_them() {
        let requests = BTreeMap::from([request("a", "anna")]);
        let mut over = session("1", Some("a"));
        over.ended = Some((time(5), 0));
        let traces = join(&requests, &[over], &containers(), &Processes::default(), time(3));
        let takes = |filter: Filter| filter.takes(&traces[0]);
        assert!(takes(Filter { pod: Some("web".into()), ..Filter::default() }));
        assert!(takes(Filter { pod: Some("shop/web".into()), ..Filter::default() }));
        assert!(!takes(Filter { pod: Some("other/web".into()), ..Filter::default() }));
        assert!(!takes(Filter { user: Some("ben".into()), ..Filter::default() }));
        assert!(takes(Filter { since: Some(time(5)), ..Filter::default() }));
        assert!(!takes(Filter { since: Some(time(6)), ..Filter::default() }));
    }
}
