//! Other resources for pods that run, asked for with stock kubectl.

use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

/// One container that is resized in place, and one that starts again for other memory.
fn pod() -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: app}}, spec: {{
            terminationGracePeriodSeconds: 0, containers: [
            {{name: main, image: '{IMAGE}', command: [sleep, '3600'],
                resources: {{requests: {{cpu: 100m, memory: 32Mi}}, limits: {{cpu: 200m, memory: 64Mi}}}}}},
            {{name: anew, image: '{IMAGE}', command: [sleep, '3600'],
                resources: {{requests: {{memory: 16Mi}}, limits: {{memory: 32Mi}}}},
                resizePolicy: [{{resourceName: memory, restartPolicy: RestartContainer}}]}}]}}}}"
    )
}

fn has(container: &str, field: &str) -> String {
    format!(
        "get pod app -o jsonpath={{.status.containerStatuses[?(@.name==\"{container}\")].{field}}}"
    )
}

fn patch(container: &str, resources: &str) -> String {
    format!(
        "{{\"spec\":{{\"containers\":[{{\"name\":\"{container}\",\"resources\":{resources}}}]}}}}"
    )
}

fn resize(stack: &Stack, container: &str, resources: &str) {
    let patch = patch(container, resources);
    let line = ["patch", "pod", "app", "--subresource", "resize", "--patch", &patch];
    stack.kubectl().run(&line).succeeds();
}

#[test]
fn a_pod_is_resized_while_it_runs() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    kubectl.apply(&pod()).succeeds();
    kubectl.wait_until_ready("app");

    resize(
        &stack,
        "main",
        r#"{"requests":{"cpu":"150m"},"limits":{"cpu":"300m","memory":"96Mi"}}"#,
    );
    kubectl.eventually(&has("main", "resources.limits"), r#"{"cpu":"300m","memory":"96Mi"}"#);
    kubectl.line(&has("main", "allocatedResources.cpu")).prints("150m");
    let limit = "exec app -c main -- sh -c cat${IFS}/sys/fs/cgroup/memory.max${IFS}||cat${IFS}/sys/fs/cgroup/memory/memory.limit_in_bytes";
    kubectl.eventually(limit, &(96 << 20).to_string());
    kubectl.line(&has("main", "restartCount")).prints("0");
    let generations = "get pod app -o jsonpath={.metadata.generation}/{.status.observedGeneration}";
    kubectl.eventually(generations, "2/2");

    resize(&stack, "anew", r#"{"limits":{"memory":"48Mi"}}"#);
    kubectl.eventually(&has("anew", "restartCount"), "1");
    kubectl.eventually(&has("anew", "resources.limits.memory"), "48Mi");

    // More than any node has: it is refused by the node, kept from nobody, and taken back.
    let pending =
        "get pod app -o jsonpath={.status.conditions[?(@.type==\"PodResizePending\")].reason}";
    resize(&stack, "main", r#"{"requests":{"cpu":"10k"},"limits":{"cpu":"10k"}}"#);
    kubectl.eventually(pending, "Infeasible");
    kubectl.line(&has("main", "resources.limits.cpu")).prints("300m");
    let other = pod().replace("name: app", "name: other");
    kubectl.apply(&other).succeeds();
    kubectl.wait_until_ready("other");
    resize(&stack, "main", r#"{"requests":{"cpu":"150m"},"limits":{"cpu":"300m"}}"#);
    kubectl.eventually(pending, "");

    // Nothing but resources changes this way, and resources no other way.
    let patch = patch("main", r#"{"limits":{"cpu":"400m"}}"#);
    let plain = kubectl.run(&["patch", "pod", "app", "--patch", &patch]);
    plain.fails_with(1, "pod updates may not change fields other than");
}
