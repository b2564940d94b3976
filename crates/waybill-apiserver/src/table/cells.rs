//! The cells of objects; the larger ones have files of their own.

use jiff::Timestamp;
use serde_json::{Map, Value};
use waybill_core::provider::ALLOWED_NAMESPACES;

use super::{
    age::since,
    read::{flag, joined, list, map, text, text_or, time},
};
pub(crate) use super::{
    event::cells as event,
    node::cells as node,
    pod::{cells as pod, row_conditions as pod_conditions},
};

/// The cells of an object that has nothing but a name.
pub(crate) fn plain(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

pub(crate) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), config_map_size(object), age(object, now)]
}

pub(crate) fn csi_node(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), list(object, "/spec/drivers").len().into(), age(object, now)]
}

pub(crate) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/spec/holderIdentity").into(), age(object, now)]
}

pub(crate) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/status/phase").into(), age(object, now)]
}

pub(crate) fn role(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), created_at(object)]
}

pub(crate) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(time(object, "/metadata/creationTimestamp"), now).into()
}

fn created_at(object: &Value) -> Value {
    text(object, "/metadata/creationTimestamp").into()
}

fn config_map_size(object: &Value) -> Value {
    (size(map(object, "/data")) + size(map(object, "/binaryData"))).into()
}

pub(crate) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = size(map(object, "/data"));
    vec![name(object), text(object, "/type").into(), entries.into(), age(object, now)]
}

pub(crate) fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| -> Value {
        let of_kind =
            list(object, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
        let names = of_kind.map(|subject| match kind {
            "ServiceAccount" => {
                format!("{}/{}", text(subject, "/namespace"), text(subject, "/name"))
            }
            _ => text(subject, "/name").to_owned(),
        });
        names.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        name(object),
        role.into(),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(crate) fn pod_template(object: &Value, _now: Timestamp) -> Vec<Value> {
    let containers = list(object, "/template/spec/containers");
    vec![
        name(object),
        joined(containers, "/name", ",").into(),
        joined(containers, "/image", ",").into(),
        labels(map(object, "/template/metadata/labels")).into(),
    ]
}

pub(crate) fn csi_driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let attach_required =
        object.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
    let audiences = match object.pointer("/spec/tokenRequests") {
        Some(Value::Array(requests)) => joined(requests, "/audience", ","),
        _ => "<unset>".to_owned(),
    };
    let modes: Vec<_> =
        list(object, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    let modes = if modes.is_empty() { "<none>".to_owned() } else { modes.join(",") };
    vec![
        name(object),
        attach_required.into(),
        flag(object, "/spec/podInfoOnMount").into(),
        flag(object, "/spec/storageCapacity").into(),
        audiences.into(),
        flag(object, "/spec/requiresRepublish").into(),
        modes.into(),
        age(object, now),
    ]
}

pub(crate) fn provider_class(object: &Value, now: Timestamp) -> Vec<Value> {
    // A class that names no namespaces serves them all.
    let namespaces = text_or(object, &format!("/spec/parameters/{ALLOWED_NAMESPACES}"), "*");
    vec![
        name(object),
        text(object, "/spec/driver").into(),
        namespaces.to_owned().into(),
        age(object, now),
    ]
}

/// Labels as `kubectl` prints them.
fn labels(labels: Option<&Map<String, Value>>) -> String {
    let mut pairs: Vec<_> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

fn size(entries: Option<&Map<String, Value>>) -> usize {
    entries.map_or(0, Map::len)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::named;

    #[track_caller]
    fn check(resource: &str, object: &Value, expected: &Value) {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let mut object = object.clone();
        object["metadata"] = json!({"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(
            &Value::from((named(resource).table.cells)(&object, now)),
            expected,
            "{resource}"
        );
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
        check(
            "namespaces",
            &json!({"status": {"phase": "Active"}}),
            &json!(["n", "Active", "60m"]),
        );
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
}
