//! Pods of more than one container, and containers of more than one kind.

use waybill_testkit::stack::{IMAGE, Stack};

use super::{ended, pod, shell, start};

pub(super) fn init_containers_and_sidecars(stack: &Stack) {
    let spec = format!(
        "  restartPolicy: Never
  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: first
    image: {IMAGE}
    command: [sh, -c, 'echo first >> /v/order']
    volumeMounts: &mounts [{{name: v, mountPath: /v}}]
  - name: beside
    image: {IMAGE}
    restartPolicy: Always
    command: [sh, -c, 'echo beside >> /v/order; touch /v/up; trap \"exit 0\" TERM; while true; do sleep 0.1; done']
    startupProbe: {{exec: {{command: [test, -e, /v/up]}}, periodSeconds: 1}}
    volumeMounts: *mounts
  - name: second
    image: {IMAGE}
    command: [sh, -c, 'echo second >> /v/order']
    volumeMounts: *mounts
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'cat /v/order; until [ -e /v/go ]; do sleep 0.1; done']
    volumeMounts: *mounts
  - name: other
    image: {IMAGE}
    command: [sh, -c, 'until [ -e /v/go ]; do sleep 0.1; done']
    volumeMounts: *mounts
"
    );
    start(stack, "shapes", &pod("shapes", &spec));
    let kubectl = stack.kubectl();
    kubectl.line("logs shapes -c main").prints("first\nbeside\nsecond");
    kubectl.line("get pod shapes").shows(&["shapes 3/3 Running"]);
    kubectl.line("exec shapes -c beside -- touch /v/go").succeeds();
    // The sidecar ends when the others have.
    ended(stack, "shapes", "Succeeded");
    let init =
        "get pod shapes -o jsonpath={.status.initContainerStatuses[*].state.terminated.reason}";
    kubectl.line(init).prints("Completed Completed Completed");

    let failing = format!(
        "  restartPolicy: Never
  initContainers: [{{name: bad, image: '{IMAGE}', command: ['false']}}]
  containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]
"
    );
    kubectl.apply(&pod("bad-init", &failing)).succeeds();
    ended(stack, "bad-init", "Failed");
    kubectl.line("get pod bad-init").shows(&["bad-init 0/1 Init:Error"]);
}

pub(super) fn images_that_are_not_there(stack: &Stack) {
    let kubectl = stack.kubectl();
    let of = |name: &str, image: &str, policy: &str| {
        let container = format!(
            "  containers: [{{name: main, image: '{image}', imagePullPolicy: {policy}, command: ['true']}}]\n"
        );
        kubectl.apply(&pod(name, &container)).succeeds();
        format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].state.waiting.reason}}")
    };
    let never = of("never-pull", "localhost:1/none:1", "Never");
    let absent = of("absent", "localhost:1/none:1", "IfNotPresent");
    kubectl.eventually(&never, "ErrImageNeverPull");
    kubectl.eventually(&absent, "ImagePullBackOff");
    kubectl.line("describe pod absent").shows(&["Failed to pull image \"localhost:1/none:1\""]);
}

pub(super) fn ephemeral_containers(stack: &Stack) {
    start(stack, "patient", &shell("patient", "sleep 3600"));
    let kubectl = stack.kubectl();
    let image = format!("--image={IMAGE}");
    let script = "echo looking at $(hostname); sleep 3600";
    let debug = ["debug", "patient", &image, "--container=doctor", "--", "sh", "-c", script];
    kubectl.run(&debug).succeeds();
    kubectl.eventually_shows("logs patient -c doctor", "looking at");
    kubectl.line("exec patient -c doctor -- true").succeeds();
    let state = "get pod patient -o jsonpath={.status.ephemeralContainerStatuses[0].state}";
    kubectl.eventually_shows(state, "running");
    kubectl.line("get pod patient").shows(&["patient 1/1 Running 0"]);
}

pub(super) fn users_and_groups(stack: &Stack) {
    let spec = format!(
        "  securityContext: {{runAsUser: 1234, runAsGroup: 2345, fsGroup: 3456}}
  volumes: [{{name: v, emptyDir: {{}}}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'touch /v/mine; id -u; id -g; id -G; stat -c %g /v/mine; sleep 3600']
    workingDir: /tmp
    securityContext: {{readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
    volumeMounts: [{{name: v, mountPath: /v}}]
"
    );
    start(stack, "users", &pod("users", &spec));
    let kubectl = stack.kubectl();
    kubectl.eventually_shows("logs users", "1234\n2345\n2345 3456\n3456");
    kubectl.line("exec users -- pwd").prints("/tmp");
    kubectl.line("exec users -- touch /x").fails_with(1, "Read-only file system");
    let refused = pod(
        "root-user",
        &format!(
            "  containers: [{{name: main, image: '{IMAGE}', securityContext: {{runAsNonRoot: true}}, command: ['true']}}]\n"
        ),
    );
    kubectl.apply(&refused).succeeds();
    let reason =
        "get pod root-user -o jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    kubectl.eventually(reason, "CreateContainerConfigError");
}
