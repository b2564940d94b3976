//! Certificate authorities and what they issue.
//!
//! Everything here is in memory and pure but for the random keys; the time is an argument.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use waybill_core::secret::SecretBytes;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// Certificates start this long before they are made, for peers whose clocks are late.
const SKEW: Duration = Duration::from_secs(5 * 60);

/// A certificate and its private key, both in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: SecretBytes,
}

/// A certificate authority that can sign.
pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    validity: Validity,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new self-signed authority.
    pub(crate) fn generate(
        name: &str,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Issued, IssueError> {
        let mut params = params(name, &[], Validity::starting(now, lifetime))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Issued { certificate: certificate.pem(), key: pem_of(&key) })
    }

    /// The authority with this certificate and key, which must belong together.
    pub(crate) fn load(certificate: &[u8], key: &SecretBytes) -> Result<Self, IssueError> {
        let der = CertificateDer::from_pem_slice(certificate)?;
        let parsed = parse(&der)?;
        if !parsed.is_ca() {
            return Err(IssueError::NotAnAuthority);
        }
        let validity = Validity::of(&parsed);
        let private = PrivateKeyDer::from_pem_slice(key.expose())?;
        let key = KeyPair::try_from(&private)?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(IssueError::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&der, key)?;
        Ok(Self { certificate: der, validity, issuer })
    }

    /// Signs a certificate with a new key.
    pub(crate) fn issue(
        &self,
        subject: &Subject<'_>,
        now: Timestamp,
    ) -> Result<Issued, IssueError> {
        if now >= self.validity.not_after {
            return Err(IssueError::AuthorityExpired(self.validity.not_after));
        }
        let mut validity = Validity::starting(now, subject.lifetime);
        validity.not_after = validity.not_after.min(self.validity.not_after);
        let mut params = params(subject.name, subject.groups, validity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        match subject.usage {
            Usage::Client => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server(names) => {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
            }
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        // Peers find the issuer by its name, byte for byte.
        if parse(certificate.der())?.issuer().as_raw()
            != parse(&self.certificate)?.subject().as_raw()
        {
            return Err(IssueError::IssuerName);
        }
        Ok(Issued { certificate: certificate.pem(), key: pem_of(&key) })
    }

    /// The authority's own certificate.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }
}

/// Whom a certificate is for.
pub(crate) struct Subject<'a> {
    /// Common name: the user.
    pub(crate) name: &'a str,
    /// Organizations: the user's groups.
    pub(crate) groups: &'a [&'a str],
    pub(crate) usage: Usage<'a>,
    pub(crate) lifetime: Duration,
}

/// What a certificate may be used for.
#[derive(Clone, Copy)]
pub(crate) enum Usage<'a> {
    Client,
    /// For a server with these DNS names and IP addresses.
    Server(&'a [String]),
}

/// When a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl Validity {
    /// As the certificate says.
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        let time = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            not_before: time(validity.not_before.timestamp()),
            not_after: time(validity.not_after.timestamp()),
        }
    }

    /// Whether less than 30 % of the lifetime is left.
    pub(crate) fn ends_soon(&self, now: Timestamp) -> bool {
        let left = self.not_after.as_second() - now.as_second();
        let lifetime = self.not_after.as_second() - self.not_before.as_second();
        left.saturating_mul(10) < lifetime.saturating_mul(3)
    }

    fn starting(now: Timestamp, lifetime: Duration) -> Self {
        let not_before = now.checked_sub(SKEW).unwrap_or(Timestamp::UNIX_EPOCH);
        let not_after = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        Self { not_before, not_after }
    }
}

/// Why a certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    #[error("the certificate authority expired at {0}; replace it")]
    AuthorityExpired(Timestamp),
    #[error("the authority's subject is one that cannot be copied; use one value per attribute")]
    IssuerName,
    #[error("the certificate and the private key do not belong together")]
    KeyMismatch,
    #[error("the certificate is not well-formed")]
    Malformed,
    #[error("the certificate is not one of a certificate authority")]
    NotAnAuthority,
    #[error("not usable as PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error("making a certificate failed")]
    Sign(#[from] rcgen::Error),
    #[error("{0} groups do not fit in a certificate; at most 2 do")]
    TooManyGroups(usize),
}

/// Reads one DER certificate.
pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, IssueError> {
    X509Certificate::from_der(der).map(|(_, parsed)| parsed).map_err(|_| IssueError::Malformed)
}

fn params(
    name: &str,
    groups: &[&str],
    validity: Validity,
) -> Result<CertificateParams, IssueError> {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let after_epoch = |time: Timestamp| Duration::from_secs(time.as_second().max(0).unsigned_abs());
    let mut params = CertificateParams::new(Vec::new())?;
    params.not_before = epoch + after_epoch(validity.not_before);
    params.not_after = epoch + after_epoch(validity.not_after);
    params.distinguished_name = DistinguishedName::new();
    // rcgen 0.14 keeps one value per attribute type; the same OID under its second spelling makes two.
    let organization = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    if groups.len() > organization.len() {
        return Err(IssueError::TooManyGroups(groups.len()));
    }
    for (kind, group) in organization.into_iter().zip(groups) {
        params.distinguished_name.push(kind, *group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn pem_of(key: &KeyPair) -> SecretBytes {
    SecretBytes::from(key.serialize_pem().into_bytes())
}
