//! Tables of changes, and the errors they earn.

use serde_json::{Value, json};

use super::super::{Pod, testing::pod};
use crate::kinds::testing::check_update;

#[track_caller]
fn check(old: &Value, new: &Value, expected: &[&str]) {
    check_update(&Pod, &pod(new), &pod(old), expected);
}

#[test]
fn images_deadlines_and_tolerations_may_change() {
    check(&json!({}), &json!({}), &[]);
    check(&json!({}), &json!({"containers": [{"name": "c", "image": "j"}]}), &[]);
    check(&json!({}), &json!({"activeDeadlineSeconds": 5}), &[]);
    check(&json!({"activeDeadlineSeconds": 5}), &json!({"activeDeadlineSeconds": 4}), &[]);
    check(&json!({}), &json!({"tolerations": [{"key": "a", "operator": "Exists"}]}), &[]);
    check(
        &json!({"terminationGracePeriodSeconds": -1}),
        &json!({"terminationGracePeriodSeconds": 1}),
        &[],
    );
    let gate = |names: &[&str]| {
        let gates: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"schedulingGates": gates})
    };
    check(&gate(&["a", "b"]), &gate(&["b"]), &[]);
    check(&gate(&["a"]), &gate(&[]), &[]);
    check(
        &gate(&["a"]),
        &gate(&["b"]),
        &["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new sched"],
    );
}

#[test]
fn a_pod_that_is_held_back_may_narrow_its_nodes() {
    let held =
        |selector: Value| json!({"schedulingGates": [{"name": "a"}], "nodeSelector": selector});
    check(&held(json!({"a": "b"})), &held(json!({"a": "b", "c": "d"})), &[]);
    check(
        &held(json!({"a": "b"})),
        &held(json!({"a": "c"})),
        &["spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector"],
    );
}

#[test]
fn the_mark_of_a_mirror_pod_stays() {
    let marked = |mark: Value| {
        let mut pod = pod(&json!({"nodeName": "n"}));
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": mark});
        pod
    };
    let at = "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not";
    check_update(&Pod, &marked(json!("x")), &marked(json!("x")), &[]);
    let (added, changed) = (format!("{at} add mirror"), format!("{at} remove or update mirror"));
    check_update(&Pod, &marked(json!("x")), &marked(json!(null)), &[&added]);
    check_update(&Pod, &marked(json!("y")), &marked(json!("x")), &[&changed]);
}

#[test]
fn nothing_else_may_change() {
    let refused = "spec: Forbidden: pod updates may not change fields other than \
        `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
        `spec.tolerations` (only additions to existing tolerations),";
    check(&json!({}), &json!({"nodeName": "n"}), &[refused]);
    check(&json!({}), &json!({"hostNetwork": true}), &[refused]);
    check(&json!({}), &json!({"terminationGracePeriodSeconds": 1}), &[refused]);
    check(&json!({}), &json!({"automountServiceAccountToken": false}), &[refused]);
    let variable = json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "A"}]}]});
    check(&json!({}), &variable, &[refused]);
    check(
        &json!({}),
        &json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}),
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    check(
        &json!({"activeDeadlineSeconds": 5}),
        &json!({"activeDeadlineSeconds": 6}),
        &["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous v"],
    );
    check(
        &json!({"activeDeadlineSeconds": 5}),
        &json!({}),
        &["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integ"],
    );
    check(
        &json!({"tolerations": [{"key": "a", "operator": "Exists"}]}),
        &json!({}),
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolera"],
    );
}

#[test]
fn nothing_may_be_said_in_other_words() {
    check(&json!({"hostNetwork": false, "volumes": []}), &json!({"nodeName": ""}), &[]);
    let cpu = |amount: Value| {
        json!({"containers": [{"name": "c", "image": "i", "tty": false,
        "resources": {"limits": {"cpu": amount}}}]})
    };
    check(&cpu(json!("1000m")), &cpu(json!(1)), &[]);
}
