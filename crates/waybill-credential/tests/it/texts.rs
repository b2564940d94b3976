//! Every text of CRED-02 to CRED-40 that a person may search for, through the front door.

use std::{collections::HashMap, io::IsTerminal, time::Duration};

use kube::config::{AuthProviderConfig, ExecInteractiveMode};
use serde_json::json;
use waybill_credential::{Policy, Stdin, misspelt_interactive_mode};

use crate::support::Plugin;

/// What is wrong with a plugin, and what is said of it.
type Case = (&'static str, Plugin, String);

fn changed(change: impl FnOnce(&mut Plugin)) -> Plugin {
    let mut plugin = Plugin::answering();
    change(&mut plugin);
    plugin
}

fn answering(answer: &serde_json::Value) -> Plugin {
    Plugin::running(&format!("printf %s '{answer}'"))
}

fn status(status: &serde_json::Value) -> Plugin {
    answering(&json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    }))
}

/// What cannot be run at all.
fn stanzas() -> Vec<Case> {
    let missing = |what: &str| {
        format!(
            "invalid configuration: {what} must be specified for u to use exec authentication plugin"
        )
    };
    let nameless: HashMap<_, _> = [("value".to_owned(), "x".to_owned())].into();
    vec![
        ("CRED-02", changed(|it| it.exec.command = None), missing("command")),
        ("CRED-02", changed(|it| it.exec.api_version = None), missing("apiVersion")),
        ("CRED-02", changed(|it| it.exec.env = Some(vec![nameless])), missing("env variable name")),
        (
            "CRED-03",
            changed(|it| {
                it.exec.api_version = Some("client.authentication.k8s.io/v1alpha1".to_owned());
            }),
            "exec plugin: invalid apiVersion \"client.authentication.k8s.io/v1alpha1\"".to_owned(),
        ),
        ("CRED-19", changed(|it| it.exec.interactive_mode = None), missing("interactiveMode")),
    ]
}

/// What runs, or would, and gives nothing.
fn runs() -> Vec<Case> {
    let other = json!({"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
        "status": {"token": "t"}});
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let always = |stdin| {
        changed(|it| {
            it.exec.interactive_mode = Some(ExecInteractiveMode::Always);
            it.options.stdin = stdin;
        })
    };
    let case = |id, plugin, text: &str| (id, plugin, format!("getting credentials: {text}"));
    vec![
        case(
            "CRED-18, CRED-40",
            always(Stdin::Free),
            "exec plugin cannot support interactive mode: standard input is not a terminal",
        ),
        case(
            "CRED-20",
            Plugin::running("echo ["),
            "decoding stdout: neither JSON nor YAML of an ExecCredential",
        ),
        case("CRED-20", Plugin::running("true"), "decoding stdout: the plugin printed nothing"),
        case(
            "CRED-21",
            answering(&other),
            "exec plugin is configured to use API version client.authentication.k8s.io/v1, \
             plugin returned version client.authentication.k8s.io/v1beta1",
        ),
        case("CRED-22", status(&json!(null)), "exec plugin didn't return a status field"),
        case("CRED-22", status(&json!({})), "exec plugin didn't return a token or cert/key pair"),
        case(
            "CRED-22",
            status(&json!({"clientKeyData": "k"})),
            "exec plugin returned only certificate or key, not both",
        ),
        case(
            "CRED-23",
            status(&json!({"clientCertificateData": pem, "clientKeyData": "k"})),
            "failed parsing client key/certificate: clientCertificateData does not begin with an X.509 \
             certificate",
        ),
        case(
            "CRED-24",
            status(&json!({"token": "t", "expirationTimestamp": "soon"})),
            "decoding stdout: status.expirationTimestamp is not a time as in RFC 3339",
        ),
        case(
            "CRED-05",
            changed(|it| it.options.policy = Policy::Allowlist(vec!["cat".to_owned()])),
            "exec: executable /bin/sh is not allowed by the credential plugin policy",
        ),
        case(
            "CRED-36",
            changed(|it| {
                it.exec.command = Some("waybill-no-such-plugin".to_owned());
                it.exec.install_hint = Some("get it".to_owned());
            }),
            "exec: executable waybill-no-such-plugin not found\n\n\
             It looks like you are trying to use a client-go credential plugin that is not installed.\n\n\
             To learn more about this feature, consult the documentation available at:\n      \
             https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins\n\n\
             get it",
        ),
        case(
            "CRED-37",
            Plugin::running("kill -9 $$"),
            "exec: executable /bin/sh failed with exit code -1",
        ),
        case(
            "CRED-37",
            Plugin::running("exit 42"),
            "exec: executable /bin/sh failed with exit code 42",
        ),
        case(
            "CRED-37",
            changed(|it| it.exec.command = Some("/etc/passwd".to_owned())),
            "exec: fork/exec /etc/passwd: permission denied",
        ),
        case(
            "CRED-38",
            {
                let mut plugin = Plugin::running("sleep 1000");
                plugin.options.timeout = Duration::from_millis(200);
                plugin
            },
            "exec: executable /bin/sh did not finish within 0.2 s and was killed; if it waits for input, run it \
             on a terminal",
        ),
    ]
}

/// CRED-02, CRED-03, CRED-19
#[test]
fn what_is_wrong_with_a_stanza_is_said_in_upstreams_words_cred_02_03_19() {
    for (id, plugin, expected) in stanzas() {
        let mut config = plugin.config("http://127.0.0.1:1");
        let error = plugin.registry.take_plugin("u", &mut config, &plugin.options).unwrap_err();
        assert_eq!(error.to_string(), expected, "{id}");
        assert_eq!(plugin.runs(), 0);
    }
    let misspelt = "users: [{name: u, user: {exec: {interactiveMode: Sometimes}}}]";
    let error = misspelt_interactive_mode(misspelt).unwrap();
    let expected = "invalid configuration: invalid interactiveMode for u: \"Sometimes\"";
    assert_eq!(error.to_string(), expected, "CRED-19");
}

/// CRED-04, CRED-08
#[test]
fn other_providers_beside_or_in_place_of_a_plugin_are_refused_cred_04_08() {
    let plugin = Plugin::answering();
    let provider =
        |name: &str| AuthProviderConfig { name: name.to_owned(), ..AuthProviderConfig::default() };
    let refused = |with_exec: bool, name: &str| {
        let mut config = plugin.config("http://127.0.0.1:1");
        config.auth_info.auth_provider = Some(provider(name));
        if !with_exec {
            config.auth_info.exec = None;
        }
        let taken = plugin.registry.take_plugin("u", &mut config, &plugin.options);
        taken.map(drop).map_err(|error| error.to_string())
    };
    let beside = "invalid configuration: authProvider cannot be provided in combination with an exec plugin for u";
    assert_eq!(refused(true, "oidc"), Err(beside.to_owned()));
    for (name, replacement) in [("gcp", "gke-gcloud-auth-plugin"), ("azure", "kubelogin")] {
        let removed = format!(
            "the {name} auth plugin has been removed; please use {replacement} as an exec credential plugin instead"
        );
        assert_eq!(refused(false, name), Err(removed));
    }
    assert_eq!(refused(false, "oidc"), Ok(()));
}

/// CRED-05, CRED-18, CRED-20, CRED-21, CRED-22, CRED-23, CRED-24, CRED-36, CRED-37, CRED-38, CRED-40
#[tokio::test]
async fn what_is_wrong_with_a_run_is_said_in_upstreams_words_cred_05_to_40() {
    for (id, plugin, expected) in runs() {
        if id.starts_with("CRED-18") && std::io::stdin().is_terminal() {
            continue; // See terminal.rs.
        }
        let error = plugin.authenticator().credential().await.unwrap_err();
        assert_eq!(error.to_string(), expected, "{id}");
    }
}
