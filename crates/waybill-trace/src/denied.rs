//! Who tried and was refused: requests for sessions and debug containers that came to nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Filter, TraceKind,
    audit::{Asked, Caller, Request},
};

/// An attempt that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denied {
    /// When the request came.
    #[serde(with = "crate::time")]
    pub at: Timestamp,
    /// What was asked for.
    pub kind: TraceKind,
    /// The audit ID.
    pub audit_id: String,
    /// Who asked; the name is empty if nobody could be authenticated.
    pub caller: Caller,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container; empty if the request named none.
    pub container: String,
    /// The command.
    pub command: Vec<String>,
    /// The names of the variables that the caller set.
    pub variables: Vec<String>,
    /// The code of the answer.
    pub code: u16,
    /// Why, in one word, as `Forbidden`.
    pub reason: String,
    /// Why, in a sentence; empty if the log does not say.
    pub message: String,
}

/// The attempts among `requests` that were refused, oldest first.
pub fn denied(requests: &BTreeMap<String, Request>, filter: &Filter) -> Vec<Denied> {
    let refused = requests.values().filter_map(Denied::of);
    let mut found: Vec<_> = refused.filter(|attempt| attempt.is_wanted(filter)).collect();
    found.sort_by(|one, other| (one.at, &one.audit_id).cmp(&(other.at, &other.audit_id)));
    found
}

impl Denied {
    /// `None` if it began, goes on, or its client went away.
    fn of(request: &Request) -> Option<Self> {
        let refusal = request.refusal.as_ref().filter(|_| !request.began)?;
        Some(Self {
            at: request.received,
            kind: match request.asked {
                Asked::Exec => TraceKind::Exec,
                Asked::Attach { .. } => TraceKind::Attach,
                Asked::Debug { .. } => TraceKind::Debug,
            },
            audit_id: request.audit_id.clone(),
            caller: request.caller.clone(),
            namespace: request.namespace.clone(),
            pod: request.pod.clone(),
            container: request.container.clone(),
            command: request.command.clone(),
            variables: request.variables.clone(),
            code: refusal.code,
            reason: refusal.reason.clone(),
            message: refusal.message.clone(),
        })
    }

    fn is_wanted(&self, filter: &Filter) -> bool {
        filter.takes_pod(&self.namespace, &self.pod)
            && filter.user.as_deref().is_none_or(|user| self.caller.user == user)
            && filter.since.is_none_or(|since| self.at >= since)
    }
}
