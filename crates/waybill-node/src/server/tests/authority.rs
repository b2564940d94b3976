//! Certificates of one test, and the files that the server reads.

use std::{fs, path::PathBuf, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::PairPaths;

/// Signs the certificates of the server and of its clients.
pub(super) struct Authority {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca.crt"), certificate.pem()).unwrap();
        let certificate = certificate.der().clone();
        let authority = Self { dir, issuer: Issuer::new(params, key), certificate };
        authority.renew();
        authority
    }

    /// Writes a new certificate for the server.
    pub(super) fn renew(&self) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let PairPaths { certificate: path, key: key_path } = self.serving();
        fs::write(path, certificate.pem()).unwrap();
        fs::write(key_path, key.serialize_pem()).unwrap();
    }

    pub(super) fn serving(&self) -> PairPaths {
        let file = |name| self.dir.path().join(name);
        PairPaths { certificate: file("node.crt"), key: file("node.key") }
    }

    pub(super) fn certificate_path(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// TLS of a client that trusts this authority and is `user` in `groups`, or nobody.
    pub(super) fn client(&self, who: Option<(&str, &[&str])>) -> Arc<ClientConfig> {
        self.client_issued_by(self, who)
    }

    /// The same with a certificate of `other`.
    pub(super) fn client_issued_by(
        &self,
        other: &Self,
        who: Option<(&str, &[&str])>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match who {
            Some((user, groups)) => {
                let (chain, key) = other.issue(user, groups);
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        })
    }

    fn issue(
        &self,
        user: &str,
        groups: &[&str],
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        // The same attribute in two spellings: a name holds one of each.
        let organization = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        for (kind, group) in organization.into_iter().zip(groups) {
            params.distinguished_name.push(kind, *group);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}
