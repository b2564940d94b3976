//! Files in volumes as programs and as traps.

use waybill_testkit::stack::{IMAGE, Stack};

use super::{pod, start};

/// As on kubelets; many charts rely on it.
pub(super) fn scripts_in_volumes(stack: &Stack) {
    let kubectl = stack.kubectl();
    kubectl
        .apply(
            "{apiVersion: v1, kind: Secret, metadata: {name: scripts}, stringData: {run.sh: \"#!/bin/sh\\necho ran\\n\"}}",
        )
        .succeeds();
    let spec = format!(
        "  volumes:
  - {{name: secret, secret: {{secretName: scripts, defaultMode: 0555}}}}
  - {{name: projected, projected: {{defaultMode: 0555, sources: [{{secret: {{name: scripts}}}}]}}}}
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    volumeMounts:
    - {{name: secret, mountPath: /secret}}
    - {{name: projected, mountPath: /projected}}
"
    );
    start(stack, "scripts", &pod("scripts", &spec));
    for volume in ["secret", "projected"] {
        kubectl.run(&["exec", "scripts", "--", &format!("/{volume}/run.sh")]).prints("ran");
    }
}

pub(super) fn a_sub_path_that_leads_nowhere(stack: &Stack) {
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: make
    image: {IMAGE}
    command: [busybox, ln, -s, /nowhere, /v/link]
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    volumeMounts: [{{name: v, mountPath: /sub, subPath: link/below}}]
"
    );
    let kubectl = stack.kubectl();
    kubectl.apply(&pod("nowhere", &spec)).succeeds();
    let message =
        "get pod nowhere -o jsonpath={.status.containerStatuses[0].state.waiting.message}";
    let expected = "failed to prepare volumeMount \"v\" of container \"main\": invalid path \
                    \"link/below\": a symbolic link in it leads to something that the volume does \
                    not have";
    kubectl.eventually(message, expected);
}
