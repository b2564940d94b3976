//! A pod from its creation to its updates, under different gates.

use waybill_api::{
    gates::{FeatureGate, FeatureGates, KubeVersion},
    pod::EnvOptions,
};

use super::{testing::pod, *};
use crate::kinds::testing::{check_errors, context};

fn with_variable(variable: &Value) -> Value {
    pod(&json!({"containers": [{"name": "c", "image": "i", "env": [variable]}]}))
}

fn at(version: &str) -> Context {
    let gates = FeatureGates::new(KubeVersion::parse(version).unwrap());
    Context { gates, env: EnvOptions::default() }
}

#[track_caller]
fn check_create(context: &Context, object: &Value, expected: &[&str]) {
    let mut object = object.clone();
    Pod.default(&mut object);
    Pod.prepare_create(&mut object, context);
    check_errors(&Pod.validate_create(&object, context), expected);
}

#[track_caller]
fn check_update(context: &Context, new: &Value, old: &Value, expected: &[&str]) {
    let (mut new, mut old) = (new.clone(), old.clone());
    for object in [&mut new, &mut old] {
        Pod.default(object);
        Pod.prepare_create(object, &crate::kinds::testing::context());
        object["metadata"]["resourceVersion"] = "1".into();
    }
    Pod.prepare_update(&mut new, &old, context);
    check_errors(&Pod.validate_update(&new, &old, context), expected);
}

#[test]
fn a_pod_is_born_pending() {
    let mut new = pod(&json!({}));
    new["status"] = json!({"phase": "Running"});
    Pod.default(&mut new);
    Pod.prepare_create(&mut new, &context());
    assert_eq!(new["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(new["metadata"]["generation"], 1);

    let mut gated = pod(&json!({"schedulingGates": [{"name": "a"}]}));
    Pod.prepare_create(&mut gated, &context());
    assert_eq!(gated["status"]["conditions"][0]["reason"], "SchedulingGated");
}

#[test]
fn a_status_update_keeps_spec_and_class() {
    let mut old = pod(&json!({}));
    Pod.prepare_create(&mut old, &context());
    let mut new = old.clone();
    new["spec"]["nodeName"] = "n".into();
    new["status"] = json!({"phase": "Running", "qosClass": "Guaranteed"});
    Pod.prepare_status_update(&mut new, &old);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(new["status"], json!({"phase": "Running", "qosClass": "BestEffort"}));
}

/// NAME-06, NAME-07, NAME-08, NAME-21
#[test]
fn names_follow_the_gate_and_what_is_stored() {
    let relaxed = with_variable(&json!({"name": "a:b", "value": "x"}));
    check_create(&at("1.32"), &relaxed, &[]);
    check_create(
        &at("1.30"),
        &relaxed,
        &["spec.containers[0].env[0].name: Invalid value: \"a:b\": a valid environment variable"],
    );
    let mut labelled = relaxed.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    check_update(&at("1.30"), &labelled, &relaxed, &[]);
}

/// FILE-09
#[test]
fn file_references_are_dropped_while_their_gate_is_off() {
    let mut file = with_variable(&json!({"name": "A", "valueFrom": {"fileKeyRef": {
        "volumeName": "v", "path": "p", "key": "k"}}}));
    file["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    check_create(&context(), &file, &[]);
    let off = Context {
        gates: FeatureGates::new(KubeVersion::NEWEST).with(FeatureGate::EnvFiles, false).unwrap(),
        env: EnvOptions::default(),
    };
    check_create(
        &off,
        &file,
        &["spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: `field"],
    );
    check_update(&off, &file, &file, &[]);
}

/// CSI-10
#[test]
fn csi_references_are_refused_while_their_gate_is_off() {
    let csi = with_variable(&json!({"name": "A", "valueFrom": {"csiSecretRef": {
        "driver": "d.example.com", "providerClassName": "c", "key": "k"}}}));
    check_create(&context(), &csi, &[]);
    check_create(
        &at("1.36"),
        &csi,
        &[
            "spec.containers[0].env[0].valueFrom.csiSecretRef: Forbidden: CSIDirectEnvInjection feat",
        ],
    );
    check_update(&at("1.36"), &csi, &csi, &[]);
}

/// CSI-62: a word of a command stands in `/proc/*/cmdline`.
#[test]
fn fetched_values_in_arguments_need_an_annotation_csi_62() {
    let mut csi = with_variable(&json!({"name": "A", "valueFrom": {"csiSecretRef": {
        "driver": "d.example.com", "providerClassName": "c", "key": "k"}}}));
    csi["spec"]["containers"][0]["args"] = json!(["--token=$(A)"]);
    check_create(
        &context(),
        &csi,
        &["spec.containers[0].args[0]: Forbidden: \"A\" holds a value from a CSI driver, and ever"],
    );
    let mut allowed = csi.clone();
    allowed["metadata"]["annotations"] = json!({"waybill.dev/allow-csi-env-in-args": "true"});
    check_create(&context(), &allowed, &[]);
    // Who takes the annotation away is told by the node when a container starts again.
    check_update(&context(), &csi, &allowed, &[]);
}

#[test]
fn misplaced_texts_are_refused_without_being_repeated() {
    let odd = pod(&json!({"containers": [{"name": "c", "image": "i", "env": "hunter2"}]}));
    let errors = Pod.validate_create(&odd, &context());
    assert!(errors.iter().all(|error| !error.to_string().contains("hunter2")), "{errors:?}");
    assert!(errors.iter().any(|error| error.to_string().starts_with("spec: Invalid value")));
}
