//! The certificate and key of a plugin.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use rustls::{
    Error, InconsistentKeys,
    crypto::{CryptoProvider, aws_lc_rs},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use waybill_core::secret::SecretBytes;
use x509_parser::{parse_x509_certificate, time::ASN1Time};

use crate::PairError;

/// A client certificate with its intermediates and its key.
pub struct ClientCertificate {
    key: Arc<CertifiedKey>,
    subject: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl ClientCertificate {
    /// Reads both from PEM.
    pub(crate) fn parse(certificate: &SecretBytes, key: &SecretBytes) -> Result<Self, PairError> {
        let chain = CertificateDer::pem_slice_iter(certificate.expose())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| PairError::NoCertificate)?;
        let leaf = chain.first().ok_or(PairError::NoCertificate)?;
        let (_, parsed) = parse_x509_certificate(leaf).map_err(|_| PairError::Certificate)?;
        let subject = parsed.subject().to_string();
        let validity = parsed.validity();
        let (not_before, not_after) = (time(validity.not_before), time(validity.not_after));
        let key = PrivateKeyDer::from_pem_slice(key.expose()).map_err(|_| PairError::NoKey)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => PairError::Mismatch,
            _ => PairError::Key,
        })?;
        Ok(Self { key: Arc::new(key), subject, not_before, not_after })
    }

    /// For handshakes.
    pub(crate) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// Whether both are the same for a server. A certificate vouches for one key.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }

    /// Whom it names.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// From when on servers accept it.
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// Until when servers accept it. Nothing here looks at it: the plugin says when to ask again.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// How many certificates are sent with it.
    pub fn intermediates(&self) -> usize {
        self.key.cert.len().saturating_sub(1)
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("subject", &self.subject)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// The one that the program chose, or that which `kube` chooses.
fn provider() -> Arc<CryptoProvider> {
    match CryptoProvider::get_default() {
        Some(chosen) => Arc::clone(chosen),
        None => Arc::new(aws_lc_rs::default_provider()),
    }
}

/// Certificates may name years that no clock will see.
fn time(time: ASN1Time) -> Timestamp {
    Timestamp::from_second(time.timestamp()).unwrap_or(Timestamp::MAX)
}
