//! Client certificates: the common name is the user, the organizations are the groups.
//!
//! The TLS handshake has proved that the peer holds the key; here it is decided whether an authority
//! of ours vouches for the certificate. That is done once for a connection and costs a request only a
//! comparison of times.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use rustls::{
    CertificateError, RootCertStore,
    crypto::aws_lc_rs,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::{certificate::X509Certificate, prelude::FromDer, x509::AttributeTypeAndValue};

use super::{among_all, digest::Digest};
use crate::{authz::NODE_CLIENTS_GROUP, request::User};

/// A set of authorities that vouch for clients.
#[derive(Debug)]
pub(crate) struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    /// Trusts what `roots` signed.
    pub(crate) fn new(roots: &[CertificateDer<'_>]) -> Result<Self, AuthorityError> {
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root.clone().into_owned())?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        Ok(Self(WebPkiClientVerifier::builder_with_provider(store.into(), provider).build()?))
    }

    /// Judges the chain that a peer presented, its own certificate first.
    pub(crate) fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<CertificateIdentity, CertificateFault> {
        let [leaf, intermediates @ ..] = chain else { return Err(CertificateFault::Malformed) };
        let identity = CertificateIdentity::read(leaf)?;
        identity.holds_at(now)?;
        let seconds = now.as_second().max(0).unsigned_abs();
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        match self.0.verify_client_cert(leaf, intermediates, time) {
            Ok(_) => Ok(identity),
            Err(rustls::Error::InvalidCertificate(error)) => Err(error.into()),
            Err(_) => Err(CertificateFault::Malformed),
        }
    }
}

/// Why a set of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error("a certificate cannot be used as an authority for clients")]
    Root(#[from] rustls::Error),
    #[error("the authorities for clients cannot be used")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// What a certificate says about its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateIdentity {
    pub(super) common_name: String,
    organizations: Vec<String>,
    fingerprint: Digest,
    not_before: Timestamp,
    not_after: Timestamp,
    /// Who makes requests with it, once somebody wanted to know.
    client: OnceLock<Option<Arc<User>>>,
}

impl CertificateIdentity {
    /// Whether the certificate is within its time.
    pub(crate) fn holds_at(&self, now: Timestamp) -> Result<(), CertificateFault> {
        if now < self.not_before {
            return Err(CertificateFault::NotYet { now, not_before: self.not_before });
        }
        if now > self.not_after {
            return Err(CertificateFault::Expired { now, not_after: self.not_after });
        }
        Ok(())
    }

    /// The user who makes requests here. That is never the API server itself, which has a certificate for its calls to nodes: a node
    /// that gives our address as its own would have us ask ourselves, with all that we may do at nodes.
    pub(super) fn client(&self) -> Result<Option<Arc<User>>, CertificateFault> {
        if self.organizations.iter().any(|group| group == NODE_CLIENTS_GROUP) {
            return Err(CertificateFault::OfThisServer);
        }
        let known = || self.user().map(|user| Arc::new(among_all(user)));
        Ok(self.client.get_or_init(known).clone())
    }

    /// The user, or none if the certificate names nobody.
    pub(crate) fn user(&self) -> Option<User> {
        if self.common_name.is_empty() {
            return None;
        }
        let id = format!("X509SHA256={}", self.fingerprint.hex());
        Some(User {
            name: self.common_name.clone(),
            uid: String::new(),
            groups: self.organizations.clone(),
            extra: BTreeMap::from([(super::CREDENTIAL_ID.to_owned(), vec![id])]),
        })
    }

    /// Reads what a certificate says; who vouches for it is another question.
    pub(crate) fn read(leaf: &CertificateDer<'_>) -> Result<Self, CertificateFault> {
        let (_, parsed) =
            X509Certificate::from_der(leaf).map_err(|_| CertificateFault::Malformed)?;
        let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().map(str::to_owned);
        let time =
            |seconds| Timestamp::from_second(seconds).map_err(|_| CertificateFault::Malformed);
        Ok(Self {
            // Upstream's language takes the last one.
            common_name: parsed
                .subject()
                .iter_common_name()
                .filter_map(|attribute| text(attribute).ok())
                .last()
                .unwrap_or_default(),
            organizations: parsed
                .subject()
                .iter_organization()
                .filter_map(|attribute| text(attribute).ok())
                .collect(),
            fingerprint: Digest::of(leaf),
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
            client: OnceLock::new(),
        })
    }
}

/// Why a certificate is refused, in the words that users know from Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateFault {
    #[error(
        "x509: certificate has expired or is not yet valid: current time {now} is after {not_after}"
    )]
    Expired { now: Timestamp, not_after: Timestamp },
    #[error("x509: malformed certificate")]
    Malformed,
    #[error("x509: certificate is for requests of the API server to nodes")]
    OfThisServer,
    #[error(
        "x509: certificate has expired or is not yet valid: current time {now} is before {not_before}"
    )]
    NotYet { now: Timestamp, not_before: Timestamp },
    #[error("x509: an intermediate certificate has expired or is not yet valid")]
    Intermediate,
    #[error("x509: certificate specifies an incompatible key usage")]
    Purpose,
    #[error("x509: certificate signed by unknown authority")]
    UnknownAuthority,
    #[error("x509: certificate is not acceptable")]
    Unacceptable,
}

impl From<CertificateError> for CertificateFault {
    fn from(error: CertificateError) -> Self {
        match error {
            CertificateError::BadEncoding => Self::Malformed,
            // The leaf's own times were checked before.
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Self::Intermediate,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::Purpose
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            _ => Self::Unacceptable,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair};
    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::pki::{Pki, PkiConfig};

    const NOW: i64 = 1_700_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pki(dir: &tempfile::TempDir) -> Pki {
        let config = PkiConfig { dir: dir.path().to_owned(), ..PkiConfig::default() };
        Pki::open(config, at(NOW)).unwrap()
    }

    fn chain(pki: &Pki, user: &str, groups: &[&str]) -> Vec<CertificateDer<'static>> {
        let hour = Duration::from_secs(3600);
        let issued = pki.issue_client(user, groups, hour, at(NOW)).unwrap();
        vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()]
    }

    #[test]
    fn names_and_groups_come_from_the_subject() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        let authorities = ClientAuthorities::new(&[pki.cluster_authority().clone()]).unwrap();
        let verify = |chain: &[CertificateDer<'_>]| authorities.verify(chain, at(NOW)).unwrap();
        let user = verify(&chain(&pki, "alice", &["dev", "ops"])).user().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", ""));
        assert_eq!(user.groups, ["dev", "ops"]);
        let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
        assert!(id.starts_with("X509SHA256=") && id.len() == 75, "{id}");
        assert_eq!(verify(&chain(&pki, "", &["dev"])).user(), None);
    }

    /// Hole: a node that gave the API server's address as its own made it ask itself.
    #[test]
    fn the_certificate_for_requests_to_nodes_is_no_good_at_this_server() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        let authorities = ClientAuthorities::new(&[pki.cluster_authority().clone()]).unwrap();
        let verify = |chain: &[CertificateDer<'_>]| authorities.verify(chain, at(NOW)).unwrap();
        let ours = verify(&chain(&pki, "kube-apiserver-kubelet-client", &[NODE_CLIENTS_GROUP]));
        assert_eq!(ours.client(), Err(CertificateFault::OfThisServer));
        let alice = verify(&chain(&pki, "alice", &["dev"]));
        assert_eq!(alice.client().unwrap().unwrap().name, "alice");
    }

    #[test]
    fn times_count_to_the_second() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        let authorities = ClientAuthorities::new(&[pki.cluster_authority().clone()]).unwrap();
        let chain = chain(&pki, "alice", &[]);
        let check = |second, expected: Option<&str>| {
            let found = authorities.verify(&chain, at(second)).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected, "{second}");
        };
        check(NOW - 300, None);
        check(NOW + 3600, None);
        check(
            NOW + 3601,
            Some(
                "x509: certificate has expired or is not yet valid: current time \
                2023-11-14T23:13:21Z is after 2023-11-14T23:13:20Z",
            ),
        );
        check(
            NOW - 301,
            Some(
                "x509: certificate has expired or is not yet valid: current time \
                2023-11-14T22:08:19Z is before 2023-11-14T22:08:20Z",
            ),
        );
    }

    #[test]
    fn foreign_certificates_are_refused() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (pki, other) = (pki(&dir), pki(&other));
        let authorities = ClientAuthorities::new(&[pki.cluster_authority().clone()]).unwrap();
        let check = |chain: &[CertificateDer<'_>], expected| {
            assert_eq!(authorities.verify(chain, at(NOW)), Err(expected));
        };
        check(&chain(&other, "system:admin", &[]), CertificateFault::UnknownAuthority);
        check(&[], CertificateFault::Malformed);
        check(&[CertificateDer::from(vec![0x30, 0x00])], CertificateFault::Malformed);
        // The server's own certificate is signed by the same authority and is still no client.
        check(&pki.serving().chain(), CertificateFault::Purpose);
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        check(&[own.der().clone()], CertificateFault::UnknownAuthority);
    }
}
