//! The rows of small kinds.

use serde_json::{Value, json};

use crate::registry::named;

#[track_caller]
fn check(resource: &str, object: &Value, expected: &Value) {
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    let mut object = object.clone();
    object["metadata"] = json!({"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(&Value::from((named(resource).table.cells)(&object, now)), expected, "{resource}");
}

#[test]
fn small_kinds() {
    check("serviceaccounts", &json!({"secrets": [{}]}), &json!(["n", "60m"]));
    check("roles", &json!({}), &json!(["n", "2026-01-01T00:00:00Z"]));
    check(
        "configmaps",
        &json!({"data": {"a": "", "b": ""}, "binaryData": {"c": ""}}),
        &json!(["n", 3, "60m"]),
    );
    check(
        "secrets",
        &json!({"type": "Opaque", "data": {"a": ""}}),
        &json!(["n", "Opaque", 1, "60m"]),
    );
    check("namespaces", &json!({"status": {"phase": "Active"}}), &json!(["n", "Active", "60m"]));
    check("leases", &json!({"spec": {"holderIdentity": "h"}}), &json!(["n", "h", "60m"]));
    check(
        "providerclasses",
        &json!({"spec": {"driver": "d", "parameters": {"allowedNamespaces": "a,b"}}}),
        &json!(["n", "d", "a,b", "60m"]),
    );
    check("csinodes", &json!({"spec": {"drivers": [{"name": "d"}]}}), &json!(["n", 1, "60m"]));
    check("providerclasses", &json!({"spec": {}}), &json!(["n", "", "*", "60m"]));
}

#[test]
fn bindings_list_their_subjects_by_kind() {
    check(
        "rolebindings",
        &json!({
            "roleRef": {"kind": "ClusterRole", "name": "admin"},
            "subjects": [
                {"kind": "User", "name": "u"},
                {"kind": "User", "name": "v"},
                {"kind": "Group", "name": "g"},
                {"kind": "ServiceAccount", "namespace": "ns", "name": "s"},
            ],
        }),
        &json!(["n", "ClusterRole/admin", "60m", "u, v", "g", "ns/s"]),
    );
}

#[test]
fn pod_templates_and_drivers() {
    check(
        "podtemplates",
        &json!({"template": {
            "metadata": {"labels": {"b": "2", "a": "1"}},
            "spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "j"}]},
        }}),
        &json!(["n", "x,y", "i,j", "a=1,b=2"]),
    );
    check(
        "csidrivers",
        &json!({"spec": {"volumeLifecycleModes": ["Persistent", "Ephemeral"]}}),
        &json!(["n", true, false, false, "<unset>", false, "Persistent,Ephemeral", "60m"]),
    );
    check(
        "csidrivers",
        &json!({"spec": {"attachRequired": false, "tokenRequests": [{"audience": "a"}]}}),
        &json!(["n", false, false, false, "a", false, "<none>", "60m"]),
    );
}
