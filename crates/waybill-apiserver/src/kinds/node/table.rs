//! The row of a node.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::table::{
    Table,
    cells::{age, name},
    columns::{self, Column},
    read::{condition_holds, flag, list, map, text, text_or},
};

pub(super) const TABLE: Table = Table {
    columns: &[
        columns::NAME,
        Column::new("Status", "Whether the node is ready, and whether it takes pods."),
        Column::new("Roles", "The roles that the node's labels give it."),
        columns::AGE,
        Column::new("Version", "Version of the kubelet."),
        Column::new("Internal-IP", "Address inside the cluster.").wide(),
        Column::new("External-IP", "Address from outside the cluster.").wide(),
        Column::new("OS-Image", "Operating system of the node.").wide(),
        Column::new("Kernel-Version", "Kernel of the node.").wide(),
        Column::new("Container-Runtime", "Container runtime and its version.").wide(),
    ],
    cells,
    ..Table::PLAIN
};

/// The cells of `node`.
fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info =
        |field: &str| text_or(node, &format!("/status/nodeInfo/{field}"), "<unknown>").into();
    vec![
        name(node),
        status(node).into(),
        roles(node).into(),
        age(node, now),
        text(node, "/status/nodeInfo/kubeletVersion").into(),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn status(node: &Value) -> String {
    let mut conditions = list(node, "/status/conditions").iter();
    let mut status = match conditions.any(|condition| text(condition, "/type") == "Ready") {
        true if condition_holds(node, "/status/conditions", "Ready") => "Ready",
        true => "NotReady",
        false => "Unknown",
    }
    .to_owned();
    if flag(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    status
}

/// Roles are labels, in a new form (`node-role.kubernetes.io/<role>`) and an old one.
fn roles(node: &Value) -> String {
    let labels = map(node, "/metadata/labels").into_iter().flatten();
    let roles: BTreeSet<_> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return "<none>".to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let mut addresses = list(node, "/status/addresses").iter();
    let found = addresses.find(|address| text(address, "/type") == kind);
    found.map_or("<none>", |address| text(address, "/address"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_as_kubectl_shows_it() {
        let node = json!({
            "metadata": {
                "name": "n1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {
                    "node-role.kubernetes.io/worker": "",
                    "node-role.kubernetes.io/": "",
                    "kubernetes.io/role": "gpu",
                },
            },
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Debian"},
            },
        });
        assert_eq!(
            Value::from(cells(&node, "2026-01-03T05:00:00Z".parse().unwrap())),
            json!([
                "n1",
                "Ready,SchedulingDisabled",
                "gpu,worker",
                "2d5h",
                "v1.36.0",
                "10.0.0.1",
                "<none>",
                "Debian",
                "<unknown>",
                "<unknown>",
            ])
        );
    }

    #[test]
    fn readiness_is_yes_no_or_unknown() {
        let check = |conditions: Value, expected: &str| {
            assert_eq!(status(&json!({"status": {"conditions": conditions}})), expected);
        };
        check(json!([{"type": "Ready", "status": "True"}]), "Ready");
        check(json!([{"type": "Ready", "status": "False"}]), "NotReady");
        check(json!([{"type": "Ready", "status": "Unknown"}]), "NotReady");
        check(json!([{"type": "DiskPressure", "status": "True"}]), "Unknown");
        check(json!(null), "Unknown");
    }
}
