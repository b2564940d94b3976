//! Questions as plugins read them, and answers as clients do.

use serde_json::json;

use super::*;
use crate::{Credential, message::question};

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = load_exec_credential(text.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), expected, "{text}");
}

/// CRED-42
#[test]
fn what_is_no_question_is_refused_cred_42() {
    refused("{", "decode");
    refused(
        r#"{"kind":"Pod","apiVersion":"v1"}"#,
        "invalid group/kind: wanted ExecCredential.client.authentication.k8s.io, got Pod",
    );
    refused(
        &question(ApiVersion::V1, false, None),
        "ExecCredential does not contain cluster information",
    );
    let (request, config) =
        load_exec_request(question(ApiVersion::V1, true, None).as_bytes()).unwrap();
    assert!(request.interactive && config.is_none());
    refused(
        r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1"}"#,
        "unknown version client.authentication.k8s.io/v1alpha1",
    );
}

/// CRED-41: tests do not have the variable.
#[test]
fn a_program_that_nobody_asks_is_told_so_cred_41() {
    let error = load_exec_credential_from_env().unwrap_err();
    assert_eq!(error.to_string(), "KUBERNETES_EXEC_INFO env var is unset or empty");
}

/// CRED-43
#[test]
fn clusters_and_configurations_turn_into_each_other_cred_43() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    let der = params.self_signed(&key).unwrap().der().to_vec();
    let mut config = Config::new("https://h:1/path".parse().unwrap());
    config.root_cert = Some(vec![der]);
    config.tls_server_name = Some("name".to_owned());
    config.accept_invalid_certs = true;
    config.proxy_url = Some("http://p:3128/".parse().unwrap());
    let token: Box<str> = "CANARY".into();
    config.auth_info.token = Some(token.into());
    let cluster = ClusterInfo::from_config(&config);
    for version in [ApiVersion::V1, ApiVersion::V1Beta1] {
        let asked = question(version, false, Some(&cluster));
        assert!(!asked.contains("CANARY"));
        let (request, back) = load_exec_credential(asked.as_bytes()).unwrap();
        assert_eq!((request.api_version, request.cluster.as_ref()), (version, Some(&cluster)));
        assert_eq!(ClusterInfo::from_config(&back), cluster);
        assert!(back.auth_info.token.is_none());
    }
    let bad = json!({"kind": KIND, "apiVersion": ApiVersion::V1.as_str(),
                     "spec": {"cluster": {"server": "https://h", "proxy-url": "a b"}}});
    refused(&bad.to_string(), "proxy-url is no URL");
}

/// CRED-51
#[test]
fn clients_understand_our_answers_cred_51() {
    let expires: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let answer = ExecAnswer {
        token: Some(SecretBytes::copy_of(b"t")),
        certificate: None,
        expires: Some(expires),
    };
    let printed = answer.to_json(ApiVersion::V1).unwrap();
    let read = Credential::from_answer(&printed, ApiVersion::V1, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(
        (read.authorization().unwrap().as_bytes(), read.expires()),
        (&b"Bearer t"[..], Some(expires))
    );
}
