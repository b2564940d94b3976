//! A certificate and its key as two files: read, judged, and made anew when they no longer do.

use std::{net::IpAddr, path::Path};

use jiff::Timestamp;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use waybill_core::secret::SecretBytes;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use super::{
    PairPaths, PkiError,
    authority::{Authority, Issued, Subject, Usage, Validity, parse},
    files::{self, Audience},
    issue_at,
    tls::ServingCertificate,
};

/// The pair `stem` of the directory, made anew unless the one there is good for a while.
pub(super) fn own_pair(
    dir: &Path,
    stem: &str,
    authority: &Authority,
    subject: &Subject<'_>,
    now: Timestamp,
) -> Result<Issued, PkiError> {
    let paths = paths(dir, stem);
    if let Some(pair) = read_pair(&paths)?
        && still_good(&pair, authority, subject, now)
    {
        return Ok(pair);
    }
    let issued = authority.issue(subject, now).map_err(issue_at(&paths.certificate))?;
    // A crash between the two leaves a pair that does not match, which the next start replaces.
    files::write(&paths.key, issued.key.expose(), Audience::Owner)?;
    files::write(&paths.certificate, issued.certificate.as_bytes(), Audience::Everyone)?;
    Ok(issued)
}

pub(super) fn paths(dir: &Path, stem: &str) -> PairPaths {
    PairPaths { certificate: dir.join(format!("{stem}.crt")), key: dir.join(format!("{stem}.key")) }
}

fn read_pair(paths: &PairPaths) -> Result<Option<Issued>, PkiError> {
    let certificate = files::read(&paths.certificate)?;
    let key = files::read_key(&paths.key)?;
    Ok(certificate.zip(key).map(|(certificate, key)| pair_of(&certificate, key)))
}

/// A pair that the user supplied, whose modes are the user's business.
pub(super) fn required_pair(paths: &PairPaths) -> Result<Issued, PkiError> {
    let certificate = files::read_existing(&paths.certificate)?;
    Ok(pair_of(&certificate, SecretBytes::from(files::read_existing(&paths.key)?)))
}

/// Bytes around the PEM blocks may be anything; the blocks themselves are ASCII.
pub(super) fn pair_of(certificate: &[u8], key: SecretBytes) -> Issued {
    Issued { certificate: String::from_utf8_lossy(certificate).into_owned(), key }
}

/// Whether a pair of ours can go on serving; one that cannot be read cannot.
fn still_good(pair: &Issued, authority: &Authority, subject: &Subject<'_>, now: Timestamp) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pair.certificate.as_bytes()) else { return false };
    let Ok(parsed) = parse(&der) else { return false };
    let Ok(ca) = parse(authority.certificate()) else { return false };
    let names_covered = match subject.usage {
        Usage::Client => true,
        Usage::Server(names) => names.iter().all(|name| covers(&parsed, name)),
    };
    let validity = Validity::of(&parsed);
    let of_user = parsed.subject().iter_common_name().next();
    names_covered
        && of_user.and_then(|name| name.as_str().ok()) == Some(subject.name)
        && !validity.ends_soon(now)
        && validity.not_before <= now
        && parsed.verify_signature(Some(ca.public_key())).is_ok()
        && ServingCertificate::new(pair).is_ok()
}

pub(super) fn covers(certificate: &X509Certificate<'_>, wanted: &str) -> bool {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    let address = wanted.parse::<IpAddr>().ok();
    names.value.general_names.iter().any(|name| match (name, address) {
        (GeneralName::DNSName(name), None) => *name == wanted,
        (GeneralName::IPAddress(bytes), Some(IpAddr::V4(ip))) => *bytes == ip.octets(),
        (GeneralName::IPAddress(bytes), Some(IpAddr::V6(ip))) => *bytes == ip.octets(),
        _ => false,
    })
}
