//! What a resize may change, and what it may not.

use serde_json::json;

use super::{super::testing::pod, *};
use crate::kinds::testing::{check_errors, context};

/// A pod of which a container, a sidecar and an init container have resources, and which runs.
fn running() -> Value {
    let resources = json!({"requests": {"cpu": "100m", "memory": "32Mi", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "200m", "memory": "64Mi"}});
    let container = |name: &str| json!({"name": name, "image": "i", "resources": resources});
    let mut sidecar = container("sidecar");
    sidecar["restartPolicy"] = "Always".into();
    let mut pod = pod(&json!({
        "initContainers": [container("init"), sidecar],
        "containers": [container("c"), {"name": "bare", "image": "i"}],
    }));
    pod["metadata"]["resourceVersion"] = "1".into();
    pod["metadata"]["generation"] = 1.into();
    pod["status"] = json!({"qosClass": "Burstable", "containerStatuses": [
        {"name": "c", "state": {"running": {}}, "resources": {"limits": {"cpu": "200m"}}}]});
    Pod.default(&mut pod);
    pod
}

/// What is wrong with a resize from `old` to `new`.
fn resize(old: &Value, new: &Value) -> (Value, ErrorList) {
    let mut resized = new.clone();
    prepare_resize(&mut resized, old, &context());
    let errors = validate_resize(&resized, old);
    (resized, errors)
}

/// What is wrong with a running pod of which `change` changes something.
#[track_caller]
fn check(change: impl Fn(&mut Value), expected: &[&str]) {
    let old = running();
    let mut new = old.clone();
    change(&mut new);
    check_errors(&resize(&old, &new).1, expected);
}

#[test]
fn processors_and_memory_of_containers_and_sidecars_change() {
    let old = running();
    for (list, at) in [("containers", 0), ("containers", 1), ("initContainers", 1)] {
        let mut new = old.clone();
        let resources = &mut new["spec"][list][at]["resources"];
        resources["limits"] = json!({"cpu": "2", "memory": "48Mi"});
        resources["requests"]["cpu"] = "1".into();
        // The same in other words.
        if at == 0 {
            resources["requests"]["ephemeral-storage"] = "1024Mi".into();
        }
        let (resized, errors) = resize(&old, &new);
        check_errors(&errors, &[]);
        assert_eq!(resized["spec"][list][at]["resources"]["limits"]["memory"], "48Mi");
        assert_eq!(resized["metadata"]["generation"], 2);
    }
}

#[test]
fn nothing_else_of_the_pod_changes() {
    let old = running();
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    new["metadata"]["annotations"] = json!({"a": "b"});
    new["metadata"]["finalizers"] = json!(["a/b"]);
    new["spec"]["nodeName"] = "elsewhere".into();
    new["spec"]["containers"][0]["image"] = "other".into();
    new["spec"]["initContainers"][1]["restartPolicy"] = "Never".into();
    new["status"] = json!({"phase": "Failed"});
    let (resized, errors) = resize(&old, &new);
    check_errors(&errors, &[]);
    assert!(same(&resized, &old));
}

#[test]
fn requests_and_limits_stay() {
    let at = "spec.containers[0].resources";
    check(
        |pod| drop(pod["spec"]["containers"][0].as_object_mut().unwrap().remove("resources")),
        &[
            &format!("{at}.requests: Forbidden: resource requests cannot be removed"),
            &format!("{at}.limits: Forbidden: resource limits cannot be removed"),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ],
    );
    check(
        |pod| pod["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "1"}),
        &[&format!("{at}.limits: Forbidden: resource limits cannot be removed")],
    );
}

#[test]
fn other_resources_the_policy_and_what_runs_before_stay() {
    check(
        |pod| pod["spec"]["containers"][1]["resources"]["limits"]["ephemeral-storage"] = "1".into(),
        &["spec: Forbidden: only cpu and memory resources are mutable"],
    );
    check(
        |pod| {
            let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
            pod["spec"]["initContainers"][1]["resizePolicy"] = policy;
        },
        &["spec: Forbidden: only cpu and memory resources for sidecar containers are mutable"],
    );
    check(
        |pod| pod["spec"]["initContainers"][0]["resources"]["limits"]["cpu"] = "1".into(),
        &["spec: Forbidden: resources for non-sidecar init containers are immutable"],
    );
}

#[test]
fn the_quality_of_service_stays() {
    let old = {
        let mut pod = running();
        pod["spec"]["initContainers"] = json!([]);
        let all = json!({"cpu": "1", "memory": "64Mi"});
        pod["spec"]["containers"] =
            json!([{"name": "c", "image": "i", "resources": {"requests": all, "limits": all}}]);
        pod["status"]["qosClass"] = "Guaranteed".into();
        Pod.default(&mut pod);
        pod
    };
    let mut new = old.clone();
    new["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2".into();
    let refused = "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result";
    check_errors(&resize(&old, &new).1, &[refused]);
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
    check_errors(&resize(&old, &new).1, &[]);
}

#[test]
fn containers_stay_who_they_are() {
    let renamed = |at| {
        format!("spec.containers[{at}].name: Forbidden: containers may not be renamed or reordered")
    };
    check(
        |pod| pod["spec"]["containers"].as_array_mut().unwrap().reverse(),
        &[&renamed(0), &renamed(1)],
    );
    check(
        |pod| drop(pod["spec"]["initContainers"].as_array_mut().unwrap().pop()),
        &["spec.initContainers: Forbidden: initContainers may not be added or removed on resize"],
    );
    check(|pod| pod["spec"]["containers"][0]["name"] = "d".into(), &[&renamed(0)]);
}

#[test]
fn some_pods_are_never_resized() {
    let check = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut old = running();
        change(&mut old);
        let mut new = old.clone();
        new["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1".into();
        check_errors(&resize(&old, &new).1, &[expected]);
    };
    check(
        &|pod| pod["metadata"]["annotations"] = json!({MIRROR: "x"}),
        ": Forbidden: static pods cannot be resized",
    );
    check(
        &|pod| pod["spec"]["os"] = json!({"name": "windows"}),
        ": Forbidden: windows pods cannot be resized",
    );
    check(
        &|pod| pod["spec"]["resources"] = json!({"limits": {"cpu": "4"}}),
        ": Forbidden: pods with pod-level resources cannot be resized",
    );
    check(
        &|pod| {
            let status = &mut pod["status"]["containerStatuses"][0];
            status.as_object_mut().unwrap().remove("resources");
        },
        "spec: Forbidden: Pod running on node without support for resize",
    );
}

#[test]
fn documents_of_any_shape_are_judged() {
    let old = running();
    for odd in [json!(null), json!({"spec": 5}), json!({"spec": {"containers": {"a": 1}}})] {
        let (_, errors) = resize(&old, &odd);
        assert!(!errors.is_empty(), "{odd}");
    }
}
