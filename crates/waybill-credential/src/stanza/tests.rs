//! Stanzas, good and bad.

use kube::config::Kubeconfig;

use super::*;

/// The user `u` of a kubeconfig with these fields.
fn auth(fields: &str) -> AuthInfo {
    let text = format!("users: [{{name: u, user: {{{fields}}}}}]");
    let config = Kubeconfig::from_yaml(&text).unwrap();
    config.auth_infos.into_iter().next().unwrap().auth_info.unwrap()
}

#[track_caller]
fn refused(fields: &str, expected: &str) {
    let error = ExecStanza::of_user("u", &auth(fields)).unwrap_err();
    assert_eq!(error.to_string(), expected, "{fields}");
}

const V1: &str = "apiVersion: client.authentication.k8s.io/v1";
const V1BETA1: &str = "apiVersion: client.authentication.k8s.io/v1beta1";

/// CRED-02: word for word those of client-go.
#[test]
fn faults_have_upstreams_texts_cred_02_03_04_08_19() {
    refused(
        &format!("exec: {{{V1BETA1}}}"),
        "invalid configuration: command must be specified for u to use exec authentication plugin",
    );
    refused(
        "exec: {command: c, interactiveMode: Never}",
        "invalid configuration: apiVersion must be specified for u to use exec authentication plugin",
    );
    refused(
        &format!("exec: {{{V1BETA1}, command: c, env: [{{name: '', value: x}}]}}"),
        "invalid configuration: env variable name must be specified for u to use exec authentication plugin",
    );
    refused(
        &format!("exec: {{{V1}, command: c}}"),
        "invalid configuration: interactiveMode must be specified for u to use exec authentication plugin",
    );
    refused(
        &format!("exec: {{{V1BETA1}, command: c}}, auth-provider: {{name: oidc}}"),
        "invalid configuration: authProvider cannot be provided in combination with an exec plugin for u",
    );
    for version in ["client.authentication.k8s.io/v1alpha1", "v1"] {
        refused(
            &format!("exec: {{apiVersion: {version}, command: c, interactiveMode: Never}}"),
            &format!("exec plugin: invalid apiVersion {version:?}"),
        );
    }
    for (name, replacement) in [("gcp", "gke-gcloud-auth-plugin"), ("azure", "kubelogin")] {
        refused(
            &format!("auth-provider: {{name: {name}}}"),
            &format!(
                "the {name} auth plugin has been removed; please use {replacement} as an exec credential \
                 plugin instead"
            ),
        );
    }
    let kubeconfig = |mode| {
        format!(
            "users: [{{name: u, user: {{exec: {{{V1}, command: c, interactiveMode: {mode}}}}}}}]"
        )
    };
    assert!(Kubeconfig::from_yaml(&kubeconfig("Sometimes")).is_err());
    let unknown = misspelt_interactive_mode(&kubeconfig("Sometimes")).unwrap();
    assert_eq!(
        unknown.to_string(),
        "invalid configuration: invalid interactiveMode for u: \"Sometimes\""
    );
    assert_eq!(misspelt_interactive_mode(&kubeconfig("Never")), None);
}

/// CRED-02
#[test]
fn every_fault_is_told_at_once_cred_02() {
    refused(
        "exec: {interactiveMode: Never, env: [{value: x}]}",
        "invalid configuration: [command must be specified for u to use exec authentication plugin, \
         apiVersion must be specified for u to use exec authentication plugin, env variable name must be \
         specified for u to use exec authentication plugin]",
    );
}

/// CRED-19
#[test]
fn only_v1beta1_may_leave_the_interactive_mode_out_cred_19() {
    let stanza = ExecStanza::of_user("u", &auth(&format!("exec: {{{V1BETA1}, command: c}}")));
    assert_eq!(stanza.unwrap().unwrap().interactive_mode(), InteractiveMode::IfAvailable);
}

/// CRED-35: also the other way round: without them there is a plugin.
#[test]
fn static_credentials_win_cred_35() {
    let exec = format!("exec: {{{V1BETA1}, command: c}}");
    for other in ["token: t", "tokenFile: /t", "username: a, password: b", "client-certificate: /c"]
    {
        let found = ExecStanza::of_user("u", &auth(&format!("{exec}, {other}"))).unwrap();
        assert_eq!(found, None, "{other}");
    }
    assert!(ExecStanza::of_user("u", &auth(&exec)).unwrap().is_some());
    assert_eq!(ExecStanza::of_user("u", &auth("token: t")).unwrap(), None, "no stanza (CRED-07)");
    assert_eq!(ExecStanza::of_user("u", &auth("auth-provider: {name: oidc}")).unwrap(), None);
}

/// CRED-01
#[test]
fn a_stanza_survives_reading_and_writing_with_what_nobody_knows_cred_01() {
    let text = format!(
        "users: [{{name: u, user: {{exec: {{{V1}, command: c, args: [a, b], env: [{{name: N, value: v}}], \
         installHint: h, provideClusterInfo: true, interactiveMode: Always, future: {{x: [1]}}}}}}}}]"
    );
    let read = Kubeconfig::from_yaml(&text).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    let exec = written.pointer("/users/0/user/exec").unwrap();
    let expected = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "c", "args": ["a", "b"],
        "env": [{"name": "N", "value": "v"}], "installHint": "h", "provideClusterInfo": true,
        "interactiveMode": "Always", "future": {"x": [1]},
    });
    assert_eq!(exec, &expected);
}

/// CRED-26
#[test]
fn debug_output_shows_neither_arguments_nor_variables_cred_26() {
    let exec = format!(
        "exec: {{{V1BETA1}, command: c, args: [CANARY], env: [{{name: N, value: CANARY}}]}}"
    );
    let stanza = ExecStanza::of_user("u", &auth(&exec)).unwrap().unwrap();
    let shown = format!("{stanza:?}");
    assert!(!shown.contains("CANARY") && shown.contains(REDACTED), "{shown}");
}
