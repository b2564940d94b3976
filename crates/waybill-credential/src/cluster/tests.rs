//! What plugins are told of clusters.

use std::collections::BTreeSet;

use kube::config::{Cluster, Kubeconfig};
use serde_json::json;

use super::*;

/// The configuration of a kubeconfig whose cluster has these fields.
fn config(fields: &str) -> Config {
    let text = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{{fields}}}}}], users: [{{name: u, user: {{exec: {{command: x, \
         apiVersion: client.authentication.k8s.io/v1beta1, provideClusterInfo: true}}}}}}]}}"
    );
    Config::try_from(Kubeconfig::from_yaml(&text).unwrap()).unwrap()
}

fn told(fields: &str) -> Value {
    serde_json::to_value(ClusterInfo::of(&config(fields))).unwrap()
}

fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(vec!["ca".to_owned()]).unwrap().self_signed(&key).unwrap().pem()
}

/// CRED-12
#[test]
fn empty_fields_are_left_out_cred_12() {
    assert_eq!(told("server: 'https://h:1'"), json!({"server": "https://h:1"}));
}

/// CRED-06
#[test]
fn every_field_is_told_and_the_extension_as_it_is_cred_06_12() {
    let pem = authority();
    let data = STANDARD.encode(&pem);
    let fields = format!(
        "server: 'https://h:1/path', tls-server-name: n, insecure-skip-tls-verify: true, \
         certificate-authority-data: {data}, proxy-url: 'http://p:3128', disable-compression: true, \
         extensions: [{{name: other, extension: 1}}, \
         {{name: client.authentication.k8s.io/exec, extension: {{audience: a, deep: [1, null]}}}}]"
    );
    let expected = json!({
        "server": "https://h:1/path", "tls-server-name": "n", "insecure-skip-tls-verify": true,
        "certificate-authority-data": data, "proxy-url": "http://p:3128", "disable-compression": true,
        "config": {"audience": "a", "deep": [1, null]},
    });
    assert_eq!(told(&fields), expected);
    let read: ClusterInfo = serde_json::from_value(expected).unwrap();
    assert_eq!(read, ClusterInfo::of(&config(&fields)), "and back");
}

/// CRED-13
#[test]
fn files_are_told_as_data_and_never_by_their_path_cred_13() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pem) = (dir.path().join("ca.crt"), authority());
    std::fs::write(&path, &pem).unwrap();
    let told = told(&format!("server: 'https://h', certificate-authority: '{}'", path.display()));
    assert_eq!(told["certificate-authority-data"], STANDARD.encode(&pem));
    assert!(!told.to_string().contains("ca.crt"));
}

/// CRED-14: what flags changed after the kubeconfig was read counts.
#[test]
fn the_cluster_that_is_used_is_told_cred_14() {
    let mut config = config("server: 'https://first'");
    config.cluster_url = "https://second:2/".parse().unwrap();
    config.tls_server_name = Some("name".to_owned());
    let pem = authority();
    config.root_cert = certificates(pem.as_bytes());
    let told = ClusterInfo::of(&config);
    assert_eq!((told.server.as_str(), told.tls_server_name.as_str()), ("https://second:2", "name"));
    assert_eq!(certificates(&told.certificate_authority_data), config.root_cert);
}

/// CRED-15: whoever adds a field to kubeconfigs finds this test.
#[test]
fn the_type_has_the_fields_of_kubeconfigs_cred_15() {
    let extension = kube::config::NamedExtension { name: String::new(), extension: json!(1) };
    let of_kubeconfig = Cluster {
        server: Some("s".to_owned()),
        insecure_skip_tls_verify: Some(true),
        certificate_authority: Some("f".to_owned()),
        certificate_authority_data: Some("d".to_owned()),
        proxy_url: Some("p".to_owned()),
        disable_compression: Some(true),
        tls_server_name: Some("n".to_owned()),
        extensions: Some(vec![extension]),
        other: std::collections::BTreeMap::new(),
    };
    let ours = ClusterInfo {
        server: "s".to_owned(),
        tls_server_name: "n".to_owned(),
        insecure_skip_tls_verify: true,
        certificate_authority_data: b"d".to_vec(),
        proxy_url: "p".to_owned(),
        disable_compression: true,
        config: Some(json!(1)),
    };
    let keys =
        |value: Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    let mut expected = keys(serde_json::to_value(of_kubeconfig).unwrap());
    assert!(expected.remove("certificate-authority") && expected.remove("extensions"));
    expected.insert("config".to_owned());
    assert_eq!(keys(serde_json::to_value(ours).unwrap()), expected);
}

/// CRED-26
#[test]
fn debug_output_hides_the_extension_cred_26() {
    let info = ClusterInfo { config: Some(json!("CANARY")), ..ClusterInfo::default() };
    assert!(!format!("{info:?}").contains("CANARY"));
}
