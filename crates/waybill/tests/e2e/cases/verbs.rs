//! Our own commands, for machines without kubectl.

use std::{fs, io::Write, os::unix::fs::symlink, path::Path};

use waybill_testkit::{
    kubectl::Ran,
    stack::{IMAGE, Stack},
};

use super::{pod, ready, shell, start};
use crate::BINARY;

fn waybill(stack: &Stack, arguments: &[&str], input: &str) -> Ran {
    let mut child = stack.waybill().args(arguments).spawn().expect("waybill starts");
    let _ = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
    Ran::of(format!("waybill {}", arguments.join(" ")), child)
}

pub(super) fn our_own_verbs(stack: &Stack) {
    let run = |line: &str| waybill(stack, &line.split_whitespace().collect::<Vec<_>>(), "");
    let manifest = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: verbs}}, data: {{a: b}}}}\n---\n{}",
        shell("verbs", "echo one; echo two; sleep 3600")
    );
    let file = stack.dir().join("verbs.yaml");
    fs::write(&file, &manifest).unwrap();
    let file = file.to_str().unwrap();
    waybill(stack, &["apply", "-f", "-"], &manifest)
        .prints("configmap/verbs created\npod/verbs created");
    run(&format!("apply -f {file}")).prints("configmap/verbs unchanged\npod/verbs unchanged");
    ready(stack, "verbs");
    run("get pods -l case=verbs").shows(&["NAME READY STATUS RESTARTS AGE", "verbs 1/1 Running 0"]);
    run("get po/verbs cm/verbs -o name").prints("pod/verbs\nconfigmap/verbs");
    run("get configmap verbs -o json").shows(&["\"a\": \"b\""]);
    run("get configmap verbs -o yaml").shows(&["a: b"]);
    run("get pods -A").shows(&["NAMESPACE NAME", "default verbs"]);
    run("get pod nobody").fails_with(1, "pods \"nobody\" not found");
    run("get nonsense").fails_with(1, "the server has no resource `nonsense`; it has ");
    run("logs verbs").prints("one\ntwo");
    run("logs pod/verbs --tail 1").prints("two");
    run("exec verbs -- cat /proc/self/environ").shows(&["HOME="]);
    run("delete pod verbs --grace-period 1").prints("pod/verbs deleted");
    run("get pod verbs").fails_with(1, "not found");
    run(&format!("delete -f {file} --ignore-not-found")).prints("configmap/verbs deleted");
}

/// kubectl runs what is called `kubectl-waybill` on its path.
pub(super) fn a_plugin_of_kubectl(stack: &Stack) {
    start(stack, "plugin", &shell("plugin", "sleep 3600"));
    let programs = stack.dir().join("programs");
    fs::create_dir_all(&programs).unwrap();
    symlink(BINARY, programs.join("kubectl-waybill")).unwrap();
    let run = |line: &str| {
        let mut shell = stack.kubectl().command(Path::new("/bin/sh"));
        let script = format!("PATH={}:$PATH; \"$KUBECTL\" waybill {line}", programs.display());
        Ran::of(format!("kubectl waybill {line}"), shell.args(["-c", &script]).spawn().unwrap())
    };
    run("exec plugin -- echo hello").prints("hello");
    run("exec plugin -- sh -c 'exit 7'").fails_with(7, "exit code 7");
    run("get pod plugin -o name").prints("pod/plugin");
    run("exec --help").shows(&["Usage: kubectl waybill exec"]);
    run("exec plugin --env =x -- env").fails_with(2, "--env number 1");
}

pub(super) fn where_variables_came_from(stack: &Stack) {
    stack
        .kubectl()
        .apply(
            "apiVersion: v1
kind: ConfigMap
metadata: {name: origins}
data: {A: from the map}
---
apiVersion: v1
kind: Secret
metadata: {name: origins}
stringData: {key: hidden-value}
",
        )
        .succeeds();
    let spec = format!(
        "  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    envFrom: [{{configMapRef: {{name: origins}}}}]
    env:
    - {{name: A, value: own}}
    - {{name: S, valueFrom: {{secretKeyRef: {{name: origins, key: key}}}}}}
"
    );
    start(stack, "origins", &pod("origins", &spec));
    let table = waybill(stack, &["env", "origins"], "");
    table.shows(&[
        "NAME FROM OVERRIDES",
        "A pod spec ConfigMap origins, key A",
        "S Secret origins, key key *",
    ]);
    let json = waybill(stack, &["env", "origins", "-o", "json"], "");
    let json: serde_json::Value = serde_json::from_str(&json.succeeds().stdout).unwrap();
    let variables = json["variables"].as_array().unwrap();
    let secret = variables.iter().find(|variable| variable["name"] == "S").unwrap();
    assert_eq!(secret["origin"]["kind"], "secret");
    assert!(!json.to_string().contains("hidden-value") && !table.stdout.contains("hidden-value"));
}
