//! Where variables came from: to the object and the key, over restarts of the node, on every runtime.

use serde_json::{Value, json};
use waybill_testkit::{
    kubectl::Ran,
    stack::{IMAGE, Setup, Stack},
};

use crate::{BINARY, on_containerd};

const OBJECTS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: origins}
data: {A: from the map, B: from the map}
---
apiVersion: v1
kind: Secret
metadata: {name: origins}
stringData: {key: hidden-value}
";

fn manifest() -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: origins}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: write
    image: {IMAGE}
    command: [sh, -c, \"echo \\\"K='hidden-value'\\\" > /v/app.env\"]
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    envFrom: [{{configMapRef: {{name: origins}}}}]
    env:
    - {{name: A, value: own}}
    - {{name: PATH, value: '/bin'}}
    - {{name: NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
    - {{name: CPU, valueFrom: {{resourceFieldRef: {{resource: limits.cpu}}}}}}
    - {{name: S, valueFrom: {{secretKeyRef: {{name: origins, key: key}}}}}}
    - {{name: F, valueFrom: {{fileKeyRef: {{volumeName: v, path: app.env, key: K}}}}}}
  - name: bare
    image: {IMAGE}
    command: [sleep, '3600']
"
    )
}

fn env(stack: &Stack, arguments: &[&str]) -> Ran {
    let child = stack.waybill().arg("env").args(arguments).spawn().expect("waybill starts");
    Ran::of(format!("waybill env {}", arguments.join(" ")), child)
}

fn check_table(stack: &Stack) {
    let table = env(stack, &["origins"]);
    table.shows(&[
        "NAME FROM OVERRIDES",
        "A pod spec ConfigMap origins, key A",
        "B ConfigMap origins, key B",
        "PATH pod spec image",
        "NAME field metadata.name",
        "CPU resource limits.cpu",
        "S Secret origins, key key *",
        "F file app.env in volume v, key K *",
    ]);
    assert!(!table.stdout.contains("hidden-value"), "{table:#?}");
    env(stack, &["origins", "-c", "bare"]).shows(&["PATH image"]);
}

fn check_json(stack: &Stack) {
    let told = env(stack, &["origins", "-o", "json"]);
    assert!(!told.stdout.contains("hidden-value"), "{told:#?}");
    let told = told.json();
    assert_eq!(told["imageVariables"], "known");
    let variable = |name: &str| {
        let mut all = told["variables"].as_array().unwrap().iter();
        all.find(|variable| variable["name"] == name).unwrap().clone()
    };
    let origin = |name: &str| variable(name)["origin"].clone();
    assert_eq!(origin("PATH"), json!({"kind": "literal"}));
    let lost = |name: &str| -> Vec<Value> {
        let shadowed = variable(name)["shadowed"].as_array().cloned().unwrap_or_default();
        shadowed.into_iter().map(|lost| lost["origin"].clone()).collect()
    };
    assert_eq!(lost("PATH"), [json!({"kind": "image"})]);
    assert_eq!(lost("A"), [json!({"kind": "configMap", "name": "origins", "key": "A"})]);
    assert_eq!(origin("S"), json!({"kind": "secret", "name": "origins", "key": "key"}));
    let file = json!({"kind": "file", "volume": "v", "path": "app.env", "key": "K"});
    assert_eq!(origin("F"), file);
    assert_eq!(
        (&variable("F")["sensitive"], &variable("A")["sensitive"]),
        (&json!(true), &json!(false))
    );
}

/// Objects that change later have nothing to do with what a container was made with.
fn check(stack: Stack) {
    let kubectl = stack.kubectl();
    kubectl.apply(OBJECTS).succeeds();
    // An old kubectl does not know fileKeyRef.
    kubectl.with_input(&["apply", "--validate=false", "-f", "-"], &manifest()).succeeds();
    kubectl.wait_until_ready("origins");
    check_table(&stack);
    check_json(&stack);
    kubectl.line("delete configmap,secret origins").succeeds();
    stack.kill_role("node");
    kubectl.eventually("exec origins -c main -- echo alive", "alive");
    check_table(&stack);
    check_json(&stack);
    kubectl.line("delete pod origins").succeeds();
    stack.stop();
}

#[test]
fn origins_outlive_the_node_on_our_runtime() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    check(stack);
}

#[test]
fn origins_outlive_the_node_on_containerd() {
    let Some((containerd, stack)) = on_containerd() else { return };
    check(stack);
    drop(containerd);
}
