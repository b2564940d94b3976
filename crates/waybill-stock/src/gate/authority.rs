//! Certificates that the gate makes for itself.
//!
//! All replicas share one authority, in a Secret; each makes its own certificate of it, in memory, and renews that. Authorities
//! are renewed with an overlap: the next one is told to API servers for a while before anything is signed with it, and the one
//! before stays believed until it is over. Pure but for random keys; the time is an argument.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use waybill_core::secret::SecretBytes;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// How long an authority is good, in seconds.
const AUTHORITY_SECONDS: i64 = 365 * 24 * 60 * 60;

/// When the next one is made: this long before the end.
const RENEW_SECONDS: i64 = 60 * 24 * 60 * 60;

/// How long the next one is told to API servers before it signs.
const OVERLAP_SECONDS: i64 = 24 * 60 * 60;

/// How long a certificate of a replica is good. It is renewed at half of that.
pub(super) const LEAF_SECONDS: i64 = 14 * 24 * 60 * 60;

/// Certificates start this long before they are made, for peers whose clocks are late.
const SKEW_SECONDS: i64 = 5 * 60;

/// The authorities that replicas share.
pub(super) struct Authorities {
    /// Signs.
    current: Authority,
    /// Is about to.
    next: Option<Authority>,
    /// Did.
    previous: Option<String>,
}

struct Authority {
    certificate: String,
    key: SecretBytes,
    made: i64,
    until: i64,
}

impl Authorities {
    /// A first authority.
    pub(super) fn generate(now: i64) -> Result<Self, AuthorityError> {
        Ok(Self { current: Authority::generate(now)?, next: None, previous: None })
    }

    /// Reads the data of the Secret.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, AuthorityError> {
        let authority = |certificate: &str, key: &str| {
            let pair = data.get(certificate).zip(data.get(key));
            pair.map(|(certificate, key)| Authority::read(&certificate.0, &key.0)).transpose()
        };
        let previous = data.get("previous.crt").map(|text| text_of(&text.0)).transpose()?;
        Ok(Self {
            current: authority("ca.crt", "ca.key")?.ok_or(AuthorityError::Missing)?,
            next: authority("next.crt", "next.key")?,
            previous,
        })
    }

    /// The data of the Secret.
    pub(super) fn to_data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        let mut put = |name: &str, bytes: &[u8]| {
            data.insert(name.to_owned(), ByteString(bytes.to_vec()));
        };
        put("ca.crt", self.current.certificate.as_bytes());
        put("ca.key", self.current.key.expose());
        if let Some(next) = &self.next {
            put("next.crt", next.certificate.as_bytes());
            put("next.key", next.key.expose());
        }
        if let Some(previous) = &self.previous {
            put("previous.crt", previous.as_bytes());
        }
        data
    }

    /// What is to change now; `None` if nothing is.
    pub(super) fn renewed(self, now: i64) -> Result<Option<Self>, AuthorityError> {
        match self.next {
            None if now >= self.current.until.saturating_sub(RENEW_SECONDS) => {
                Ok(Some(Self { next: Some(Authority::generate(now)?), ..self }))
            }
            Some(next)
                if now >= next.made.saturating_add(OVERLAP_SECONDS)
                    || now >= self.current.until =>
            {
                let previous = Some(self.current.certificate);
                Ok(Some(Self { current: next, next: None, previous }))
            }
            _ => Ok(None),
        }
    }

    /// All that API servers are to believe, in PEM.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| next.certificate.as_str());
        let all = [Some(self.current.certificate.as_str()), next, self.previous.as_deref()];
        all.into_iter().flatten().collect()
    }

    /// The one that signs; another means that certificates are to be made anew.
    pub(super) fn current(&self) -> &str {
        &self.current.certificate
    }

    /// A certificate for a server of these names.
    pub(super) fn issue(&self, names: &[String], now: i64) -> Result<Issued, AuthorityError> {
        let until = now.saturating_add(LEAF_SECONDS).min(self.current.until);
        let mut params = params("waybill-gate", now, until)?;
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let der = CertificateDer::from_pem_slice(self.current.certificate.as_bytes())?;
        let private = PrivateKeyDer::from_pem_slice(self.current.key.expose())?;
        let issuer = Issuer::from_ca_cert_der(&der, KeyPair::try_from(&private)?)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        Ok(Issued { chain: vec![certificate.der().clone()], key })
    }
}

/// A certificate and its key.
pub(super) struct Issued {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Authority {
    fn generate(now: i64) -> Result<Self, AuthorityError> {
        let until = now.saturating_add(AUTHORITY_SECONDS);
        // The time keeps names of authorities apart, so that chains are found by name.
        let mut params = params(&format!("waybill-gate-{now}"), now, until)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        let key = SecretBytes::from(key.serialize_pem().into_bytes());
        Ok(Self { certificate, key, made: now, until })
    }

    fn read(certificate: &[u8], key: &[u8]) -> Result<Self, AuthorityError> {
        let der = CertificateDer::from_pem_slice(certificate)?;
        let (_, parsed) =
            X509Certificate::from_der(&der).map_err(|_| AuthorityError::Certificate)?;
        let validity = parsed.validity();
        Ok(Self {
            certificate: text_of(certificate)?,
            key: SecretBytes::copy_of(key),
            made: validity.not_before.timestamp().saturating_add(SKEW_SECONDS),
            until: validity.not_after.timestamp(),
        })
    }
}

fn text_of(bytes: &[u8]) -> Result<String, AuthorityError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| AuthorityError::Certificate)
}

fn params(name: &str, now: i64, until: i64) -> Result<CertificateParams, AuthorityError> {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let after_epoch = |time: i64| Duration::from_secs(time.max(0).unsigned_abs());
    let mut params = CertificateParams::new(Vec::new())?;
    params.not_before = epoch + after_epoch(now.saturating_sub(SKEW_SECONDS));
    params.not_after = epoch + after_epoch(until);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Why there is no authority, or nothing of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorityError {
    #[error("its certificate is not understood")]
    Certificate,
    #[error("the Secret has no ca.crt and ca.key")]
    Missing,
    #[error("its certificate or key is not usable as PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error("a certificate could not be made")]
    Make(#[from] rcgen::Error),
}

#[cfg(test)]
mod tests {
    use super::{super::tls::Tls, *};

    const NOW: i64 = 1_800_000_000;
    const DAY: i64 = 24 * 60 * 60;

    fn authorities(found: Option<Authorities>) -> Authorities {
        found.expect("something is to change")
    }

    #[test]
    fn what_is_written_is_read_back() {
        let made = Authorities::generate(NOW).unwrap();
        let read = Authorities::read(&made.to_data()).unwrap();
        assert_eq!(read.bundle(), made.bundle());
        assert_eq!((read.current.made, read.current.until), (NOW, NOW + AUTHORITY_SECONDS));
        assert!(matches!(Authorities::read(&BTreeMap::new()), Err(AuthorityError::Missing)));
    }

    #[test]
    fn the_next_authority_is_told_before_it_signs_and_the_old_one_stays_believed() {
        let first = Authorities::generate(NOW).unwrap();
        let signing = first.current().to_owned();
        let soon = NOW + AUTHORITY_SECONDS - RENEW_SECONDS;
        assert!(Authorities::read(&first.to_data()).unwrap().renewed(soon - 1).unwrap().is_none());
        let overlapping = authorities(first.renewed(soon).unwrap());
        assert_eq!(overlapping.current(), signing, "nothing is signed with it yet");
        let next = overlapping.next.as_ref().unwrap().certificate.clone();
        assert_eq!(overlapping.bundle(), format!("{signing}{next}"));
        let again = Authorities::read(&overlapping.to_data()).unwrap();
        assert!(again.renewed(soon + DAY - 1).unwrap().is_none());
        let changed = authorities(overlapping.renewed(soon + DAY).unwrap());
        assert_eq!(changed.current(), next);
        assert_eq!(changed.bundle(), format!("{next}{signing}"));
        assert!(changed.renewed(soon + 2 * DAY).unwrap().is_none());
    }

    #[test]
    fn a_certificate_is_usable_for_tls_and_ends_with_its_authority() {
        let authorities = Authorities::generate(NOW).unwrap();
        let names = ["waybill-gate.waybill-system.svc".to_owned(), "127.0.0.1".to_owned()];
        let late = NOW + AUTHORITY_SECONDS - DAY;
        let issued = authorities.issue(&names, late).unwrap();
        let (_, parsed) = X509Certificate::from_der(&issued.chain[0]).unwrap();
        assert_eq!(parsed.validity().not_after.timestamp(), NOW + AUTHORITY_SECONDS);
        let text = parsed.subject_alternative_name().unwrap().unwrap().value;
        assert_eq!(text.general_names.len(), 2);
        Tls::default().show(issued.chain, issued.key).unwrap();
    }
}
