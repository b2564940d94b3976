//! Whether a pod fits a node, and if not, why.

use std::{collections::BTreeMap, fmt};

use crate::schedule::{
    drivers::Drivers,
    node::{Node, Usage},
    pod::Pod,
    taint::Taint,
};

/// What keeps a pod from a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    Unschedulable,
    NotReady,
    Taint { key: String, value: String },
    Affinity,
    HostPorts,
    CsiDriver(String),
    TooManyPods,
    Insufficient(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::NotReady => f.write_str("node(s) were not ready"),
            Self::Taint { key, value } => {
                write!(f, "node(s) had untolerated taint {{{key}: {value}}}")
            }
            Self::Affinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::HostPorts => {
                f.write_str("node(s) didn't have free ports for the requested pod ports")
            }
            Self::CsiDriver(name) => {
                write!(f, "node(s) did not have CSI driver {name:?} for csiSecretRef")
            }
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
        }
    }
}

/// All that keeps `pod` from `node`, which has `drivers`: the first obstacle in upstream's order of
/// checks, but every driver that is missing and every resource that is short.
pub(super) fn obstacles(pod: &Pod, node: &Node, drivers: &Drivers, usage: &Usage) -> Vec<Obstacle> {
    if node.unschedulable && !tolerates(pod, &unschedulable_taint()) {
        return vec![Obstacle::Unschedulable];
    }
    if !node.ready {
        return vec![Obstacle::NotReady];
    }
    let mut forbidding = node.taints.iter().filter(|taint| taint.forbids());
    if let Some(taint) = forbidding.find(|taint| !tolerates(pod, taint)) {
        return vec![Obstacle::Taint { key: taint.key.clone(), value: taint.value.clone() }];
    }
    let selected = pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    if !selected || !pod.affinity.allows(&node.name, &node.labels) {
        return vec![Obstacle::Affinity];
    }
    if usage.has_conflict(pod) {
        return vec![Obstacle::HostPorts];
    }
    let missing: Vec<_> =
        drivers.missing(pod).map(|name| Obstacle::CsiDriver(name.to_owned())).collect();
    if missing.is_empty() { shortages(pod, node, usage) } else { missing }
}

/// How unwelcome `pod` is on a node that it fits: nodes with less are better.
pub(super) fn reluctance(pod: &Pod, node: &Node) -> usize {
    node.taints.iter().filter(|taint| taint.discourages() && !tolerates(pod, taint)).count()
}

/// The sentence about a pod that fits nowhere. Each obstacle is counted over all nodes.
pub(super) fn explain(obstacles: impl IntoIterator<Item = Vec<Obstacle>>) -> String {
    let mut nodes = 0;
    let mut counts = BTreeMap::<Obstacle, usize>::new();
    for obstacle in obstacles.into_iter().inspect(|_| nodes += 1).flatten() {
        *counts.entry(obstacle).or_default() += 1;
    }
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut reasons: Vec<_> =
        counts.iter().map(|(obstacle, count)| format!("{count} {obstacle}")).collect();
    // Upstream sorts the finished texts, numbers included.
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

fn shortages(pod: &Pod, node: &Node, usage: &Usage) -> Vec<Obstacle> {
    let mut shortages = Vec::new();
    let places = usize::try_from(node.allocatable.get("pods")).unwrap_or_default();
    if usage.pods >= places {
        shortages.push(Obstacle::TooManyPods);
    }
    for (name, amount) in &pod.requests.0 {
        let free = i128::from(node.allocatable.get(name)) - usage.requested(name);
        // Who asks for nothing takes nothing, even where nothing is left.
        if *amount > 0 && i128::from(*amount) > free {
            shortages.push(Obstacle::Insufficient(name.clone()));
        }
    }
    shortages
}

fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    pod.tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

/// What a cordoned node has besides its flag, and what a pod that ignores the flag tolerates.
fn unschedulable_taint() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(spec: &Value, labels: &Value) -> Node {
        let allocatable =
            json!({"cpu": "1", "memory": "1Gi", "pods": 2, "ephemeral-storage": "1Gi"});
        let status = json!({
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": allocatable,
        });
        let metadata = json!({"name": "n1", "labels": labels});
        Node::read(&json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn pod(spec: &Value) -> Pod {
        Pod::read(&json!({"spec": spec})).unwrap()
    }

    fn asking(requests: &Value) -> Pod {
        pod(&json!({"containers": [{"resources": {"requests": requests}}]}))
    }

    #[track_caller]
    fn check(pod: &Pod, node: &Node, usage: &Usage, expected: &[&str]) {
        let found = obstacles(pod, node, &Drivers::default(), usage);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{pod:?}");
    }

    #[track_caller]
    fn check_node(pod: &Value, node_spec: &Value, expected: &[&str]) {
        let node = node(node_spec, &json!({"zone": "a"}));
        check(&self::pod(pod), &node, &Usage::default(), expected);
    }

    #[test]
    fn the_state_of_a_node_decides_first() {
        check_node(&json!({}), &json!({}), &[]);
        check_node(&json!({}), &json!({"unschedulable": true}), &["node(s) were unschedulable"]);
        let daemon = json!({"tolerations": [{"operator": "Exists"}]});
        check_node(&daemon, &json!({"unschedulable": true}), &[]);
        let mut lost = node(&json!({}), &json!({}));
        lost.ready = false;
        check(&pod(&daemon), &lost, &Usage::default(), &["node(s) were not ready"]);
    }

    #[test]
    fn taints_forbid_unless_tolerated() {
        let taint =
            |effect: &str| json!({"taints": [{"key": "k", "value": "v", "effect": effect}]});
        let refusal = ["node(s) had untolerated taint {k: v}"];
        check_node(&json!({}), &taint("NoSchedule"), &refusal);
        check_node(&json!({}), &taint("NoExecute"), &refusal);
        check_node(&json!({}), &taint("PreferNoSchedule"), &[]);
        check_node(
            &json!({"tolerations": [{"key": "k", "value": "v"}]}),
            &taint("NoSchedule"),
            &[],
        );
        let unwelcome = node(&taint("PreferNoSchedule"), &json!({}));
        assert_eq!(reluctance(&pod(&json!({})), &unwelcome), 1);
    }

    #[test]
    fn selectors_must_match() {
        let refusal = ["node(s) didn't match Pod's node affinity/selector"];
        check_node(&json!({"nodeSelector": {"zone": "a"}}), &json!({}), &[]);
        check_node(&json!({"nodeSelector": {"zone": "b"}}), &json!({}), &refusal);
        check_node(&json!({"nodeSelector": {"zone": "a", "rack": "1"}}), &json!({}), &refusal);
    }

    #[test]
    fn all_short_resources_are_named() {
        let node = node(&json!({}), &json!({}));
        let mut usage = Usage::default();
        check(&asking(&json!({"cpu": "1", "memory": "1Gi"})), &node, &usage, &[]);
        check(&asking(&json!({"cpu": "1001m"})), &node, &usage, &["Insufficient cpu"]);
        check(
            &asking(&json!({"example.com/gpu": 1})),
            &node,
            &usage,
            &["Insufficient example.com/gpu"],
        );
        usage.add(&asking(&json!({"cpu": "600m", "ephemeral-storage": "1Gi"})));
        let large = asking(&json!({"cpu": "500m", "memory": 1, "ephemeral-storage": 1}));
        check(&large, &node, &usage, &["Insufficient cpu", "Insufficient ephemeral-storage"]);
        usage.add(&asking(&json!({})));
        check(&asking(&json!({"cpu": 0})), &node, &usage, &["Too many pods"]);
    }

    #[test]
    fn a_host_port_is_given_once() {
        let pod = pod(&json!({"containers": [{"ports": [{"hostPort": 80}]}]}));
        let node = node(&json!({}), &json!({}));
        let mut usage = Usage::default();
        usage.add(&pod);
        let refusal = ["node(s) didn't have free ports for the requested pod ports"];
        check(&pod, &node, &usage, &refusal);
        usage.remove(&pod);
        check(&pod, &node, &usage, &[]);
    }

    /// OP-43
    #[test]
    fn drivers_of_variables_must_be_on_the_node_op_43() {
        let csi = |driver: &str| {
            json!({"name": "A", "valueFrom": {"csiSecretRef": {
                "driver": driver, "providerClassName": "c", "key": "k"}}})
        };
        let pod = pod(&json!({
            "containers": [{"env": [csi("b"), csi("b")]}], "initContainers": [{"env": [csi("a")]}]}));
        let node = node(&json!({}), &json!({}));
        let refusal =
            |name: &str| format!("node(s) did not have CSI driver \"{name}\" for csiSecretRef");
        check(&pod, &node, &Usage::default(), &[&refusal("a"), &refusal("b")]);
        let drivers = Drivers::read(&json!({
            "metadata": {"name": "n1", "annotations": {"csi.waybill.dev/env-drivers": "b, a"}},
            "spec": {"drivers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}));
        assert_eq!(obstacles(&pod, &node, &drivers, &Usage::default()), []);
        let one = vec![Obstacle::CsiDriver("a".to_owned())];
        assert_eq!(
            explain([one]),
            "0/1 nodes are available: 1 node(s) did not have CSI driver \"a\" for csiSecretRef."
        );
    }

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let taint = || Obstacle::Taint { key: "k".into(), value: "v".into() };
        let cpu = || Obstacle::Insufficient("cpu".into());
        assert_eq!(
            explain([vec![cpu()], vec![taint()], vec![cpu()]]),
            "0/3 nodes are available: 1 node(s) had untolerated taint {k: v}, 2 Insufficient cpu."
        );
        assert_eq!(
            explain([vec![cpu(), Obstacle::TooManyPods]]),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."
        );
        assert_eq!(explain([]), "no nodes available to schedule pods");
    }
}
