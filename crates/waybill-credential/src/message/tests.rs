//! Our question, and answers that are none.

use serde_json::{Value, json};

use super::*;

/// CRED-10
#[test]
fn the_question_has_a_cluster_only_if_it_shall_cred_10_11_17() {
    let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    assert_eq!(
        parse(question(ApiVersion::V1Beta1, false, None)),
        json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1",
               "spec": {"interactive": false}}),
    );
    let cluster = ClusterInfo { server: "https://h".to_owned(), ..ClusterInfo::default() };
    assert_eq!(
        parse(question(ApiVersion::V1, true, Some(&cluster))),
        json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
               "spec": {"interactive": true, "cluster": {"server": "https://h"}}}),
    );
}

#[track_caller]
fn refused(stdout: &str, expected: &str) {
    let stdout = SecretBytes::copy_of(stdout.as_bytes());
    let error = answer(&stdout, ApiVersion::V1).err().unwrap();
    assert_eq!(error.to_string(), expected);
}

/// Somewhere on the first line.
#[track_caller]
fn refused_at(stdout: &str, what: &str) {
    let stdout = SecretBytes::copy_of(stdout.as_bytes());
    let error = answer(&stdout, ApiVersion::V1).err().unwrap().to_string();
    assert!(error.starts_with(&format!("decoding stdout: {what} at line 1 column ")), "{error}");
    assert!(!error.contains("CANARY"), "{error}");
}

/// CRED-20: the token is CANARY, and no error repeats it.
#[test]
fn what_is_no_answer_is_refused_and_not_quoted_cred_20_21_22_26() {
    let v1 = r#""apiVersion":"client.authentication.k8s.io/v1""#;
    refused("", "decoding stdout: the plugin printed nothing");
    refused(" \n", "decoding stdout: the plugin printed nothing");
    refused("CANARY", "decoding stdout: neither JSON nor YAML of an ExecCredential");
    refused("{CANARY", "decoding stdout: invalid JSON at line 1 column 2");
    let trailing = format!(r#"{{{v1},"kind":"ExecCredential","status":{{"token":"CANARY",}}}}"#);
    refused_at(&trailing, "invalid JSON");
    let two = format!(r#"{{{v1},"kind":"ExecCredential","status":{{}}}} {{"CANARY":1}}"#);
    refused_at(&two, "invalid JSON");
    let text = format!(r#"{{{v1},"kind":"ExecCredential","status":"CANARY"}}"#);
    refused_at(&text, "unexpected type of value");
    let number = format!(r#"{{{v1},"kind":"ExecCredential","status":{{"token":["CANARY"]}}}}"#);
    refused_at(&number, "unexpected type of value");
    refused(
        &format!(r#"{{{v1},"status":{{"token":"CANARY"}}}}"#),
        "decoding stdout: Object 'Kind' is missing",
    );
    refused(r#"{"kind":"ExecCredential"}"#, "decoding stdout: Object 'apiVersion' is missing");
    refused(
        &format!(r#"{{{v1},"kind":"Pod"}}"#),
        "decoding stdout: the object is no ExecCredential",
    );
    refused(
        r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1"}"#,
        "exec plugin is configured to use API version client.authentication.k8s.io/v1, plugin returned \
         version client.authentication.k8s.io/v1beta1",
    );
    refused(
        &format!(r#"{{{v1},"kind":"ExecCredential"}}"#),
        "exec plugin didn't return a status field",
    );
}

/// CRED-20: client-go's decoder takes it, so some plugins print it.
#[test]
fn yaml_is_read_too_cred_20() {
    let yaml =
        "apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\nstatus: {token: t}\n";
    let status = answer(&SecretBytes::copy_of(yaml.as_bytes()), ApiVersion::V1).unwrap();
    assert!(status.token.bytes().unwrap().constant_time_eq(b"t"));
}
