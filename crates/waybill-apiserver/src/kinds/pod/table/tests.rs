//! The status column of pods, as users know it.

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// Checks READY, STATUS and RESTARTS of a pod with two containers and one init container.
#[track_caller]
fn check(status: &Value, expected: [&str; 3]) {
    check_pod(
        &json!({
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
            "status": status,
        }),
        expected,
    );
}

#[track_caller]
fn check_pod(pod: &Value, expected: [&str; 3]) {
    let cells = cells(pod, now());
    assert_eq!(cells[1..4], expected.map(Value::from), "{pod}");
}

fn running() -> Value {
    json!({"ready": true, "restartCount": 0, "state": {"running": {}}})
}

fn waiting(reason: &str) -> Value {
    json!({"ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
}

fn ended(reason: &str, exit_code: i64, signal: i64) -> Value {
    let ended = json!({"reason": reason, "exitCode": exit_code, "signal": signal});
    json!({"ready": false, "restartCount": 0, "state": {"terminated": ended}})
}

#[test]
fn phases_and_reasons() {
    check(&json!({"phase": "Pending"}), ["0/2", "Pending", "0"]);
    check(&json!({"phase": "Failed", "reason": "Evicted"}), ["0/2", "Evicted", "0"]);
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    check(&json!({"phase": "Pending", "conditions": gated}), ["0/2", "SchedulingGated", "0"]);
}

#[test]
fn containers_decide_once_there_are_any() {
    let status = |a: Value, b: Value| json!({"phase": "Running", "containerStatuses": [a, b]});
    check(&status(running(), running()), ["2/2", "Running", "0"]);
    check(&status(running(), waiting("CrashLoopBackOff")), ["1/2", "CrashLoopBackOff", "0"]);
    check(
        &status(waiting("ImagePullBackOff"), ended("Error", 1, 0)),
        ["0/2", "ImagePullBackOff", "0"],
    );
    check(&status(waiting("ContainerCreating"), running()), ["1/2", "ContainerCreating", "0"]);
    check(&status(running(), ended("Error", 1, 0)), ["1/2", "Error", "0"]);
    check(&status(ended("OOMKilled", 137, 0), running()), ["1/2", "OOMKilled", "0"]);
    check(&status(ended("", 1, 0), running()), ["1/2", "ExitCode:1", "0"]);
    check(&status(ended("", 137, 9), running()), ["1/2", "Signal:9", "0"]);
    check(&status(ended("Completed", 0, 0), ended("Completed", 0, 0)), ["0/2", "Completed", "0"]);
}

#[test]
fn a_pod_with_one_container_done_runs_or_is_not_ready() {
    let status = |ready: &str| {
        json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [ended("Completed", 0, 0), running()],
        })
    };
    check(&status("True"), ["1/2", "Running", "0"]);
    check(&status("False"), ["1/2", "NotReady", "0"]);
}

#[test]
fn init_containers_come_first() {
    let status = |init: Value| {
        json!({
            "phase": "Pending",
            "initContainerStatuses": [init],
            "containerStatuses": [waiting("PodInitializing"), waiting("PodInitializing")],
        })
    };
    check(&status(json!({"state": {"running": {}}})), ["0/2", "Init:0/1", "0"]);
    check(&status(waiting("PodInitializing")), ["0/2", "Init:0/1", "0"]);
    check(&status(waiting("CrashLoopBackOff")), ["0/2", "Init:CrashLoopBackOff", "0"]);
    check(&status(ended("Error", 1, 0)), ["0/2", "Init:Error", "0"]);
    check(&status(ended("", 1, 0)), ["0/2", "Init:ExitCode:1", "0"]);
    check(&status(ended("", 137, 9)), ["0/2", "Init:Signal:9", "0"]);
    check(&status(ended("Completed", 0, 0)), ["0/2", "PodInitializing", "0"]);
}

#[test]
fn sidecars_count_as_containers_once_started() {
    let pod = |init: Value| {
        json!({
            "spec": {
                "containers": [{"name": "a"}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [init],
                "containerStatuses": [running()],
            },
        })
    };
    let sidecar = json!({
        "name": "s", "started": true, "ready": true, "restartCount": 2, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}},
    });
    check_pod(&pod(sidecar), ["2/2", "Running", "2 (5m ago)"]);
    let starting = json!({"name": "s", "started": false, "state": {"running": {}}});
    check_pod(&pod(starting), ["0/2", "Init:0/1", "0"]);
}

#[test]
fn restarts_tell_when_the_last_one_was() {
    let crashed = |count: i64, at: &str| {
        json!({
            "ready": true, "restartCount": count, "state": {"running": {}},
            "lastState": {"terminated": {"finishedAt": at}},
        })
    };
    check(
        &json!({"phase": "Running", "containerStatuses": [
            crashed(3, "2026-01-01T00:50:00Z"), crashed(1, "2026-01-01T00:55:00Z"),
        ]}),
        ["2/2", "Running", "4 (5m ago)"],
    );
    check(
        &json!({"phase": "Running", "containerStatuses": [crashed(3, ""), running()]}),
        ["2/2", "Running", "3"],
    );
}

#[test]
fn deletion_shows_unless_the_pod_has_ended() {
    let deleted = |status: Value| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:59:00Z"}, "status": status});
    check_pod(&deleted(json!({"phase": "Running"})), ["0/0", "Terminating", "0"]);
    check_pod(&deleted(json!({"phase": "Succeeded"})), ["0/0", "Succeeded", "0"]);
    check_pod(&deleted(json!({"phase": "Running", "reason": "NodeLost"})), ["0/0", "Unknown", "0"]);
}

#[test]
fn wide_columns() {
    let pod = json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
        "status": {
            "podIP": "10.0.0.9",
            "conditions": [{"type": "x", "status": "True"}, {"type": "y", "status": "False"}],
        },
    });
    let cells = cells(&pod, now());
    assert_eq!(cells[4..], ["60m", "10.0.0.9", "n1", "<none>", "1/2"].map(Value::from));
}
