//! Pods with `hostUsers: false`: root of one is nobody on the machine.

use std::{fs, os::unix::fs::MetadataExt};

use serde_json::{Value, json};
use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

fn pod(name: &str, spec: &Value) -> String {
    let mut all = json!({
        "hostUsers": false,
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": IMAGE, "command": ["sleep", "3600"] }],
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    let pod =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": all });
    pod.to_string()
}

/// What a script prints in a pod.
fn sh(stack: &Stack, pod: &str, script: &str) -> String {
    let ran = stack.kubectl().run(&["exec", pod, "--", "sh", "-c", script]);
    ran.succeeds().stdout.trim_end().to_owned()
}

/// The first of the machine's ids that a pod has.
fn first_id(stack: &Stack, pod: &str) -> u32 {
    let map = sh(stack, pod, "cat /proc/self/uid_map");
    let words: Vec<u32> = map.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!((words[0], words[2]), (0, 65536), "{map}");
    words[1]
}

fn trace(stack: &Stack) -> Value {
    let mut command = stack.waybill();
    command.args(["trace", "-o", "json", "--state-dir"]).arg(stack.state());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_pod_has_users_of_its_own_and_all_that_other_pods_have() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    let volume = stack.dir().join("volume");
    fs::create_dir(&volume).unwrap();
    let kubectl = stack.kubectl();
    kubectl.line("create secret generic word --from-literal=word=hunter2").succeeds();
    let container = json!({
        "name": "main", "image": IMAGE, "command": ["sleep", "3600"],
        "env": [{ "name": "WORD", "valueFrom": { "secretKeyRef": { "name": "word", "key": "word" } } }],
        "volumeMounts": [
            { "name": "secret", "mountPath": "/secret" },
            { "name": "host", "mountPath": "/host" },
            { "name": "empty", "mountPath": "/empty" },
            { "name": "empty", "mountPath": "/sub", "subPath": "below" },
        ],
        "readinessProbe": { "exec": { "command": ["test", "-e", "/secret/word"] }, "periodSeconds": 1 },
        "securityContext": { "runAsUser": 1000 },
    });
    let spec = json!({
        "containers": [container],
        "securityContext": { "fsGroup": 2000 },
        "volumes": [
            { "name": "secret", "secret": { "secretName": "word", "defaultMode": 0o440 } },
            { "name": "host", "hostPath": { "path": volume.display().to_string() } },
            { "name": "empty", "emptyDir": {} },
        ],
    });
    fs::set_permissions(&volume, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    kubectl.apply(&pod("own", &spec)).succeeds();
    kubectl.wait_until_ready("own");
    kubectl.apply(&pod("other", &json!({}))).succeeds();
    kubectl.wait_until_ready("other");
    // Two pods have no id in common.
    let (own, other) = (first_id(&stack, "own"), first_id(&stack, "other"));
    assert!(own.abs_diff(other) >= 65536 && own.min(other) >= 65536, "{own} {other}");
    // Secrets as variables and files; the group of volumes; files on the machine.
    let script = "cat /secret/word; echo \" $WORD\"; id -u; id -G; stat -Lc %u:%g /secret/word /empty /sub; \
                  echo > /empty/a && echo > /sub/b && echo > /host/c && ls -l /proc/1/exe > /dev/null && stat -c %u:%g /host/c /empty/a";
    assert_eq!(
        sh(&stack, "own", script),
        "hunter2 hunter2\n1000\n0 2000\n0:2000\n0:2000\n0:2000\n1000:0\n1000:2000"
    );
    let file = fs::metadata(volume.join("c")).unwrap();
    assert_eq!((file.uid(), file.gid()), (1000, 0));
    // Sessions are attributed as everywhere.
    sh(&stack, "own", "sleep 3599 < /dev/null > /dev/null 2>&1 & exit 0");
    let traces = trace(&stack);
    // The shell has ended, and what it left behind is still its session's.
    let sessions = traces.as_array().unwrap().iter();
    let processes: Vec<_> = sessions.flat_map(|it| it["processes"].as_array().unwrap()).collect();
    assert_eq!(processes.len(), 1, "{traces}");
    let pid = processes[0]["pid"].as_u64().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap();
    assert!(uid.starts_with(&(own + 1000).to_string()), "{uid} {own}");
    // An ephemeral container has the same users.
    stack
        .kubectl()
        .line(&format!("debug own --image={IMAGE} --target=main --container=look -- sleep 3600"))
        .succeeds();
    let state = "get pod own -o jsonpath={.status.ephemeralContainerStatuses[0].state}";
    stack.kubectl().eventually_shows(state, "startedAt");
    let ran =
        stack.kubectl().run(&["exec", "own", "-c", "look", "--", "cat", "/proc/self/uid_map"]);
    assert!(ran.succeeds().stdout.contains(&own.to_string()));
    // They stay when everything is started again.
    stack.kill();
    stack.restart();
    for pod in ["own", "other"] {
        stack.kubectl().eventually(&format!("exec {pod} -- echo alive"), "alive");
    }
    assert_eq!((first_id(&stack, "own"), first_id(&stack, "other")), (own, other));
    let kubectl = stack.kubectl();
    kubectl
        .apply(&pod("bad", &json!({ "hostNetwork": true })))
        .fails_with(1, "when `hostUsers` is false");
    kubectl.line("delete pod own other").succeeds();
    stack.stop();
}
