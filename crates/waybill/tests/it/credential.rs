//! `waybill credential`, and what our commands say of plugins that fail.

use std::{fs, path::Path, process::Command};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");

/// A kubeconfig whose user has this stanza.
fn kubeconfig(dir: &Path, exec: &str) -> String {
    let path = dir.join("kubeconfig");
    let text = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}], \
         users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1beta1, {exec}}}}}}}]}}"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn run(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// CRED-26
#[test]
fn a_run_is_explained_and_hides_the_token_cred_26() {
    let dir = tempfile::tempdir().unwrap();
    let answer = r#"{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"CANARY","expirationTimestamp":"2999-01-01T00:00:00Z"}}"#;
    fs::write(dir.path().join("answer"), answer).unwrap();
    // A path is relative to the kubeconfig (CRED-05).
    let answer = dir.path().join("answer").display().to_string();
    let kubeconfig = kubeconfig(dir.path(), &format!("command: cat, args: ['{answer}']"));
    let (success, stdout, stderr) = run(&["credential", "run", "--kubeconfig", &kubeconfig]);
    assert!(success, "{stderr}");
    assert!(!stdout.contains("CANARY") && !stderr.contains("CANARY"));
    for part in ["Plugin          cat\n", "Token           yes, hidden\n", "2999-01-01T00:00:00Z\n"]
    {
        assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
    }
    let (success, stdout, _) = run(&["credential", "status", "--kubeconfig", &kubeconfig]);
    assert!(success && !stdout.contains("Time taken"), "{stdout}");
}

/// CRED-05
#[test]
fn commands_say_why_there_is_no_credential_cred_05_37() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plugin");
    fs::write(&path, "#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let kubeconfig = kubeconfig(dir.path(), "command: ./plugin");
    let flag = ["--kubeconfig", &kubeconfig];
    for (command, rest) in [
        (&["get"][..], &["pods"][..]),
        (&["exec"], &["pod", "--", "true"]),
        (&["credential", "run"], &[]),
    ] {
        let (success, _, stderr) = run(&[command, &flag, rest].concat());
        assert!(!success);
        let expected = "getting credentials: exec: executable ";
        assert!(
            stderr.contains(expected) && stderr.contains("failed with exit code 7"),
            "{stderr}"
        );
        assert_eq!(stderr.matches("getting credentials").count(), 1, "{stderr}");
    }
}

/// CRED-02
#[test]
fn a_stanza_that_cannot_be_is_refused_in_upstreams_words_cred_02_19() {
    let dir = tempfile::tempdir().unwrap();
    for (exec, expected) in [
        ("args: []", "command must be specified for u to use exec authentication plugin"),
        ("command: c, interactiveMode: Often", "invalid interactiveMode for u: \"Often\""),
    ] {
        let kubeconfig = kubeconfig(dir.path(), exec);
        let (success, _, stderr) = run(&["get", "pods", "--kubeconfig", &kubeconfig]);
        assert!(
            !success && stderr.contains(&format!("invalid configuration: {expected}")),
            "{stderr}"
        );
    }
}
