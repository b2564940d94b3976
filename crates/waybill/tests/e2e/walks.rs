//! Upgrades and downgrades: a stack that is started again with features off and on, and pods that live
//! through it.

use std::process::Command;

use waybill_testkit::{
    kubectl::Ran,
    stack::{IMAGE, Setup, Stack},
};

use crate::BINARY;

/// Before env files, and when relaxed names could still be switched off.
const OLD: [&str; 2] =
    ["--emulated-version=1.33", "--feature-gates=RelaxedEnvironmentVariableValidation=false"];

/// A pod that takes one variable from a file and has another with a relaxed name.
fn manifest(name: &str) -> String {
    let write = "echo \"A='from a file'\" > /v/app.env";
    let loyal = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - {{name: write, image: '{IMAGE}', command: [sh, -c, {write:?}], volumeMounts: [{{name: v, mountPath: /v}}]}}
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, {loyal:?}]
    env:
    - {{name: 'a:b', value: relaxed}}
    - {{name: A, valueFrom: {{fileKeyRef: {{volumeName: v, path: app.env, key: A}}}}}}
"
    )
}

fn apply(stack: &Stack, manifest: &str) -> Ran {
    stack.kubectl().with_input(&["apply", "--validate=false", "-f", "-"], manifest)
}

#[track_caller]
fn start(stack: &Stack, name: &str) {
    apply(stack, &manifest(name)).succeeds();
    stack.kubectl().wait_until_ready(name);
}

/// What a process has of the two variables.
#[track_caller]
fn variables(stack: &Stack, name: &str) -> Vec<String> {
    let line = format!("exec {name} -c main -- cat /proc/1/environ");
    let ran = stack.kubectl().line(&line);
    let all = ran.succeeds().stdout.split_terminator('\0');
    let mut found: Vec<_> = all
        .filter(|it| it.starts_with("A=") || it.starts_with("a:b="))
        .map(str::to_owned)
        .collect();
    found.sort();
    found
}

#[track_caller]
fn container(stack: &Stack, name: &str) -> String {
    let id = format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].containerID}}");
    stack.kubectl().line(&id).succeeds().stdout.clone()
}

/// Ends the main process, and waits until another one runs in its place.
#[track_caller]
fn restart_container(stack: &Stack, name: &str, restarts: &str) {
    let kubectl = stack.kubectl();
    kubectl.line(&format!("exec {name} -c main -- kill 1")).ends_its_container();
    let count = format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].restartCount}}");
    kubectl.eventually(&count, restarts);
    stack.kubectl().wait_until_ready(name);
}

const BOTH: [&str; 2] = ["A=from a file", "a:b=relaxed"];
const NAME_ONLY: [&str; 1] = ["a:b=relaxed"];

/// FILE-09, FILE-25, FILE-42, NAME-08, NAME-11, NAME-15, NAME-16, NAME-21
#[test]
fn pods_live_through_a_downgrade_and_an_upgrade_file_42_name_21() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    start(&stack, "walk");
    start(&stack, "gone");
    let before = container(&stack, "walk");
    assert_eq!(variables(&stack, "walk"), BOTH);

    stack.kill();
    stack.restart_with(&OLD);
    stack.kubectl().eventually("exec walk -c main -- echo alive", "alive");
    assert_eq!(container(&stack, "walk"), before, "no container notices");
    assert_eq!(variables(&stack, "walk"), BOTH, "a running process keeps what it has");
    // What is stored can be read, changed elsewhere and deleted.
    stack.kubectl().line("label pod walk step=down").succeeds();
    let key = "{.spec.containers[0].env[1].valueFrom.fileKeyRef.key}";
    stack.kubectl().line(&format!("get pod walk -o jsonpath={key}")).prints("A");
    stack.kubectl().line("delete pod gone").succeeds();
    // What is new may use neither, and is told so.
    let refused = apply(&stack, &manifest("new"));
    refused.fails_with(1, "spec.containers[0].env[0].name: Invalid value: \"a:b\"");
    refused.fails_with(
        1,
        "spec.containers[0].env[1].valueFrom: Invalid value: \"\": must specify one of",
    );
    // Names are the API server's business alone; the field is skipped by a node that does not know it.
    restart_container(&stack, "walk", "1");
    assert_eq!(variables(&stack, "walk"), NAME_ONLY);

    stack.kill();
    stack.restart_with(&[]);
    stack.kubectl().eventually("exec walk -c main -- echo alive", "alive");
    assert_eq!(variables(&stack, "walk"), NAME_ONLY, "nothing is restarted for it");
    restart_container(&stack, "walk", "2");
    assert_eq!(variables(&stack, "walk"), BOTH);
    start(&stack, "new");
    assert_eq!(variables(&stack, "new"), BOTH);
    stack.kubectl().line("delete pods --all").succeeds();
    stack.stop();
}

/// NAME-06, NAME-07, NAME-21: the same version with the gate on, off and on again.
#[test]
fn the_gate_of_names_is_walked_through_name_21() {
    let gate = |on: bool| format!("--feature-gates=RelaxedEnvironmentVariableValidation={on}");
    let version = "--emulated-version=1.33";
    let Some(mut stack) = Setup::new(BINARY).flag(version).flag(gate(true)).start() else { return };
    // Pods are not to be changed in what matters, and templates are.
    let template = |name: &str, names: &[&str]| {
        let env: Vec<_> = names.iter().map(|it| format!("{{name: '{it}', value: x}}")).collect();
        format!(
            "{{apiVersion: v1, kind: PodTemplate, metadata: {{name: {name}}}, template: {{spec: {{
             containers: [{{name: c, image: i, env: [{}]}}]}}}}}}",
            env.join(", ")
        )
    };
    let apply =
        |stack: &Stack, name: &str, names: &[&str]| stack.kubectl().apply(&template(name, names));
    apply(&stack, "t", &["a:b"]).succeeds();
    stack.kill();
    stack.restart_with(&[version, &gate(false)]);
    apply(&stack, "new", &["a:b"]).fails_with(1, "must consist of alphabetic characters, digits");
    apply(&stack, "new", &["A"]).succeeds();
    apply(&stack, "new", &["A", "a:b"]).fails_with(1, "is invalid");
    apply(&stack, "t", &["a:b", "c:d"]).succeeds();
    apply(&stack, "t", &["A"]).succeeds();
    apply(&stack, "t", &["a:b"]).fails_with(1, "is invalid");
    stack.kill();
    stack.restart_with(&[version, &gate(true)]);
    apply(&stack, "t", &["a:b"]).succeeds();
    apply(&stack, "new", &["A", "a:b"]).succeeds();
    stack.stop();
}

/// OP-20: a stack that refuses what others warn of.
#[test]
fn doubtful_mounts_are_refused_by_a_strict_stack_file_10() {
    let Some(stack) = Setup::new(BINARY).flag("--strict-env-file-mounts").start() else { return };
    let doubtful = manifest("doubtful")
        .replace("    env:\n", "    volumeMounts: [{name: v, mountPath: /v}]\n    env:\n");
    let refused = apply(&stack, &doubtful);
    refused.fails_with(
        1,
        "spec.containers[0].volumeMounts[0]: Forbidden: a container should not mount volume \"v\" and \
         take variables from an env file in it",
    );
    start(&stack, "clear");
    assert_eq!(variables(&stack, "clear"), BOTH);
    stack.kubectl().line("delete pod clear").succeeds();
    stack.stop();
}

/// OP-28: since 1.34 the gate of names cannot be switched off.
#[test]
fn a_locked_gate_is_an_error_at_the_start_op_28() {
    for role in ["up", "apiserver"] {
        let gate = "RelaxedEnvironmentVariableValidation=false";
        let ran = Command::new(BINARY)
            .args([role, "--state-dir", "/nonexistent/waybill", "--feature-gates", gate])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        if said.contains("cannot run here") {
            continue;
        }
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains("RelaxedEnvironmentVariableValidation"), "{said}");
        assert!(said.contains("locked"), "{said}");
    }
}
