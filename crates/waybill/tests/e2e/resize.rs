//! Pods that run get other resources, asked for with stock kubectl.

use waybill_testkit::stack::{IMAGE, Setup};

use crate::BINARY;

/// Memory limits go up, and down again as since Kubernetes 1.34, in place: the container stays the same.
#[test]
fn memory_of_a_pod_that_runs_goes_up_and_down_without_a_restart() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    kubectl
        .apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: sized}}, spec: {{
                terminationGracePeriodSeconds: 0,
                containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'],
                    resources: {{requests: {{memory: 32Mi}}, limits: {{memory: 64Mi}}}}}}]}}}}"
        ))
        .succeeds();
    kubectl.wait_until_ready("sized");
    let of_container =
        |field: &str| format!("get pod sized -o jsonpath={{.status.containerStatuses[0].{field}}}");
    let before = kubectl.line(&of_container("containerID")).succeeds().stdout.clone();
    for limit in ["96Mi", "48Mi"] {
        let resources = format!(
            "{{\"name\":\"main\",\"resources\":{{\"limits\":{{\"memory\":\"{limit}\"}}}}}}"
        );
        let patch = format!("{{\"spec\":{{\"containers\":[{resources}]}}}}");
        kubectl.line(&format!("patch pod sized --subresource resize -p {patch}")).succeeds();
        kubectl.eventually(&of_container("resources.limits.memory"), limit);
    }
    kubectl.line(&of_container("restartCount")).prints("0");
    kubectl.line(&of_container("containerID")).prints(&before);
    // Nothing else changes by this way.
    let image = "{\"spec\":{\"containers\":[{\"name\":\"main\",\"image\":\"other\"}]}}";
    kubectl.line(&format!("patch pod sized --subresource resize -p {image}")).succeeds();
    kubectl.line("get pod sized -o jsonpath={.spec.containers[0].image}").prints(IMAGE);
    kubectl.line("delete pod sized").succeeds();
    stack.stop();
}
