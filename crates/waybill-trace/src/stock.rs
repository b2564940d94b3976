//! Sessions of a stock cluster: what gates and nodes have on record, joined by session, and with the audit log where there is one.
//!
//! Gate knows who asked, and the node what ran. A user is named only where both tell of the same container, and an agent is believed
//! for its own node alone. Where they disagree that is said, and nobody is named. Pure.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde::Serialize;
use waybill_api::stock::{
    GateRecord, GateVerdict, NodeSession, SessionId, SessionList, SessionRecord, StockKind, Verdict,
};

use crate::{
    audit::{Caller, Request},
    join::{End, Filter, TraceKind},
    process::LiveProcess,
};

/// One session of a stock cluster and everything that is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StockTrace {
    /// What it is.
    pub kind: TraceKind,
    /// The session; none was made for what was refused, and for what no gate saw.
    pub session: Option<String>,
    /// The request's, where the audit log has it.
    #[serde(rename = "auditID")]
    pub audit_id: Option<String>,
    /// What is known about who asked.
    pub standing: Standing,
    /// Who asked; only with [`Standing::Attributed`], [`Standing::Recorded`], [`Standing::Waiting`] and [`Standing::Refused`].
    #[serde(flatten)]
    pub caller: Option<Caller>,
    /// What names their credential.
    #[serde(rename = "credentialID", skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<String>,
    /// Why it was refused, or what does not fit together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The runtime's name for the container, where the node tells.
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
    /// The node.
    pub node: Option<String>,
    /// Whether there is a terminal.
    pub tty: bool,
    /// What was run, where the node tells.
    pub command: Vec<String>,
    /// The names of the caller's variables.
    pub variables: Vec<String>,
    /// When it began, or was asked for.
    #[serde(with = "crate::time")]
    pub started: Timestamp,
    /// Whether it ended.
    pub end: End,
    /// The kernel's ID of its cgroup, by which its processes are known.
    #[serde(rename = "cgroupID", skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// Whether root in the container could move processes between cgroups, so that they prove less.
    pub privileged: bool,
    /// What runs in it now.
    pub processes: Vec<LiveProcess>,
}

/// What is known about who asked for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Standing {
    /// Gate signed it for this user, and the node ran what gate signed.
    Attributed,
    /// Gate saw it, and no node could tell: an attach, or a pod without the RuntimeClass.
    Recorded,
    /// Gate signed it, and no node has told that it began.
    Waiting,
    /// The node ran what a gate signed, and neither gate nor audit log says for whom.
    Unknown,
    /// No gate saw it, and the node let it through.
    Nobody,
    /// It did not happen.
    Refused,
    /// Records contradict one another, so nobody is named.
    Contradicted,
}

impl StockTrace {
    /// Whether somebody wants to see it. What was refused is a list of its own.
    pub fn is_wanted(&self, filter: &Filter, refused: bool) -> bool {
        let user = self.caller.as_ref().map(|caller| caller.user.as_str());
        let user = filter.user.as_deref().is_none_or(|wanted| user == Some(wanted));
        let since = filter.since.is_none_or(|since| match self.end {
            End::Running => true,
            End::Exited { at, .. } | End::Over { at } => at >= since,
            End::Unknown => self.started >= since,
        });
        let asked = (self.standing == Standing::Refused) == refused;
        filter.takes_pod(&self.namespace, &self.pod) && user && since && asked
    }
}

/// Joins what gates, nodes and the audit log tell; oldest first.
pub fn join_stock(list: &SessionList, requests: &BTreeMap<String, Request>) -> Vec<StockTrace> {
    let audited = audited(requests);
    let mut gates: HashMap<&SessionId, &GateRecord> = HashMap::new();
    let mut traces = Vec::new();
    for record in &list.items {
        match &record.session {
            // A gate signs a session once; of two records the first counts.
            Some(session) => drop(gates.entry(session).or_insert(record)),
            None => traces.push(of_gate(record, &audited)),
        }
    }
    let mut told: HashMap<&SessionId, Vec<&NodeSession>> = HashMap::new();
    for node in &list.node_records {
        match &node.record.session {
            Some(session) => told.entry(session).or_default().push(node),
            None => traces.push(of_node(node, Standing::Nobody)),
        }
    }
    for (session, nodes) in &told {
        let gate = gates.remove(*session);
        traces.extend(
            nodes.iter().map(|node| joined(node, gate, audited.get(session.as_str()), nodes.len())),
        );
    }
    traces.extend(gates.into_values().map(|record| of_gate(record, &audited)));
    traces.sort_by(|one, other| (one.started, &one.session).cmp(&(other.started, &other.session)));
    traces
}

/// Requests by the session that gate's annotation names.
fn audited(requests: &BTreeMap<String, Request>) -> HashMap<&str, &Request> {
    let all = requests.values();
    all.flat_map(|request| request.sessions.iter().map(move |session| (session.as_str(), request)))
        .collect()
}

/// A session that a node tells of, with what gate and the audit log say about it.
fn joined(
    node: &NodeSession,
    gate: Option<&GateRecord>,
    request: Option<&&Request>,
    tellers: usize,
) -> StockTrace {
    let mut trace = of_node(node, Standing::Unknown);
    let said = gate
        .map(|gate| user_of(gate, request.copied()))
        .or_else(|| request.map(|request| (request.caller.clone(), None)));
    if let Some(request) = request {
        trace.audit_id = Some(request.audit_id.clone());
    }
    if let Some(gate) = gate {
        trace.variables.clone_from(&gate.variables);
    }
    match contradiction(node, gate, request.copied(), tellers) {
        Some(reason) => {
            trace.standing = Standing::Contradicted;
            trace.reason = Some(reason.to_owned());
        }
        None => {
            if let Some((caller, credential)) = said {
                trace.standing = Standing::Attributed;
                (trace.caller, trace.credential_id) = (Some(caller), credential);
            }
        }
    }
    trace
}

/// Why records do not fit together, in the words that a person reads.
fn contradiction(
    node: &NodeSession,
    gate: Option<&GateRecord>,
    request: Option<&Request>,
    tellers: usize,
) -> Option<&'static str> {
    let SessionRecord { namespace, pod, uid, container, kind, .. } = &node.record;
    if tellers > 1 {
        return Some("more than one record of a node has this session");
    }
    if let Some(gate) = gate {
        let place = (&gate.namespace, &gate.pod, &gate.uid, &gate.container, gate.kind);
        if place != (namespace, pod, uid, container, *kind) {
            return Some("gate signed this session for another container");
        }
        if !gate.node.is_empty() && gate.node != node.node {
            return Some("gate signed this session for a pod of another node");
        }
        if request.is_some_and(|request| request.caller.user != gate.user.username) {
            return Some("gate and the audit log name different users");
        }
    }
    let elsewhere = |request: &Request| (&request.namespace, &request.pod) != (namespace, pod);
    request.is_some_and(elsewhere).then_some("the audit log has this session for another pod")
}

/// Who asked: gate knows, and the audit log adds from where, and for whom somebody acted.
fn user_of(gate: &GateRecord, request: Option<&Request>) -> (Caller, Option<String>) {
    let audited = request.map(|request| &request.caller);
    let caller = Caller {
        user: gate.user.username.clone(),
        uid: gate.user.uid.clone(),
        impersonator: audited.and_then(|caller| caller.impersonator.clone()),
        groups: gate.user.groups.clone(),
        source: audited.map(|caller| caller.source.clone()).unwrap_or_default(),
    };
    (caller, gate.user.credential_id.clone())
}

/// What gate alone tells of.
fn of_gate(record: &GateRecord, audited: &HashMap<&str, &Request>) -> StockTrace {
    let request = record.session.as_ref().and_then(|id| audited.get(id.as_str())).copied();
    let (caller, credential_id) = user_of(record, request);
    let (standing, end) = match record.verdict {
        GateVerdict::Signed => (Standing::Waiting, End::Unknown),
        GateVerdict::Recorded => {
            let ended = request.and_then(|request| request.ended);
            (Standing::Recorded, ended.map_or(End::Unknown, |at| End::Over { at }))
        }
        GateVerdict::Refused => (Standing::Refused, End::Unknown),
    };
    StockTrace {
        kind: kind(record.kind),
        session: record.session.as_ref().map(ToString::to_string),
        audit_id: request.map(|request| request.audit_id.clone()),
        standing,
        caller: Some(caller),
        credential_id,
        reason: record.reason.clone(),
        namespace: record.namespace.clone(),
        pod: record.pod.clone(),
        container: record.container.clone(),
        container_id: None,
        node: Some(record.node.clone()).filter(|node| !node.is_empty()),
        tty: record.tty,
        command: request.map(|request| request.command.clone()).unwrap_or_default(),
        variables: record.variables.clone(),
        started: Timestamp::from_second(record.time).unwrap_or_default(),
        end,
        cgroup_id: None,
        privileged: false,
        processes: Vec::new(),
    }
}

/// What a node alone tells of.
fn of_node(node: &NodeSession, standing: Standing) -> StockTrace {
    let NodeSession { node, record, processes } = node;
    let live = |it: &waybill_api::stock::SessionProcess| LiveProcess {
        pid: it.pid,
        command: it.argv.clone(),
    };
    let refused = record.verdict == Verdict::Refused;
    let end = match (record.ended_ns.map(time), record.exit_code) {
        _ if refused => End::Unknown,
        (Some(at), Some(code)) => End::Exited { at, code },
        (Some(at), None) => End::Over { at },
        (None, _) => End::Running,
    };
    StockTrace {
        kind: kind(record.kind),
        session: record.session.as_ref().map(ToString::to_string),
        audit_id: None,
        standing: if refused { Standing::Refused } else { standing },
        caller: None,
        credential_id: None,
        reason: refused.then(|| "the wrapper of the node refused it".to_owned()),
        namespace: record.namespace.clone(),
        pod: record.pod.clone(),
        container: record.container.clone(),
        container_id: Some(record.container_id.clone()),
        node: Some(node.clone()),
        tty: record.tty,
        command: record.argv.clone(),
        variables: Vec::new(),
        started: time(record.started_ns),
        end,
        cgroup_id: Some(record.cgroup_id).filter(|id| *id != 0),
        privileged: record.privileged,
        processes: processes.iter().map(live).collect(),
    }
}

fn kind(kind: StockKind) -> TraceKind {
    match kind {
        StockKind::Exec => TraceKind::Exec,
        StockKind::Attach => TraceKind::Attach,
        StockKind::Debug => TraceKind::Debug,
    }
}

/// Numbers of others may be any.
fn time(nanoseconds: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
