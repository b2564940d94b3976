//! The conditions of the node. Reasons are the words of kubelets, which tools know.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{NodeCondition, NodeStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use waybill_proto::cri::StatusResponse;

use crate::pressure::Conditions;

/// The conditions of a runtime that a node needs.
const NEEDED: [&str; 2] = ["RuntimeReady", "NetworkReady"];

/// How the node is.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) runtime: RuntimeHealth,
    pub(super) pressure: Conditions,
}

/// How the runtime is.
#[derive(Clone, Debug)]
pub(super) enum RuntimeHealth {
    /// It does not answer.
    Down(String),
    /// What it says of itself.
    Up(StatusResponse),
}

impl Health {
    pub(super) fn is_ready(&self) -> bool {
        self.runtime.faults().is_empty()
    }
}

impl RuntimeHealth {
    /// Why the node is not ready.
    fn faults(&self) -> Vec<String> {
        let conditions = match self {
            Self::Down(why) => return vec![format!("container runtime is down: {why}")],
            Self::Up(answer) => answer.status.iter().flat_map(|status| &status.conditions),
        };
        let fault = |name: &&str| {
            let Some(found) = conditions.clone().find(|condition| condition.r#type == *name) else {
                return Some(format!("container runtime did not report {name}"));
            };
            (!found.status).then(|| {
                format!(
                    "container runtime is not ready: {name}=false reason:{} message:{}",
                    found.reason, found.message
                )
            })
        };
        NEEDED.iter().filter_map(fault).collect()
    }
}

/// All conditions. Those that hold as before keep the moment of their last change.
pub(super) fn all(health: &Health, old: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let faults = health.runtime.faults();
    let (reason, message) = if faults.is_empty() {
        ("KubeletReady", "the node is ready".to_owned())
    } else {
        ("KubeletNotReady", faults.join(", "))
    };
    let pressure = &health.pressure;
    let pressures = [
        (
            "MemoryPressure",
            pressure.memory,
            ["KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"],
        ),
        ("DiskPressure", pressure.disk, ["KubeletHasDiskPressure", "KubeletHasNoDiskPressure"]),
        (
            "PIDPressure",
            pressure.processes,
            ["KubeletHasInsufficientPID", "KubeletHasSufficientPID"],
        ),
    ];
    let mut all: Vec<_> = pressures
        .into_iter()
        .map(|(kind, holds, [bad, good])| {
            let reason = if holds { bad } else { good };
            condition(kind, holds, reason, pressure_text(kind, holds), old, now)
        })
        .collect();
    all.push(condition("Ready", faults.is_empty(), reason, message, old, now));
    all
}

/// Whether two statuses say the same, whenever they were said.
pub(super) fn is_same(one: &NodeStatus, other: &NodeStatus) -> bool {
    let timeless = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status
    };
    timeless(one) == timeless(other)
}

fn pressure_text(kind: &str, holds: bool) -> String {
    let of = match kind {
        "MemoryPressure" => "memory",
        "DiskPressure" => "disk space",
        _ => "process ids",
    };
    let state = if holds { "is short of" } else { "has enough" };
    format!("the node {state} {of}")
}

fn condition(
    kind: &str,
    holds: bool,
    reason: &str,
    message: String,
    old: &[NodeCondition],
    now: Timestamp,
) -> NodeCondition {
    let status = if holds { "True" } else { "False" };
    let unchanged = old.iter().find(|old| old.type_ == kind && old.status == status);
    let since = unchanged.and_then(|old| old.last_transition_time.clone());
    NodeCondition {
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        message: Some(message),
        reason: Some(reason.to_owned()),
        status: status.to_owned(),
        type_: kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use waybill_proto::cri::{RuntimeCondition, RuntimeStatus};

    use super::*;

    fn health(runtime: RuntimeHealth) -> Health {
        Health { runtime, pressure: Conditions::default() }
    }

    fn runtime(network: bool) -> RuntimeHealth {
        let condition = |kind: &str, status| RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: if status { String::new() } else { "NetworkPluginNotReady".to_owned() },
            message: if status { String::new() } else { "no network".to_owned() },
        };
        let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", network)];
        RuntimeHealth::Up(StatusResponse {
            status: Some(RuntimeStatus { conditions }),
            ..StatusResponse::default()
        })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn check_ready(runtime: RuntimeHealth, status: &str, reason: &str, message: &str) {
        let all = all(&health(runtime), &[], at(1));
        let ready = all.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!(ready.status, status);
        assert_eq!(ready.reason.as_deref(), Some(reason));
        assert_eq!(ready.message.as_deref(), Some(message));
    }

    #[test]
    fn the_node_is_as_ready_as_its_runtime() {
        check_ready(runtime(true), "True", "KubeletReady", "the node is ready");
        check_ready(
            runtime(false),
            "False",
            "KubeletNotReady",
            "container runtime is not ready: NetworkReady=false reason:NetworkPluginNotReady \
             message:no network",
        );
        check_ready(
            RuntimeHealth::Down("gone".to_owned()),
            "False",
            "KubeletNotReady",
            "container runtime is down: gone",
        );
        check_ready(
            RuntimeHealth::Up(StatusResponse::default()),
            "False",
            "KubeletNotReady",
            "container runtime did not report RuntimeReady, container runtime did not report NetworkReady",
        );
    }

    #[test]
    fn a_condition_that_holds_keeps_its_moment() {
        let first = all(&health(runtime(true)), &[], at(1));
        let second = all(&health(runtime(true)), &first, at(2));
        for condition in &second {
            assert_eq!(condition.last_transition_time, Some(Time(at(1))), "{}", condition.type_);
            assert_eq!(condition.last_heartbeat_time, Some(Time(at(2))));
        }
        let third = all(&health(runtime(false)), &second, at(3));
        let ready = third.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!(ready.last_transition_time, Some(Time(at(3))));
    }

    #[test]
    fn a_heartbeat_alone_is_no_change() {
        let status = |old: &[NodeCondition], second, network| NodeStatus {
            conditions: Some(all(&health(runtime(network)), old, at(second))),
            ..NodeStatus::default()
        };
        let first = status(&[], 1, true);
        let conditions = first.conditions.clone().unwrap();
        assert!(is_same(&first, &status(&conditions, 2, true)));
        assert!(!is_same(&first, &status(&conditions, 2, false)));
    }
}
