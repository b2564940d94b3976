//! How containers begin, fail, are asked after, begin again and end.

use std::{fs, time::Instant};

use waybill_testkit::{
    port,
    stack::{IMAGE, Stack},
};

use super::{ended, gone, pod, ready, shell, start};

pub(super) fn restart_policies(stack: &Stack) {
    let kubectl = stack.kubectl();
    let of = |name: &str, policy: &str, script: &str| {
        let spec = format!(
            "  restartPolicy: {policy}
  volumes: [{{name: v, emptyDir: {{}}}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, {script:?}]
    volumeMounts: [{{name: v, mountPath: /v}}]
"
        );
        kubectl.apply(&pod(name, &spec)).succeeds();
    };
    of("never", "Never", "echo dying words > /dev/termination-log; exit 3");
    of("succeeds", "Never", "true");
    // The volume outlives the container, so the second run knows of the first.
    of("on-failure", "OnFailure", "test -e /v/seen && exit 0; touch /v/seen; exit 1");
    of("always", "Always", "test -e /v/seen && sleep 3600; touch /v/seen; exit 0");

    ended(stack, "never", "Failed");
    let state = ".status.containerStatuses[0].state.terminated";
    kubectl
        .line(&format!(
            "get pod never -o jsonpath={{{state}.exitCode}}/{{{state}.reason}}/{{{state}.message}}"
        ))
        .prints("3/Error/dying words");
    ended(stack, "succeeds", "Succeeded");
    kubectl.line(&format!("get pod succeeds -o jsonpath={{{state}.reason}}")).prints("Completed");
    kubectl.line("get pod succeeds").shows(&["succeeds 0/1 Completed 0"]);
    let restarts = |name: &str| {
        format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].restartCount}}")
    };
    ended(stack, "on-failure", "Succeeded");
    kubectl.line(&restarts("on-failure")).prints("1");
    kubectl.eventually(&restarts("always"), "1");
    ready(stack, "always");
    let last =
        "get pod always -o jsonpath={.status.containerStatuses[0].lastState.terminated.reason}";
    kubectl.eventually(last, "Completed");
}

pub(super) fn crash_loops_back_off(stack: &Stack) {
    let kubectl = stack.kubectl();
    kubectl.apply(&shell("crash", "echo run; exit 1")).succeeds();
    let reason = "get pod crash -o jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    kubectl.eventually(reason, "CrashLoopBackOff");
    kubectl.line("get pod crash").shows(&["CrashLoopBackOff"]);
    kubectl.line("logs crash --previous").prints("run");
    kubectl.eventually_shows("get events --field-selector involvedObject.name=crash", "BackOff");
}

pub(super) fn probes(stack: &Stack) {
    let spec = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'sleep 0.5; touch /started; exec sleep 3600']
    startupProbe: {{exec: {{command: [test, -e, /started]}}, periodSeconds: 1, failureThreshold: 60}}
    readinessProbe: {{exec: {{command: [test, '!', -e, /busy]}}, periodSeconds: 1, failureThreshold: 1}}
    livenessProbe: {{exec: {{command: [test, '!', -e, /dead]}}, periodSeconds: 1, failureThreshold: 1}}
"
    );
    start(stack, "probes", &pod("probes", &spec));
    let kubectl = stack.kubectl();
    let ready_now = "get pod probes -o jsonpath={.status.containerStatuses[0].ready}";
    kubectl.line("exec probes -- touch /busy").succeeds();
    kubectl.eventually(ready_now, "false");
    kubectl.line("get pod probes").shows(&["probes 0/1 Running"]);
    kubectl.line("exec probes -- rm /busy").succeeds();
    kubectl.eventually(ready_now, "true");
    kubectl.line("exec probes -- touch /dead").succeeds();
    kubectl
        .eventually("get pod probes -o jsonpath={.status.containerStatuses[0].restartCount}", "1");
    ready(stack, "probes");
    kubectl.eventually_shows("get events --field-selector involvedObject.name=probes", "Unhealthy");
}

/// On the machine's network, where the node reaches them on every runtime.
pub(super) fn probes_of_ports(stack: &Stack) {
    let [http, other] = port::lasting();
    let spec = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'mkdir /www; echo ok > /www/healthz; exec httpd -f -p 127.0.0.1:{http} -h /www']
    readinessProbe: {{httpGet: {{host: 127.0.0.1, port: {http}, path: /healthz}}, periodSeconds: 1}}
    livenessProbe: {{tcpSocket: {{host: 127.0.0.1, port: {http}}}, periodSeconds: 1, failureThreshold: 30}}
  - name: never
    image: {IMAGE}
    command: [sleep, '3600']
    readinessProbe: {{httpGet: {{host: 127.0.0.1, port: {other}, path: /}}, periodSeconds: 1}}
"
    );
    let manifest = pod("ports", &format!("  hostNetwork: true\n{spec}"));
    let kubectl = stack.kubectl();
    kubectl.apply(&manifest).succeeds();
    let of = |name: &str| {
        format!(
            "get pod ports -o jsonpath={{.status.containerStatuses[?(@.name==\"{name}\")].ready}}"
        )
    };
    kubectl.eventually(&of("main"), "true");
    kubectl.line(&of("never")).prints("false");
    kubectl.eventually_shows(
        "get events --field-selector involvedObject.name=ports",
        "Readiness probe failed",
    );
}

pub(super) fn hooks(stack: &Stack) {
    let shared = stack.dir().join("hooks");
    fs::create_dir(&shared).unwrap();
    let spec = format!(
        "  volumes: [{{name: v, hostPath: {{path: {}, type: Directory}}}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'trap \"echo term >> /v/order; exit 0\" TERM; while true; do sleep 0.1; done']
    volumeMounts: [{{name: v, mountPath: /v}}]
    lifecycle:
      postStart: {{exec: {{command: [sh, -c, 'echo post-start >> /v/order']}}}}
      preStop: {{exec: {{command: [sh, -c, 'echo pre-stop >> /v/order']}}}}
",
        shared.display()
    );
    let manifest = pod("hooks", &spec).replace("GracePeriodSeconds: 1", "GracePeriodSeconds: 20");
    start(stack, "hooks", &manifest);
    gone(stack, "hooks");
    let order = fs::read_to_string(shared.join("order")).unwrap();
    assert_eq!(order, "post-start\npre-stop\nterm\n");
}

pub(super) fn deletion(stack: &Stack) {
    let kubectl = stack.kubectl();
    let polite = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let patient = |name: &str, script: &str| {
        let manifest = shell(name, script);
        start(stack, name, &manifest.replace("GracePeriodSeconds: 1", "GracePeriodSeconds: 50"));
    };
    patient("polite", polite);
    let asked = Instant::now();
    gone(stack, "polite");
    assert!(asked.elapsed().as_secs() < 25, "a pod that ends at once is not waited for");
    patient("deaf", "trap '' TERM; while true; do sleep 0.1; done");
    let asked = Instant::now();
    kubectl.line("delete pod deaf --grace-period=2").succeeds();
    let seconds = asked.elapsed().as_secs_f64();
    assert!((2.0..25.0).contains(&seconds), "the grace was {seconds} s");
    patient("forced", "trap '' TERM; while true; do sleep 0.1; done");
    kubectl.line("delete pod forced --grace-period=0 --force").succeeds();
    kubectl.line("get pod forced").fails_with(1, "not found");
}
