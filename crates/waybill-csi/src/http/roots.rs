//! Which certificates are trusted.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use super::HttpError;

/// TLS that trusts `bundle` and nobody else, or whom this machine trusts.
pub(super) fn client_config(bundle: Option<&str>) -> Result<ClientConfig, HttpError> {
    let roots = match bundle {
        Some(bundle) => Arc::new(parse(bundle)?),
        None => machine_roots(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(HttpError::Tls)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn parse(bundle: &str) -> Result<RootCertStore, HttpError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        let certificate = certificate.map_err(|_| HttpError::Bundle)?;
        roots.add(certificate).map_err(|_| HttpError::Bundle)?;
    }
    if roots.is_empty() { Err(HttpError::Bundle) } else { Ok(roots) }
}

/// Read once: it takes milliseconds and hundreds of kilobytes. None at all is no fault here, because
/// a backend on this machine may be asked without TLS; the handshake with any other one fails.
fn machine_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    Arc::clone(roots)
}
