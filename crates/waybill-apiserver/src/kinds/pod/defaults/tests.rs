//! A real manifest before and after, and laws over generated pods.

use proptest::prelude::*;

use super::*;
use crate::kinds::{
    Kind as _,
    pod::Pod,
    testing::{context, defaulted},
};

#[track_caller]
fn check_policy(image: &str, expected: &str) {
    assert_eq!(pull_policy(image), expected, "{image}");
}

#[test]
fn a_whole_pod_requests_what_its_containers_do_or_what_it_may_use() {
    let spec = json!({
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "0.5"}}}],
        "resources": {"limits": {"cpu": "2.0", "memory": "1024Mi"}},
    });
    let pod = defaulted(&Pod, &json!({"spec": spec}));
    let expected = json!({
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    });
    assert_eq!(pod["spec"]["resources"], expected);
}

#[test]
fn a_negative_grace_period_is_a_second() {
    let grace = |asked: i64| {
        let spec = json!({"containers": [], "terminationGracePeriodSeconds": asked});
        defaulted(&Pod, &json!({"spec": spec}))["spec"]["terminationGracePeriodSeconds"].clone()
    };
    assert_eq!(grace(-1), 1);
    assert_eq!(grace(i64::MIN), 1);
    assert_eq!(grace(0), 0);
}

#[test]
fn moving_tags_are_pulled_always() {
    for image in ["busybox", "busybox:latest", "r.io:5000/busybox", "a/b/c", ""] {
        check_policy(image, "Always");
    }
    for image in ["busybox:1", "r.io:5000/b:v1", "b@sha256:00", "b:latest@sha256:00"] {
        check_policy(image, "IfNotPresent");
    }
}

/// A manifest as people write it, and what the server makes of it.
#[test]
fn a_real_manifest_is_filled() {
    let manifest: Value = serde_json::from_str(include_str!("manifest.json")).unwrap();
    let mut pod = defaulted(&Pod, &manifest);
    Pod.prepare_create(&mut pod, &context());
    let golden: Value = serde_json::from_str(include_str!("filled.json")).unwrap();
    assert_eq!(pod, golden, "{pod:#}");
    assert_eq!(Pod.validate_create(&pod, &context()), []);
}

#[test]
fn a_pod_that_tolerates_everything_gets_no_more_tolerations() {
    let mut spec = json!({"tolerations": [{"operator": "Exists"}]});
    fill_tolerations(&mut spec);
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 1);
    let mut spec = json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator":
        "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]});
    fill_tolerations(&mut spec);
    fill_tolerations(&mut spec);
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
}

#[test]
fn critical_pods_have_their_priority() {
    let mut spec = json!({"priorityClassName": "system-node-critical"});
    fill_priority(&mut spec);
    assert_eq!(spec["priority"], 2_000_001_000);
}

/// Any document, with the names that defaulting looks for.
fn any_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..70000).prop_map(Value::from),
        "(|a|Always|1Gi|0.5|b:latest|Exists|NoExecute|metadata.name)".prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 200, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(field_name(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn field_name() -> impl Strategy<Value = String> {
    const NAMES: &[&str] = &[
        "metadata",
        "spec",
        "containers",
        "initContainers",
        "ephemeralContainers",
        "volumes",
        "name",
        "image",
        "env",
        "valueFrom",
        "fieldRef",
        "ports",
        "containerPort",
        "hostPort",
        "resources",
        "limits",
        "requests",
        "cpu",
        "livenessProbe",
        "httpGet",
        "exec",
        "command",
        "lifecycle",
        "preStop",
        "secret",
        "items",
        "projected",
        "sources",
        "hostPath",
        "hostNetwork",
        "tolerations",
        "key",
        "operator",
        "effect",
        "securityContext",
        "status",
        "schedulingGates",
        "volumeMounts",
        "labels",
        "ownerReferences",
        "finalizers",
    ];
    proptest::sample::select(NAMES).prop_map(str::to_owned)
}

/// A pod of the right shape down to its containers.
fn any_pod() -> impl Strategy<Value = Value> {
    let list = || proptest::collection::vec(any_document(), 0..3);
    (list(), list(), list(), any_document()).prop_map(|(containers, init, volumes, spec)| {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        if !pod["spec"].is_object() {
            pod["spec"] = json!({});
        }
        pod["spec"]["containers"] = containers.into();
        pod["spec"]["initContainers"] = init.into();
        pod["spec"]["volumes"] = volumes.into();
        pod
    })
}

proptest! {
    #[test]
    fn defaulting_twice_is_defaulting_once(pod in any_pod()) {
        defaulted(&Pod, &pod);
    }

    #[test]
    fn no_document_makes_a_kind_panic(new in any_document(), old in any_pod()) {
        for kind in crate::registry::RESOURCES.iter().filter_map(|resource| resource.rules) {
            for (new, old) in [(&new, &old), (&old, &new), (&new, &new)] {
                let mut object = new.clone();
                kind.default(&mut object);
                kind.prepare_create(&mut object, &context());
                kind.validate_create(&object, &context());
                kind.prepare_update(&mut object, old, &context());
                kind.validate_update(&object, old, &context());
                kind.prepare_status_update(&mut object, old);
                kind.validate_status_update(&object, old, &context());
                kind.warnings(&object, &context());
            }
        }
    }
}
