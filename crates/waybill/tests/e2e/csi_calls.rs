//! What a driver is asked when containers start: one call for any number of variables, and another one by a node that
//! died while it waited.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use waybill_testkit::{
    kubectl::PATIENCE,
    stack::{IMAGE, Setup},
};

use crate::BINARY;

const DRIVER: &str = "mock.csi.waybill.dev";

/// CSI-30, CSI-74
#[test]
fn a_start_is_one_call_and_a_node_that_died_in_it_calls_again_csi_30_csi_74() {
    let dir = tempfile::tempdir().unwrap();
    let (script, journal) = (dir.path().join("script.json"), dir.path().join("journal"));
    let content = json!({"values": {"app/a": "value"}, "calls": ["hang"], "journal": journal});
    fs::write(&script, content.to_string()).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o600)).unwrap();
    let driver = format!("--driver=mock=--script {}", script.display());
    let Some(stack) = Setup::new(BINARY).flag(driver).start() else { return };
    let kubectl = stack.kubectl();
    kubectl.eventually_shows("get csinodes -o yaml", DRIVER);
    let apply = |object: &Value| {
        kubectl.apply(&object.to_string()).succeeds();
    };
    objects().iter().for_each(apply);

    apply(&pod("waiting", 1));
    wait_for_call(&journal);
    stack.kill_role("node");
    kubectl.wait_until_ready("waiting");
    assert!(calls(&journal, "waiting").len() > 1, "the node does not call again");

    for count in [1, 10, 50] {
        let name = format!("pod-{count}");
        apply(&pod(&name, count));
        kubectl.wait_until_ready(&name);
        assert_eq!(calls(&journal, &name), [count]);
    }
    kubectl.line("delete pod --all --grace-period=1").succeeds();
    stack.stop();
}

/// For how many variables a driver was asked, in each call for a pod.
fn calls(journal: &Path, pod: &str) -> Vec<usize> {
    let text = fs::read_to_string(journal).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = lines.filter(|line| line["pod"]["podName"] == pod);
    own.map(|line| line["queries"].as_array().unwrap().len()).collect()
}

fn wait_for_call(journal: &Path) {
    let start = Instant::now();
    while calls(journal, "waiting").is_empty() {
        assert!(start.elapsed() < PATIENCE, "the driver is not asked");
        thread::sleep(Duration::from_millis(20));
    }
}

fn objects() -> [Value; 3] {
    let rbac = "rbac.authorization.k8s.io";
    [
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass", "metadata": {"name": "calls"},
            "spec": {"driver": DRIVER,
                "parameters": {"allowedNamespaces": "default", "allowedFields": "app/*"}}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "uses-calls"},
            "rules": [{"apiGroups": ["storage.k8s.io"], "resources": ["providerclasses"],
                "resourceNames": ["calls"], "verbs": ["use"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
            "metadata": {"name": "uses-calls", "namespace": "default"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "uses-calls"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]}),
    ]
}

fn pod(name: &str, variables: usize) -> Value {
    let selector = json!({"driver": DRIVER, "providerClassName": "calls", "key": "app/a"});
    let variable = |number: usize| {
        let name = format!("V{number}");
        json!({"name": name, "valueFrom": {"csiSecretRef": selector}})
    };
    let env: Vec<_> = (0..variables).map(variable).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": IMAGE, "command": ["sleep", "3600"], "env": env}]}})
}
