//! `waybill apiserver` on an etcd that asks for certificates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use waybill_testkit::{
    apiserver::Setup,
    etcd::{EtcdServer, EtcdTls},
};

#[test]
fn etcd_and_the_server_prove_who_they_are() {
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let ca = Authority::new(&dir, "ca");
    let (certificate, key) = ca.issue("etcd");
    let tls = EtcdTls { ca: ca.path(), certificate, key };
    let Some(etcd) = EtcdServer::start_tls(tls) else { return };
    let setup = || {
        Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path())
            .flag(format!("--store=etcd={}", etcd.url()))
    };
    let trusting = |ca: &Authority| setup().flag(format!("--etcd-cafile={}", ca.path().display()));
    let identified = |setup: Setup, (certificate, key): (PathBuf, PathBuf)| {
        let setup = setup.flag(format!("--etcd-certfile={}", certificate.display()));
        setup.flag(format!("--etcd-keyfile={}", key.display()))
    };

    // It serves when it has written its first objects.
    identified(trusting(&ca), ca.issue("client")).start();

    let connecting = format!("connecting to etcd at {}: ", etcd.url());
    fails(&trusting(&ca), &[&connecting]);
    let other = Authority::new(&dir, "other");
    fails(&identified(trusting(&other), ca.issue("client")), &[&connecting, "UnknownIssuer"]);
    fails(&identified(trusting(&ca), other.issue("stranger")), &[&connecting]);
    fails(&setup(), &["needs --etcd-cafile FILE"]);
    let missing = dir.path().join("missing.pem");
    fails(
        &setup().flag(format!("--etcd-cafile={}", missing.display())),
        &["reading the authority of etcd", "missing.pem", "No such file"],
    );
}

/// A certificate authority whose files lie in a folder of the test.
struct Authority<'a> {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: &'a Path,
    name: &'static str,
}

impl<'a> Authority<'a> {
    fn new(dir: &'a TempDir, name: &'static str) -> Self {
        let mut params = CertificateParams::new([]).expect("no names are good names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("keys can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it signs itself");
        let authority = Self { issuer, folder: dir.path(), name };
        fs::write(authority.path(), authority.issuer.pem()).expect("the directory is writable");
        authority
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// The files of a certificate and its key.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("keys can be made");
        let params = CertificateParams::new([String::from("127.0.0.1")]).expect("an address");
        let certificate = params.signed_by(&key, &self.issuer).expect("it signs");
        let file = |ending: &str, content: String| {
            let path = self.folder.join(format!("{}-{name}.{ending}", self.name));
            fs::write(&path, content).expect("the directory is writable");
            path
        };
        (file("pem", certificate.pem()), file("key", key.serialize_pem()))
    }
}

/// The server ends with one line that has each of `parts`.
#[track_caller]
fn fails(setup: &Setup, parts: &[&str]) {
    let output = setup.command().output().expect("the server starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8(output.stderr).expect("messages are UTF-8");
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in {stderr}");
    }
}
