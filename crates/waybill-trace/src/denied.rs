//! Who tried and was refused: requests for sessions and debug containers that came to nothing.
//!
//! kubectl asks for a session over WebSocket first and, when that is refused, at once again over SPDY. A server records two
//! requests then, as any API server does; for people it was one attempt.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
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
    /// The audit ID of the same request over SPDY, which the client made when this one was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_again_as: Option<String>,
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

/// How soon a client asks over SPDY when a WebSocket was refused; kubectl does so at once.
const SOON: SignedDuration = SignedDuration::from_secs(10);

/// The attempts among `requests` that were refused, oldest first.
pub fn denied(requests: &BTreeMap<String, Request>, filter: &Filter) -> Vec<Denied> {
    let mut all: Vec<_> = requests.values().collect();
    all.sort_by_key(|request| (request.received, &request.audit_id));
    let again = asked_again(&all);
    let seconds: HashMap<_, _> = again.iter().map(|(first, second)| (*second, *first)).collect();
    let came_to_nothing = |request: &&Request| {
        let second = again.get(request.audit_id.as_str()).and_then(|id| requests.get(*id));
        !seconds.contains_key(request.audit_id.as_str()) && second.is_none_or(|it| !it.began)
    };
    let refused = all.into_iter().filter(came_to_nothing).filter_map(Denied::of);
    let told = refused.map(|attempt| {
        let asked_again_as = again.get(attempt.audit_id.as_str()).map(|id| (*id).to_owned());
        Denied { asked_again_as, ..attempt }
    });
    told.filter(|attempt| attempt.is_wanted(filter)).collect()
}

/// Refused requests over WebSocket by the one over SPDY that followed each. `requests` are in the order in which they came.
fn asked_again<'a>(requests: &[&'a Request]) -> HashMap<&'a str, &'a str> {
    let mut refused: HashMap<_, VecDeque<&Request>> = HashMap::new();
    let mut found = HashMap::new();
    for request in requests {
        let Request { asked, caller, user_agent, .. } = request;
        let place = (&request.namespace, &request.pod, &request.container);
        let who = (&caller.user, &caller.uid, &caller.impersonator, &caller.source, user_agent);
        let same = (asked, place, &request.command, &request.variables, who);
        match request.verb.as_str() {
            "get" if request.refusal.is_some() => {
                refused.entry(same).or_default().push_back(request);
            }
            "create" => {
                let Some(waiting) = refused.get_mut(&same) else { continue };
                let soon =
                    |first: &&Request| request.received.duration_since(first.received) <= SOON;
                if let Some(first) = std::iter::from_fn(|| waiting.pop_front()).find(soon) {
                    found.insert(first.audit_id.as_str(), request.audit_id.as_str());
                }
            }
            _ => {}
        }
    }
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
            asked_again_as: None,
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
