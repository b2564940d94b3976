//! Credential plugins under stock kubectl and under our commands: the same runs, the same words (KEP-541).

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::cluster::Cluster;

/// The kubeconfig of a cluster with a plugin that is a script, which leaves a line at each run.
pub(crate) struct Plugin {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) kubeconfig: Value,
}

impl Plugin {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let kubeconfig = cluster.kubectl("config view --raw -o json").json();
        Self { dir: tempfile::tempdir().unwrap(), kubeconfig }
    }

    /// The flag for a user whose plugin runs `script`, with the file of its runs as `$0`. It has not run yet.
    pub(crate) fn flag(&self, script: &str) -> String {
        self.flag_with(script, |_| ())
    }

    /// The same, with a kubeconfig that is changed by `change`.
    pub(crate) fn flag_with(&self, script: &str, change: impl FnOnce(&mut Value)) -> String {
        let _ = fs::remove_file(self.runs_file());
        let mut kubeconfig = self.kubeconfig.clone();
        kubeconfig["users"][0]["user"] = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", format!("echo run >>$0; {script}"), self.runs_file()],
            "interactiveMode": "Never",
        }});
        change(&mut kubeconfig);
        let path = self.dir.path().join("kubeconfig");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        format!("--kubeconfig={}", path.display())
    }

    pub(crate) fn runs(&self) -> usize {
        fs::read_to_string(self.runs_file()).unwrap_or_default().lines().count()
    }

    fn runs_file(&self) -> PathBuf {
        self.dir.path().join("runs")
    }
}

pub(crate) fn answering(token: &str) -> String {
    answering_status(&json!({"token": token}))
}

pub(crate) fn answering_status(status: &Value) -> String {
    let answer = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    format!("echo '{answer}'")
}

/// CRED-27
#[test]
fn a_good_token_costs_one_run_as_in_kubectl_cred_27_28() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let flag = plugin.flag(&answering("alice-token"));
    cluster.kubectl(&format!("{flag} get --raw=/api")).succeeds();
    assert_eq!(plugin.runs(), 1);
    let ours = cluster.waybill(&["get", &flag, "pods"]);
    ours.fails_with(1, "pods is forbidden: User \"alice\" cannot list resource");
    assert_eq!(plugin.runs(), 2, "discovery and the list share one run of another process");
}

/// CRED-33: kubectl asks twice, and runs its plugin again for each refusal; we leave one alone that gives the same token.
#[test]
fn a_refused_token_costs_two_runs_and_more_in_kubectl_cred_33() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let flag = plugin.flag(&answering("mallory-token"));
    cluster.kubectl(&format!("{flag} get --raw=/api")).fails_with(1, "Unauthorized");
    assert!(plugin.runs() >= 2);
    let flag = plugin.flag(&answering("mallory-token"));
    cluster.waybill(&["get", &flag, "pods"]).fails_with(1, "Unauthorized");
    assert_eq!(plugin.runs(), 2);
}

/// CRED-20
#[test]
fn plugins_that_fail_are_told_in_kubectls_words_cred_20_21_22_36_37() {
    let Some(cluster) = Cluster::start() else { return };
    let plugin = Plugin::new(&cluster);
    let other = answering("t").replace("k8s.io/v1", "k8s.io/v1beta1");
    for (script, words) in [
        ("exit 7", "getting credentials: exec: executable /bin/sh failed with exit code 7"),
        (
            &other,
            "getting credentials: exec plugin is configured to use API version \
             client.authentication.k8s.io/v1, plugin returned version client.authentication.k8s.io/v1beta1",
        ),
        (&answering(""), "getting credentials: exec plugin didn't return a token or cert/key pair"),
        ("echo nonsense", "getting credentials: decoding stdout: "),
    ] {
        let flag = plugin.flag(script);
        cluster.kubectl(&format!("{flag} get --raw=/api")).fails_with(1, words);
        cluster.waybill(&["get", &flag, "pods"]).fails_with(1, words);
    }
}
