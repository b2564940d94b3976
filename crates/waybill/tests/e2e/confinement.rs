//! What keeps a pod in its place: the seccomp profiles that it can name, and all that the "restricted" standard asks of it.

use std::fs;

use serde_json::{Value, json};
use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

/// A pod that sleeps, with a security context of its container.
fn start(stack: &Stack, name: &str, context: &Value) {
    apply(stack, name, context);
    stack.kubectl().wait_until_ready(name);
}

fn apply(stack: &Stack, name: &str, context: &Value) {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": IMAGE, "command": ["sleep", "3600"],
                "securityContext": context,
            }],
        },
    });
    stack.kubectl().apply(&manifest.to_string()).succeeds();
}

/// What the first process and a session of the pod have of something in their status.
fn status(stack: &Stack, pod: &str, field: &str) -> [String; 2] {
    ["1", "self"].map(|process| {
        let script = format!("grep '^{field}:' /proc/{process}/status");
        let ran = stack.kubectl().run(&["exec", pod, "--", "sh", "-c", &script]);
        let line = ran.succeeds().stdout.clone();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    })
}

/// Of the fields of the standard each one holds, in the first process and in sessions.
#[test]
fn pods_of_the_restricted_standard_run() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let restricted = json!({
        "runAsNonRoot": true,
        "runAsUser": 1000,
        "seccompProfile": { "type": "RuntimeDefault" },
        "capabilities": { "drop": ["ALL"] },
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
    });
    start(&stack, "restricted", &restricted);
    let both = |value: &str| [value.to_owned(), value.to_owned()];
    for (field, expected) in [
        ("Uid", "1000"),
        ("Seccomp", "2"),
        ("Seccomp_filters", "1"),
        ("NoNewPrivs", "1"),
        ("CapEff", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
    ] {
        assert_eq!(status(&stack, "restricted", field), both(expected), "{field}");
    }
    let kubectl = stack.kubectl();
    kubectl
        .run(&["exec", "restricted", "--", "sh", "-c", "echo > /new"])
        .fails_with(1, "Read-only");
    // The control: what a pod has that asks for nothing.
    start(&stack, "plain", &json!({}));
    for (field, expected) in [("Uid", "0"), ("Seccomp", "2"), ("NoNewPrivs", "0")] {
        assert_eq!(status(&stack, "plain", field), both(expected), "{field}");
    }
    kubectl.run(&["exec", "plain", "--", "sh", "-c", "echo > /new"]).succeeds();
    kubectl.line("delete pod restricted plain").succeeds();
    stack.stop();
}

/// `Localhost` is a file below the node's folder of profiles; `Unconfined` is none.
#[test]
fn a_pod_has_the_seccomp_profile_that_it_names() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let folder = stack.state().join("node/seccomp/own");
    fs::create_dir_all(&folder).unwrap();
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28 }],
    });
    fs::write(folder.join("small.json"), profile.to_string()).unwrap();
    let local =
        |file: &str| json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": file } });
    let kubectl = stack.kubectl();
    let make = |pod: &str| kubectl.run(&["exec", pod, "--", "mkdir", "/tmp/new"]);
    start(&stack, "local", &local("own/small.json"));
    make("local").fails_with(1, "No space left on device");
    assert_eq!(status(&stack, "local", "Seccomp"), ["2", "2"]);
    start(&stack, "open", &json!({ "seccompProfile": { "type": "Unconfined" } }));
    make("open").succeeds();
    assert_eq!(status(&stack, "open", "Seccomp"), ["0", "0"]);

    fs::write(folder.join("wrong.json"), r#"{ "defaultAction": "SCMP_ACT_NOTIFY" }"#).unwrap();
    for (name, file, text) in [
        ("missing", "own/none.json", "No such file or directory"),
        ("wrong", "own/wrong.json", "SCMP_ACT_NOTIFY is not supported"),
    ] {
        apply(&stack, name, &local(file));
        let message = "{.status.containerStatuses[0].state.waiting.message}";
        kubectl.eventually_shows(&format!("get pod {name} -o jsonpath={message}"), text);
    }
    kubectl.line("delete pod local open missing wrong").succeeds();
    stack.stop();
}
