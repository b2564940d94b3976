//! The example plugins, run as clients run them.

use std::{fs, path::PathBuf};

use crate::support::Plugin;

/// Cargo builds examples beside the tests.
pub(crate) fn example(name: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let path: PathBuf = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    path.display().to_string()
}

/// CRED-51
#[tokio::test]
async fn the_token_plugin_passes_a_file_on_cred_51() {
    let mut plugin = Plugin::answering();
    fs::write(plugin.file("token"), "from-file\n").unwrap();
    plugin.exec.command = Some(example("token_plugin"));
    plugin.exec.args = Some(vec![plugin.file("token").display().to_string()]);
    let credential = plugin.authenticator().credential().await.unwrap();
    assert_eq!(credential.authorization().unwrap(), "Bearer from-file");
    assert!(credential.expires().is_some());
}

/// CRED-51
#[tokio::test]
async fn the_certificate_plugin_issues_for_a_user_cred_51() {
    let mut plugin = Plugin::answering();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    fs::write(plugin.file("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(plugin.file("ca.key"), key.serialize_pem()).unwrap();
    plugin.exec.command = Some(example("certificate_plugin"));
    let files = ["ca.crt", "ca.key"].map(|name| plugin.file(name).display().to_string());
    plugin.exec.args = Some(files.into_iter().chain(["jane".to_owned()]).collect());
    let credential = plugin.authenticator().credential().await.unwrap();
    let certificate = credential.certificate().unwrap();
    assert!(certificate.subject().contains("CN=jane"), "{certificate:?}");
}

/// Without a terminal it fails at once and says why (CRED-40).
#[tokio::test]
async fn the_login_plugin_does_not_wait_for_nobody_cred_40_51() {
    let mut plugin = Plugin::answering();
    plugin.exec.command = Some(example("login_plugin"));
    plugin.exec.args = None;
    plugin.exec.provide_cluster_info = true;
    let error = plugin.authenticator().credential().await.unwrap_err().to_string();
    assert!(error.ends_with("login_plugin failed with exit code 1"), "{error}");
}
