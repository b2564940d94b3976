//! Tables of metadata, and the errors they earn.

use serde_json::json;

use super::*;

const SHAPE: Shape = Shape::NAMESPACED;

fn texts(errors: &ErrorList) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// `metadata` besides a good name and namespace.
#[track_caller]
fn check(metadata: &Value, expected: &[&str]) {
    let mut document = json!({"metadata": {"name": "a", "namespace": "n"}});
    for (key, value) in metadata.as_object().unwrap() {
        document["metadata"][key] = value.clone();
    }
    let found = texts(&validate_create(SHAPE, &document));
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[track_caller]
fn check_update(new: &Value, old: &Value, expected: &[&str]) {
    let base = |more: &Value| {
        let mut document = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}});
        for (key, value) in more.as_object().unwrap() {
            document["metadata"][key] = value.clone();
        }
        document
    };
    assert_eq!(texts(&validate_update(&base(new), &base(old))), expected);
}

#[test]
fn names_and_namespaces() {
    check(&json!({}), &[]);
    check(
        &json!({"name": ""}),
        &["metadata.name: Required value: name or generateName is required"],
    );
    check(
        &json!({"name": "A"}),
        &["metadata.name: Invalid value: \"A\": a lowercase RFC 1123 sub"],
    );
    check(&json!({"generateName": "a-"}), &[]);
    check(
        &json!({"generateName": "AB-"}),
        &["metadata.generateName: Invalid value: \"AB-\": a low"],
    );
    check(&json!({"namespace": null}), &["metadata.namespace: Required value"]);
    check(&json!({"namespace": "a.b"}), &["metadata.namespace: Invalid value: \"a.b\": must not"]);
    let cluster = Shape { scope: Scope::Cluster, ..SHAPE };
    let document = json!({"metadata": {"name": "a", "namespace": "n"}});
    assert_eq!(
        texts(&validate_create(cluster, &document)),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
}

#[test]
fn labels_and_annotations() {
    check(&json!({"labels": {"app": "a", "example.com/b": ""}}), &[]);
    check(
        &json!({"labels": {"a b": "c"}}),
        &["metadata.labels: Invalid value: \"a b\": name part"],
    );
    check(
        &json!({"labels": {"a": "-"}}),
        &["metadata.labels[a]: Invalid value: \"-\": a valid label must be an empty string or"],
    );
    check(&json!({"annotations": {"Example.com/B": "any thing"}}), &[]);
    check(
        &json!({"annotations": {"a/b/c": ""}}),
        &["metadata.annotations: Invalid value: \"a/b/c"],
    );
    check(
        &json!({"annotations": {"a": "x".repeat(256 << 10)}}),
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
    check(&json!({"annotations": {"a": "x".repeat((256 << 10) - 1)}}), &[]);
}

#[test]
fn owners() {
    let owner = |version: &str, kind: &str| {
        json!({
        "apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": true})
    };
    check(&json!({"ownerReferences": [owner("apps/v1", "ReplicaSet")]}), &[]);
    check(
        &json!({"ownerReferences": [{}]}),
        &[
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ],
    );
    let event = validate_create(
        SHAPE,
        &json!({"metadata": {"name": "a", "namespace": "n", "ownerReferences":
            [owner("v1", "Event"), owner("v1", "Pod")]}}),
    );
    assert!(event[0].to_string().ends_with("/v1, Kind=Event is disallowed from being an owner"));
    assert!(event[1].to_string().ends_with("in references for Event/o and Pod/o"));
}

#[test]
fn finalizers() {
    check(&json!({"finalizers": ["kubernetes", "example.com/a"]}), &[]);
    check(
        &json!({"finalizers": ["mine"]}),
        &["metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer"],
    );
    check(
        &json!({"finalizers": ["orphan", "foregroundDeletion"]}),
        &[
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan",
        ],
    );
}

#[test]
fn updates_change_nothing_that_identifies_an_object() {
    check_update(&json!({}), &json!({}), &[]);
    check_update(&json!({"labels": {"a": "b"}}), &json!({}), &[]);
    check_update(
        &json!({"name": "b", "namespace": "m", "uid": "v"}),
        &json!({}),
        &[
            "metadata.name: Invalid value: \"b\": field is immutable",
            "metadata.namespace: Invalid value: \"m\": field is immutable",
            "metadata.uid: Invalid value: \"v\": field is immutable",
        ],
    );
    check_update(
        &json!({"deletionTimestamp": "t"}),
        &json!({}),
        &["metadata.deletionTimestamp: Invalid value: \"t\": field is immutable"],
    );
    check_update(
        &json!({"resourceVersion": ""}),
        &json!({}),
        &["metadata.resourceVersion: Invalid value: \"\": must be specified for an update"],
    );
    check_update(
        &json!({"generation": 1}),
        &json!({"generation": 2}),
        &["metadata.generation: Invalid value: 1: must not be decremented"],
    );
}

#[test]
fn an_object_on_its_way_out_takes_no_new_finalizers() {
    let old = json!({"deletionTimestamp": "t", "finalizers": ["a/b", "c/d"]});
    check_update(&json!({"deletionTimestamp": "t", "finalizers": ["c/d"]}), &old, &[]);
    check_update(
        &json!({"deletionTimestamp": "t", "finalizers": ["c/d", "e/f"]}),
        &old,
        &["metadata.finalizers: Forbidden: no new finalizers can be added if the object is being \
           deleted, found new finalizers []string{\"e/f\"}"],
    );
}
