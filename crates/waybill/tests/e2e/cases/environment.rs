//! Variables of every source, and what happens when a source is missing.

use waybill_testkit::stack::{IMAGE, Stack};

use super::{pod, ready, start};

pub(super) fn every_source(stack: &Stack) {
    let kubectl = stack.kubectl();
    kubectl
        .apply(
            "apiVersion: v1
kind: ConfigMap
metadata: {name: sources}
data: {PLAIN: from the map, other.key: dotted}
---
apiVersion: v1
kind: Secret
metadata: {name: sources}
stringData: {token: t0ken}
",
        )
        .succeeds();
    let spec = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    resources: {{limits: {{memory: 64Mi, cpu: 500m}}}}
    envFrom:
    - {{configMapRef: {{name: sources}}}}
    - {{prefix: S_, secretRef: {{name: sources}}}}
    - {{configMapRef: {{name: nobody, optional: true}}}}
    env:
    - {{name: VALUE, value: plain}}
    - {{name: MADE, value: '$(VALUE) and $(S_token), not $$(VALUE) nor $(NONE)'}}
    - {{name: KEY, valueFrom: {{configMapKeyRef: {{name: sources, key: PLAIN}}}}}}
    - {{name: TOKEN, valueFrom: {{secretKeyRef: {{name: sources, key: token}}}}}}
    - {{name: ABSENT, valueFrom: {{secretKeyRef: {{name: sources, key: none, optional: true}}}}}}
    - {{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
    - {{name: LABEL, valueFrom: {{fieldRef: {{fieldPath: \"metadata.labels['case']\"}}}}}}
    - {{name: MEMORY, valueFrom: {{resourceFieldRef: {{resource: limits.memory}}}}}}
    - {{name: CPU, valueFrom: {{resourceFieldRef: {{resource: limits.cpu, divisor: 1m}}}}}}
    - {{name: 'strange name.1', value: relaxed}}
"
    );
    start(stack, "sources", &pod("sources", &spec));
    let seen = kubectl.line("exec sources -- cat /proc/1/environ");
    let seen: Vec<&str> = seen.succeeds().stdout.split('\0').collect();
    for wanted in [
        "PLAIN=from the map",
        "other.key=dotted",
        "S_token=t0ken",
        "VALUE=plain",
        "MADE=plain and t0ken, not $(VALUE) nor $(NONE)",
        "KEY=from the map",
        "TOKEN=t0ken",
        "POD=sources",
        "LABEL=sources",
        "MEMORY=67108864",
        "CPU=500",
        "strange name.1=relaxed",
    ] {
        assert!(seen.contains(&wanted), "{wanted} is not in {seen:#?}");
    }
    assert!(!seen.iter().any(|variable| variable.starts_with("ABSENT=")), "{seen:#?}");
}

/// KEP-3721: an init container writes what the next one reads.
pub(super) fn env_files(stack: &Stack) {
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: write
    image: {IMAGE}
    command: [sh, -c, \"printf \\\"A='one two'\\\\nB='2'\\\\n\\\" > /v/app.env\"]
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    env: [{{name: FROM_FILE, valueFrom: {{fileKeyRef: {{volumeName: v, path: app.env, key: A}}}}}}]
"
    );
    // An old kubectl does not know the field, and the server is asked alone.
    let manifest = pod("env-files", &spec);
    let kubectl = stack.kubectl();
    kubectl.with_input(&["apply", "--validate=false", "-f", "-"], &manifest).succeeds();
    ready(stack, "env-files");
    kubectl.run(&["exec", "env-files", "--", "sh", "-c", "echo $FROM_FILE"]).prints("one two");
}

pub(super) fn a_missing_source(stack: &Stack) {
    let spec = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    env: [{{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: late, key: password}}}}}}]
"
    );
    let kubectl = stack.kubectl();
    kubectl.apply(&pod("missing", &spec)).succeeds();
    let waiting = "get pod missing -o jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    kubectl.eventually(waiting, "CreateContainerConfigError");
    let message =
        "get pod missing -o jsonpath={.status.containerStatuses[0].state.waiting.message}";
    let expected = "secret \"late\" not found (variable \"PASSWORD\" of container \"main\")";
    kubectl.eventually(message, expected);
    kubectl.eventually_shows("describe pod missing", "Warning Failed");
    kubectl
        .apply("{apiVersion: v1, kind: Secret, metadata: {name: late}, stringData: {password: x}}")
        .succeeds();
    ready(stack, "missing");
    kubectl.run(&["exec", "missing", "--", "sh", "-c", "echo $PASSWORD"]).prints("x");
}
