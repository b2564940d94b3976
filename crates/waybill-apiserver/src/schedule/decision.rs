//! What the scheduler decides, and how it is told to users.

use serde::Serialize;

use crate::schedule::pod::PodRef;

/// What is to be done about one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Bind it to `node`, then report a failure to do so to the scheduler.
    Bind { pod: PodRef, node: String },
    /// Say that it fits nowhere. It is tried again when something changes.
    Unschedulable { pod: PodRef, message: String },
    /// Say that its gates hold it back.
    Gated { pod: PodRef },
}

impl Decision {
    /// The pod in question.
    pub(crate) fn pod(&self) -> &PodRef {
        match self {
            Self::Bind { pod, .. } | Self::Unschedulable { pod, .. } | Self::Gated { pod } => pod,
        }
    }

    /// The condition for the pod's status. A binding sets its own in the store.
    pub(crate) fn condition(&self) -> Option<PodCondition> {
        match self {
            Self::Bind { .. } => None,
            Self::Unschedulable { message, .. } => {
                Some(PodCondition::not_scheduled("Unschedulable", message))
            }
            Self::Gated { .. } => Some(PodCondition::not_scheduled(
                "SchedulingGated",
                "Scheduling is blocked due to non-empty scheduling gates",
            )),
        }
    }

    /// The event about the pod. That of a binding is for when it succeeded.
    pub(crate) fn event(&self) -> Option<EventContent> {
        match self {
            Self::Bind { pod, node } => Some(EventContent {
                kind: "Normal",
                reason: "Scheduled",
                action: "Binding",
                message: format!("Successfully assigned {} to {node}", pod.key),
            }),
            Self::Unschedulable { message, .. } => Some(EventContent {
                kind: "Warning",
                reason: "FailedScheduling",
                action: "Scheduling",
                message: message.clone(),
            }),
            Self::Gated { .. } => None,
        }
    }
}

/// A `PodScheduled` condition. Its times depend on the one that it replaces, so the caller sets
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl PodCondition {
    fn not_scheduled(reason: &'static str, message: &str) -> Self {
        Self { kind: "PodScheduled", status: "False", reason, message: message.to_owned() }
    }
}

/// What an event of `default-scheduler` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EventContent {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) message: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schedule::pod::PodKey;

    fn pod() -> PodRef {
        let key = PodKey { namespace: "default".to_owned(), name: "web".to_owned() };
        PodRef { key, uid: "u1".to_owned() }
    }

    #[test]
    fn a_binding_is_told_by_an_event() {
        let decision = Decision::Bind { pod: pod(), node: "n1".to_owned() };
        assert_eq!(decision.condition(), None);
        assert_eq!(
            serde_json::to_value(decision.event()).unwrap(),
            json!({
                "type": "Normal",
                "reason": "Scheduled",
                "action": "Binding",
                "message": "Successfully assigned default/web to n1",
            })
        );
    }

    #[test]
    fn a_failure_is_told_by_condition_and_event() {
        let message = "0/1 nodes are available: 1 Too many pods.";
        let decision = Decision::Unschedulable { pod: pod(), message: message.to_owned() };
        assert_eq!(
            serde_json::to_value(decision.condition()).unwrap(),
            json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
            })
        );
        let event = decision.event().unwrap();
        assert_eq!((event.reason, event.message.as_str()), ("FailedScheduling", message));
    }

    #[test]
    fn a_gate_is_told_by_a_condition_only() {
        let decision = Decision::Gated { pod: pod() };
        assert_eq!(decision.condition().unwrap().reason, "SchedulingGated");
        assert_eq!(decision.event(), None);
    }
}
