//! Small pods for tests.

use serde_json::{Value, json};

use super::Pod;
use crate::kinds::testing::check_create;

/// A good pod whose spec is overlaid with `fields`.
pub(super) fn pod(fields: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (key, value) in fields.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// A pod is created with `fields` in its spec.
#[track_caller]
pub(super) fn check_spec(fields: &Value, expected: &[&str]) {
    check_create(&Pod, &pod(fields), expected);
}

/// A pod is created with `fields` in its one container.
#[track_caller]
pub(super) fn check_container(fields: &Value, expected: &[&str]) {
    let mut container = json!({"name": "c", "image": "i"});
    for (key, value) in fields.as_object().unwrap() {
        container[key] = value.clone();
    }
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    check_spec(&json!({"containers": [container], "volumes": volumes}), expected);
}
