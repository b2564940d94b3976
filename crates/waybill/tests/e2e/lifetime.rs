//! What outlives what: stacks that are stopped, started again, killed, or refused.

use std::process::Command;

use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

const SLEEPER: &str = "sleeper";

fn start_sleeper(stack: &Stack) {
    stack.kubectl().apply(&pod(SLEEPER)).succeeds();
    stack.kubectl().wait_until_ready(SLEEPER);
}

fn pod(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
            terminationGracePeriodSeconds: 1,
            containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]}}}}"
    )
}

fn container(stack: &Stack) -> String {
    let id = format!("get pod {SLEEPER} -o jsonpath={{.status.containerStatuses[0].containerID}}");
    stack.kubectl().line(&id).succeeds().stdout.clone()
}

#[test]
fn a_stack_goes_on_with_what_was_there() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    start_sleeper(&stack);
    let before = container(&stack);
    assert!(stack.end().success());
    stack.check_nothing_is_left();
    stack.restart();
    let running = format!(
        "get pod {SLEEPER} -o jsonpath={{.status.phase}}/{{.status.containerStatuses[0].ready}}"
    );
    stack.kubectl().eventually(&running, "Running/true");
    assert_ne!(container(&stack), before, "a drained pod has a new container");
    stack.kubectl().line(&format!("delete pod {SLEEPER}")).succeeds();
    stack.stop();
}

#[test]
fn a_role_that_dies_comes_back_and_no_container_notices() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    start_sleeper(&stack);
    let before = container(&stack);
    for role in ["node", "runtime", "apiserver"] {
        stack.kill_role(role);
        stack.kubectl().eventually(&format!("exec {SLEEPER} -- echo alive"), "alive");
        assert_eq!(container(&stack), before, "after the death of the {role}");
    }
    stack.kill_driver("os");
    let restarts =
        format!("get pod {SLEEPER} -o jsonpath={{.status.containerStatuses[0].restartCount}}");
    stack.kubectl().line(&restarts).prints("0");
    stack.kubectl().line(&format!("delete pod {SLEEPER}")).succeeds();
    stack.stop();
}

/// Their memory holds keys, tokens and values. All but the runtime once left it in a file for whoever collects those.
#[test]
fn no_role_that_crashes_leaves_a_core() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    for role in ["node", "runtime", "apiserver"] {
        let process = stack.role(role).to_string();
        let limit = format!("--pid={process}");
        let raised = Command::new("prlimit").args([&limit, "--core=unlimited"]).status();
        assert!(raised.expect("prlimit is installed").success());
        let aborted = Command::new("kill").args(["-ABRT", &process]).status();
        assert!(aborted.expect("kill is installed").success());
        // Of one that left a core this is said too, before the semicolon.
        stack.wait_for_note("ended with signal: 6 (SIGABRT); starting");
        stack.wait_for_note("is back");
    }
    stack.stop();
}

/// A machine may freeze any role for as long as it likes: what was asked meanwhile is done afterwards.
#[test]
fn a_role_that_is_stopped_and_goes_on_loses_nothing() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    start_sleeper(&stack);
    let before = container(&stack);
    for role in ["node", "runtime", "apiserver"] {
        let name = format!("during-{role}");
        let process = stack.pause_role(role);
        if role == "apiserver" {
            let version = kubectl.line("version --request-timeout=1s");
            assert!(!version.succeeded(), "nobody answers: {version:#?}");
            stack.resume(process);
            kubectl.eventually("get --raw /readyz", "ok");
            kubectl.apply(&pod(&name)).succeeds();
        } else {
            // The object is taken in while nobody can start it.
            kubectl.apply(&pod(&name)).succeeds();
            kubectl
                .line(&format!("get pod {name} -o jsonpath={{.status.phase}}"))
                .prints("Pending");
            stack.resume(process);
        }
        kubectl.wait_until_ready(&name);
        kubectl.eventually("get --raw /readyz", "ok");
        kubectl.eventually(&format!("exec {SLEEPER} -- echo alive"), "alive");
        assert_eq!(container(&stack), before, "after the sleep of the {role}");
    }
    let restarts = "get pods -o jsonpath={.items[*].status.containerStatuses[0].restartCount}";
    kubectl.line(restarts).prints("0 0 0 0");
    kubectl.line("delete pods --all").succeeds();
    stack.stop();
}

#[test]
fn containers_outlive_a_killed_stack_and_the_next_one_takes_them_over() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    start_sleeper(&stack);
    let before = container(&stack);
    stack.kill();
    stack.restart();
    stack.kubectl().eventually(&format!("exec {SLEEPER} -- echo alive"), "alive");
    assert_eq!(container(&stack), before);
    stack.kubectl().line(&format!("delete pod {SLEEPER}")).succeeds();
    stack.stop();
}

/// D15: what a newer runtime made is shown as unknown and left running, and nothing is started in its place.
#[test]
fn a_container_of_tomorrow_is_left_running_and_no_other_is_started() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    start_sleeper(&stack);
    let before = container(&stack);
    let id = before.trim().rsplit('/').next().unwrap().to_owned();
    stack.kill();
    let record = stack.state().join("run/runtime/cri/containers").join(&id).join("record.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replacen("\"version\":1", "\"version\":99", 1)).unwrap();
    stack.restart();
    let state = format!("get pod {SLEEPER} -o jsonpath={{.status.containerStatuses[0].state}}");
    stack.kubectl().eventually_shows(&state, "ContainerStatusUnknown");
    let events = format!("get events --field-selector involvedObject.name={SLEEPER}");
    stack.kubectl().eventually_shows(&events, "is not understood and left as it is");
    let containers = std::fs::read_dir(stack.state().join("run/runtime/containers")).unwrap();
    assert_eq!(containers.count(), 1, "no other was made");

    stack.kill();
    std::fs::write(&record, text).unwrap();
    stack.restart();
    stack.kubectl().eventually(&format!("exec {SLEEPER} -- echo alive"), "alive");
    assert_eq!(container(&stack), before, "it ran all the time");
    let restarts =
        format!("get pod {SLEEPER} -o jsonpath={{.status.containerStatuses[0].restartCount}}");
    stack.kubectl().line(&restarts).prints("0");
    stack.kubectl().line(&format!("delete pod {SLEEPER}")).succeeds();
    stack.stop();
}

/// After a restart, finished debug containers used to run again, and restart counts began at zero.
#[test]
fn what_ended_does_not_run_again_and_no_count_falls() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    let marks = stack.dir().join("marks");
    std::fs::create_dir(&marks).unwrap();
    stack
        .kubectl()
        .apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: counted}}, spec: {{
            terminationGracePeriodSeconds: 1,
            volumes: [{{name: marks, hostPath: {{path: '{}'}}}}],
            containers: [
              {{name: main, image: '{IMAGE}', command: [sh, -c, 'test -e /tmp/x/once || {{ touch /tmp/x/once; exit 1; }}; sleep 3600'],
                volumeMounts: [{{name: marks, mountPath: /tmp/x}}]}},
              {{name: other, image: '{IMAGE}', command: [sleep, '3600'],
                volumeMounts: [{{name: marks, mountPath: /marks}}]}}]}}}}",
            marks.display()
        ))
        .succeeds();
    let count = "get pod counted -o jsonpath={.status.containerStatuses[0].restartCount}";
    stack.kubectl().eventually(count, "1");
    stack.kubectl().wait_until_ready("counted");
    let debug = format!("debug counted --image {IMAGE} --container finished -- true");
    stack.kubectl().line(&debug).succeeds();
    let ended = "get pod counted -o jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}";
    stack.kubectl().eventually(ended, "0");
    let id = "get pod counted -o jsonpath={.status.ephemeralContainerStatuses[0].containerID}";
    let first = stack.kubectl().line(id).succeeds().stdout.clone();
    let restarts = |stack: &Stack| {
        stack.kubectl().line(count).succeeds().stdout.trim().parse::<u32>().unwrap()
    };
    for round in 0..2 {
        let before = restarts(&stack);
        if round == 0 {
            stack.kill();
        } else {
            assert!(stack.end().success());
        }
        stack.restart();
        let running =
            "get pod counted -o jsonpath={.status.phase}/{.status.containerStatuses[*].ready}";
        stack.kubectl().eventually(running, "Running/true true");
        assert!(restarts(&stack) >= before, "{} after {before}", restarts(&stack));
        stack.kubectl().line(ended).prints("0");
        assert_eq!(stack.kubectl().line(id).succeeds().stdout, first, "it ran once");
    }
    stack.kubectl().line("delete pod counted").succeeds();
    stack.stop();
}

/// A grace period near 2^63 used to end the worker of the pod: the pod ignored deletes, and with `--force`
/// its container outlived it.
#[test]
fn a_pod_can_be_deleted_whatever_its_grace_period_is() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let graces = ["0", "1", "9223372036854775807", "9223372036854000000"];
    for (at, grace) in graces.iter().enumerate() {
        for (how, delete) in [("plain", ""), ("force", "--force --grace-period=0")] {
            let name = format!("grace-{at}-{how}");
            stack
                .kubectl()
                .apply(&format!(
                    "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
                    terminationGracePeriodSeconds: {grace},
                    containers: [{{name: main, image: '{IMAGE}',
                      command: [sh, -c, 'trap exit TERM; while true; do sleep 0.1; done']}}]}}}}"
                ))
                .succeeds();
            stack.kubectl().wait_until_ready(&name);
            stack.kubectl().line(&format!("delete pod {name} {delete}")).succeeds();
        }
    }
    // Also asked for when it is deleted, and shortened afterwards.
    start_sleeper(&stack);
    let huge = "--grace-period=9223372036854775807 --wait=false";
    stack.kubectl().line(&format!("delete pod {SLEEPER} {huge}")).succeeds();
    stack.kubectl().line(&format!("delete pod {SLEEPER} --grace-period=1")).succeeds();
    // Looks for processes, mounts and cgroups that are left.
    stack.stop();
}

/// Within the minute in which kubelets do it.
#[test]
fn a_volume_follows_its_object() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    let map = |text: &str| {
        kubectl.apply(&format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: follow}}, data: {{a: {text}}}}}"
        )).succeeds();
    };
    map("old");
    kubectl
        .apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: follow}}, spec: {{
            terminationGracePeriodSeconds: 1,
            volumes: [{{name: v, configMap: {{name: follow}}}}],
            containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'],
                volumeMounts: [{{name: v, mountPath: /v}}]}}]}}}}"
        ))
        .succeeds();
    kubectl.wait_until_ready("follow");
    kubectl.line("exec follow -- cat /v/a").prints("old");
    map("new");
    kubectl.eventually("exec follow -- cat /v/a", "new");
    kubectl.line("delete pod follow").succeeds();
    stack.stop();
}

#[test]
fn a_state_directory_is_for_one_stack() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let second =
        Command::new(BINARY).args(["up", "--state-dir"]).arg(stack.state()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another `waybill up` uses"), "{said}");
    stack.stop();
}

#[test]
fn without_root_it_says_what_is_missing() {
    let ran = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", BINARY, "up"])
        .args(["--state-dir", "/nonexistent"])
        .output();
    let Ok(ran) = ran else {
        return waybill_testkit::skip::skip("setpriv", "it comes with util-linux");
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("root") && said.contains("sudo waybill up"), "{said}");
}

#[test]
fn the_demo_holds_and_leaves_nothing() {
    let before = mounts();
    let ran = Command::new(BINARY).arg("demo").output().unwrap();
    let (shown, said) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if said.contains("cannot run here") {
        return waybill_testkit::skip::skip("root", "only root may run containers");
    }
    assert!(ran.status.success(), "{shown}\n{said}");
    for claim in [
        "✓ a pod runs",
        "✓ its log is read",
        "✓ an exec answers",
        "demo-secret",
        "GREETING=hello from a file",
        "environ of the app: Logging:LogLevel:Default=Debug",
        "held, in",
    ] {
        assert!(shown.contains(claim), "{claim:?} is not in {shown}");
    }
    assert!(!shown.contains('✗'), "{shown}");
    let after = mounts();
    let left: Vec<_> = after.iter().filter(|mount| !before.contains(mount)).collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// Those of demos.
fn mounts() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains("waybill-demo-")).map(str::to_owned).collect()
}
