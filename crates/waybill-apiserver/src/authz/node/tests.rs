//! What a node may and may not, as tables.

use serde_json::json;

use super::*;
use crate::authz::fixtures::{on, path, user};

/// Node `n` runs `ns/p`, node `m` runs `ns/q`; each pod has things named after it.
fn graph() -> NodeGraph {
    let graph = NodeGraph::default();
    for (node, pod) in [("n", "p"), ("m", "q")] {
        graph.pod_changed(
            None,
            Some(&json!({
                "metadata": {"namespace": "ns", "name": pod, "uid": "u"},
                "spec": {
                    "nodeName": node,
                    "serviceAccountName": format!("{pod}-account"),
                    "imagePullSecrets": [{"name": format!("{pod}-secret")}],
                    "containers": [{
                        "env": [{"valueFrom": {"csiSecretRef": {
                            "providerClassName": format!("{pod}-class")}}}],
                        "envFrom": [{"configMapRef": {"name": format!("{pod}-config")}}],
                    }],
                },
            })),
        );
    }
    graph
}

const ALLOWED: Result<(), &str> = Ok(());
const UNRELATED: Result<(), &str> = Err("no relationship found between node 'n' and this object");

#[track_caller]
fn check_with(verb: &str, target: &str, fields: &[(&str, &str)], expected: Result<(), &str>) {
    let fields: Vec<_> = fields.iter().map(|&(field, value)| FieldTerm { field, value }).collect();
    let found = match graph().node_may("n", &on(verb, target), &fields) {
        Decision::Allow { reason } => {
            assert_eq!(reason, Reason::None);
            Ok(())
        }
        Decision::NoOpinion { reason } => Err(reason.to_string()),
    };
    assert_eq!(found, expected.map_err(str::to_owned), "{verb} {target} {fields:?}");
}

#[track_caller]
fn check(verb: &str, target: &str, expected: Result<(), &str>) {
    check_with(verb, target, &[], expected);
}

#[test]
fn a_node_is_a_user_by_name_and_group() {
    let node = |name: &str, groups: &[&str]| node_of(&user(name, groups)).map(str::to_owned);
    assert_eq!(node("system:node:n", &["x", "system:nodes"]).as_deref(), Some("n"));
    assert_eq!(node("system:node:n", &["x"]), None);
    assert_eq!(node("n", &["system:nodes"]), None);
    assert_eq!(node("system:node:", &["system:nodes"]).as_deref(), Some(""));
    let nameless = NodeGraph::default().node_may("", &on("get", "nodes:n"), &[]);
    assert!(!nameless.is_allowed());
}

#[test]
fn secrets_and_config_maps_are_read_by_name_if_a_pod_refers_to_them() {
    for (resource, thing) in [("secrets", "secret"), ("configmaps", "config")] {
        let own = format!("ns/{resource}:p-{thing}");
        for verb in ["get", "list", "watch"] {
            check(verb, &own, ALLOWED);
            check(verb, &format!("ns/{resource}:q-{thing}"), UNRELATED);
            check(verb, &format!("other/{resource}:p-{thing}"), UNRELATED);
        }
        for verb in ["create", "update", "patch", "delete", "deletecollection", "use"] {
            check(verb, &own, Err("can only read resources of this type"));
        }
        check("get", &format!("ns/{resource}/status:p-{thing}"), Err("cannot read subresource"));
        let all = format!("ns/{resource}");
        let name = format!("p-{thing}");
        for verb in ["list", "watch"] {
            check(verb, &all, Err("No Object name found"));
            check_with(verb, &all, &[("metadata.name", &name)], ALLOWED);
            check_with(verb, &all, &[("metadata.name", "q")], UNRELATED);
            check_with(
                verb,
                &all,
                &[("metadata.name", &name), ("metadata.name", "q")],
                Err("No Object name found"),
            );
            check_with(verb, &all, &[("metadata.name", "")], Err("No Object name found"));
            check_with(verb, &all, &[("type", "Opaque")], Err("No Object name found"));
            check_with(
                verb,
                resource,
                &[("metadata.name", &name)],
                Err("can only read namespaced object of this type"),
            );
        }
    }
}

#[test]
fn classes_are_read_if_a_pod_refers_to_them() {
    let class = "providerclasses.storage.k8s.io";
    check("get", &format!("{class}:p-class"), ALLOWED);
    check_with("watch", class, &[("metadata.name", "p-class")], ALLOWED);
    check("get", &format!("{class}:q-class"), UNRELATED);
    check("list", class, Err("No Object name found"));
    check("use", &format!("{class}:p-class"), Err("can only read resources of this type"));
    check("update", &format!("{class}:p-class"), Err("can only read resources of this type"));
}

#[test]
fn tokens_are_created_for_the_accounts_of_pods() {
    check("create", "ns/serviceaccounts/token:p-account", ALLOWED);
    check("create", "ns/serviceaccounts/token:q-account", UNRELATED);
    check("create", "other/serviceaccounts/token:p-account", UNRELATED);
    let single = Err("can only create tokens for individual service accounts");
    check("create", "ns/serviceaccounts/token", single);
    check("get", "ns/serviceaccounts:p-account", single);
    check(
        "create",
        "ns/serviceaccounts:p-account",
        Err("can only create token subresource of serviceaccount"),
    );
}

#[test]
fn pods_are_the_nodes_own() {
    for verb in ["get", "delete"] {
        check(verb, "ns/pods:p", ALLOWED);
        check(verb, "ns/pods:q", UNRELATED);
        check(verb, "ns/pods:gone", UNRELATED);
    }
    for verb in ["get", "update", "patch"] {
        check(verb, "ns/pods/status:p", ALLOWED);
        check(verb, "ns/pods/status:q", UNRELATED);
    }
    check("create", "ns/pods/eviction:p", ALLOWED);
    check("create", "ns/pods/eviction:q", UNRELATED);
    for (verb, target) in [
        ("update", "ns/pods:p"),
        ("patch", "ns/pods:p"),
        ("deletecollection", "ns/pods"),
        ("create", "ns/pods/exec:p"),
        ("create", "ns/pods/binding:p"),
        ("update", "ns/pods/ephemeralcontainers:p"),
        ("get", "ns/pods/log:p"),
    ] {
        check(verb, target, Err(""));
    }
}

#[test]
fn pods_are_listed_by_node_or_by_name() {
    let refused = Err("can only list/watch pods with spec.nodeName field selector");
    for verb in ["list", "watch"] {
        check_with(verb, "pods", &[("spec.nodeName", "n")], ALLOWED);
        check_with(verb, "ns/pods", &[("status.phase", "x"), ("spec.nodeName", "n")], ALLOWED);
        check_with(verb, "pods", &[("spec.nodeName", "m")], refused);
        check(verb, "pods", refused);
        check_with(verb, "ns/pods", &[("metadata.name", "p")], ALLOWED);
        check_with(verb, "ns/pods", &[("metadata.name", "q")], UNRELATED);
    }
    check_with("deletecollection", "pods", &[("spec.nodeName", "n")], Err(""));
}

#[test]
fn a_node_reads_and_writes_itself() {
    for verb in ["get", "list", "watch", "update", "patch"] {
        check(verb, "nodes:n", ALLOWED);
    }
    check("create", "nodes", ALLOWED);
    check_with("watch", "nodes", &[("metadata.name", "n")], ALLOWED);
    for verb in ["get", "update", "patch"] {
        check(verb, "nodes/status:n", ALLOWED);
        check(verb, "nodes/status:m", Err("node \"n\" is not allowed to modify node \"m\""));
    }
    check("get", "nodes:m", Err("node 'n' cannot read 'm', only its own Node object"));
    check("list", "nodes", Err("node 'n' cannot read all nodes, only its own Node object"));
    for verb in ["update", "patch", "create"] {
        check(verb, "nodes:m", Err("node \"n\" is not allowed to modify node \"m\""));
    }
    check("delete", "nodes:n", Err(""));
    check("get", "nodes/proxy:n", Err(""));
    for node in ["n", "m"] {
        check("get", &format!("nodes/trace:{node}"), Err(""));
    }
}

#[test]
fn a_node_renews_its_own_lease() {
    let lease = |name: &str| format!("kube-node-lease/leases.coordination.k8s.io:{name}");
    for verb in ["get", "create", "update", "patch", "delete"] {
        check(verb, &lease("n"), ALLOWED);
        check(
            verb,
            &lease("m"),
            Err("can only access node lease with the same name as the requesting node"),
        );
        check(
            verb,
            "ns/leases.coordination.k8s.io:n",
            Err("can only access leases in the \"kube-node-lease\" system namespace"),
        );
    }
    check("create", "kube-node-lease/leases.coordination.k8s.io", ALLOWED);
    for verb in ["list", "watch", "deletecollection"] {
        check(
            verb,
            &lease("n"),
            Err("can only get, create, update, patch, or delete a node lease"),
        );
    }
}

#[test]
fn a_node_tells_of_its_own_drivers_op_43() {
    let csi_node = |name: &str| format!("csinodes.storage.k8s.io:{name}");
    for verb in ["get", "create", "update", "patch", "delete"] {
        check(verb, &csi_node("n"), ALLOWED);
        check(
            verb,
            &csi_node("m"),
            Err("can only access CSINode with the same name as the requesting node"),
        );
    }
    check("create", "csinodes.storage.k8s.io", ALLOWED);
    for verb in ["list", "watch", "deletecollection"] {
        check(
            verb,
            "csinodes.storage.k8s.io",
            Err("can only get, create, update, patch, or delete a CSINode"),
        );
    }
    check(
        "update",
        "csinodes.storage.k8s.io/status:n",
        Err("cannot authorize CSINode subresources"),
    );
}

#[test]
fn events_reviews_and_drivers_are_for_every_node() {
    for target in ["ns/events", "ns/events.events.k8s.io"] {
        for verb in ["create", "update", "patch"] {
            check(verb, target, ALLOWED);
        }
        for verb in ["get", "list", "watch", "delete"] {
            check(verb, target, Err(""));
        }
    }
    check("create", "tokenreviews.authentication.k8s.io", ALLOWED);
    check("create", "subjectaccessreviews.authorization.k8s.io", ALLOWED);
    check("create", "ns/localsubjectaccessreviews.authorization.k8s.io", ALLOWED);
    for verb in ["get", "list", "watch"] {
        check(verb, "csidrivers.storage.k8s.io", ALLOWED);
    }
    check("create", "csidrivers.storage.k8s.io", Err(""));
    check("get", "csidrivers.storage.k8s.io/status:d", Err(""));
    check("list", "namespaces", Err(""));
    check("list", "clusterroles.rbac.authorization.k8s.io", Err(""));
    assert!(!graph().node_may("n", &path("get", "/metrics"), &[]).is_allowed());
}

#[test]
fn the_keys_of_exec_sessions_are_for_every_node() {
    let may = |verb: &str, url: &str| graph().node_may("n", &path(verb, url), &[]).is_allowed();
    assert!(may("get", SESSION_KEYS_PATH));
    assert!(!may("post", SESSION_KEYS_PATH));
    assert!(!may("get", &format!("{SESSION_KEYS_PATH}/x")));
}
