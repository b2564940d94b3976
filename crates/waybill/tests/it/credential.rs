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
    for part in [
        "Plugin          cat\n",
        "Arguments       1, hidden\n",
        "API version     client.authentication.k8s.io/v1beta1\n",
        "Standard input  if it is a terminal; here the plugin gets none\n",
        "Time taken      0.",
        "Token           yes, hidden\n",
        "Certificate     no\n",
        "Expires         2999-01-01T00:00:00Z\n",
        "Waybill         keeps it in memory, and asks for the next from 2998-12-31T23:55:00Z on",
        "A cache         `waybill credential cache`",
        "Stock kubectl   runs the plugin at every start",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
    }
    let (success, stdout, _) = run(&["credential", "status", "--kubeconfig", &kubeconfig]);
    assert!(success && !stdout.contains("Time taken"), "{stdout}");
}

/// CRED-23: a certificate is shown with whom it names and when it holds; one out of date with a warning.
#[test]
fn a_certificate_is_explained_and_its_key_hidden_cred_23() {
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let certificate = params.self_signed(&key).unwrap().pem();
    let answer = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
        "status": {"clientCertificateData": certificate, "clientKeyData": key.serialize_pem()},
    });
    fs::write(dir.path().join("answer"), answer.to_string()).unwrap();
    let file = dir.path().join("answer").display().to_string();
    let kubeconfig = kubeconfig(dir.path(), &format!("command: cat, args: ['{file}']"));
    let (success, stdout, stderr) = run(&["credential", "run", "--kubeconfig", &kubeconfig]);
    assert!(success, "{stderr}");
    for part in [
        "Token           no\n",
        "Certificate     CN=jane",
        "Valid from      2020-01-01T00:00:00Z\n",
        "Valid until     2021-01-01T00:00:00Z\n",
        "Warning         the certificate is not valid now",
        "Expires         never",
        "closes all its connections",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
    }
    assert!(!stdout.contains("PRIVATE"));
}

/// CRED-21: and CRED-36, CRED-37: what to do is said beside the words of every client.
#[test]
fn a_failure_is_explained_with_what_to_do_cred_21_36_37() {
    let dir = tempfile::tempdir().unwrap();
    let other = r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}"#;
    fs::write(dir.path().join("other"), other).unwrap();
    let other = dir.path().join("other").display().to_string();
    for (exec, program, advice) in [
        ("command: waybill-no-such-plugin", "not on PATH", "install the plugin"),
        ("command: /nonexistent/plugin", "not there", "install the plugin"),
        ("command: 'false'", "/bin/false", "the plugin says why on standard error"),
        ("command: sh, interactiveMode: Always", "/bin/sh", "run the client on a terminal"),
        (
            &format!("command: cat, args: ['{other}']"),
            "/bin/cat",
            "write `apiVersion: client.authentication.k8s.io/v1` into the stanza",
        ),
    ] {
        let kubeconfig = kubeconfig(dir.path(), exec);
        let (success, stdout, stderr) = run(&["credential", "run", "--kubeconfig", &kubeconfig]);
        assert!(!success && stderr.starts_with("error: getting credentials: "), "{stderr}");
        assert!(stdout.contains(&format!("{program}\n")), "{program} is not in\n{stdout}");
        assert!(stdout.contains(&format!("What to do      {advice}")), "{stdout}");
    }
}

/// Hole: a kubeconfig of strangers drove the terminal of whoever looked at it.
#[test]
fn a_kubeconfig_does_not_drive_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let exec = "interactiveMode: Never, command: \"/none\\e]0;PWNED\\a\\u202Ex\"";
    let path = kubeconfig(dir.path(), exec);
    for command in [&["credential", "status"][..], &["credential", "run"], &["get", "pods"]] {
        let (_, out, errors) = run(&[command, &["--kubeconfig", &path]].concat());
        assert!(out.contains("PWNED") || errors.contains("PWNED"), "{out}{errors}");
        for sign in ['\u{1b}', '\u{7}', '\u{202e}'] {
            assert!(!out.contains(sign) && !errors.contains(sign), "{out:?}{errors:?}");
        }
    }
}

/// CRED-02: `--user` and `--context` choose as they do in kubectl.
#[test]
fn another_user_of_the_kubeconfig_can_be_named_cred_02() {
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), "command: first");
    let text = fs::read_to_string(&path).unwrap();
    let exec = "{apiVersion: client.authentication.k8s.io/v1beta1, command: second}";
    let text = text.replace("users: [", &format!("users: [{{name: v, user: {{exec: {exec}}}}}, "));
    let text =
        text.replace("contexts: [", "contexts: [{name: d, context: {cluster: c, user: v}}, ");
    fs::write(&path, text).unwrap();
    let status = ["credential", "status", "--kubeconfig", &path];
    for (flags, plugin) in
        [(&[][..], "first"), (&["--user", "v"], "second"), (&["--context", "d"], "second")]
    {
        let (success, stdout, stderr) = run(&[&status, flags].concat());
        assert!(success && stdout.starts_with(&format!("Plugin          {plugin}\n")), "{stderr}");
    }
    let (success, _, stderr) = run(&[&status[..], &["--user", "nobody"]].concat());
    assert!(!success && stderr.contains("nobody"), "{stderr}");
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
