//! TLS towards webhooks: they prove who they are, and if they ask, so do we.
//!
//! The certificate is the one that the server shows to nodes, as it is at the time of the call.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use rustls::{
    ClientConfig, RootCertStore, SignatureScheme,
    client::ResolvesClientCert,
    crypto::aws_lc_rs::{self, sign::any_supported_type},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::pki::{Pki, TrustedLeaf};

/// As many different sets of authorities as are kept ready; each is one `caBundle`.
const MOST_KEPT: usize = 64;

/// Why no TLS can be spoken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookTlsError {
    #[error("clientConfig.caBundle holds no certificate in PEM")]
    Bundle,
    #[error(
        "no authority is trusted: set clientConfig.caBundle, or install the system's certificates"
    )]
    NoRoots,
    #[error("tls: {0}")]
    Config(#[from] rustls::Error),
}

/// How connections to webhooks are secured.
pub(crate) struct WebhookTls {
    identity: Arc<dyn ResolvesClientCert>,
    /// By bundle; kept, so that sessions are resumed.
    ready: Mutex<HashMap<Vec<u8>, Arc<ClientConfig>>>,
    system: OnceLock<RootCertStore>,
}

impl WebhookTls {
    pub(crate) fn new(pki: &Arc<Pki>) -> Self {
        Self {
            identity: Arc::new(OwnIdentity(Arc::clone(pki))),
            ready: Mutex::default(),
            system: OnceLock::new(),
        }
    }

    /// Trusts the authorities in `bundle`, or those of the system if it is empty.
    pub(super) fn trusting(&self, bundle: &[u8]) -> Result<Arc<ClientConfig>, WebhookTlsError> {
        let ready = || self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = ready().get(bundle) {
            return Ok(Arc::clone(config));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = if bundle.is_empty() {
            let roots = self.system.get_or_init(system_roots).clone();
            if roots.is_empty() {
                return Err(WebhookTlsError::NoRoots);
            }
            builder.with_root_certificates(roots)
        } else {
            let verifier = Arc::new(verifier_of(bundle)?);
            builder.dangerous().with_custom_certificate_verifier(verifier)
        };
        let mut config = builder.with_client_cert_resolver(Arc::clone(&self.identity));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut ready = ready();
        if ready.len() >= MOST_KEPT {
            ready.clear();
        }
        ready.insert(bundle.to_vec(), Arc::clone(&config));
        Ok(config)
    }
}

fn verifier_of(bundle: &[u8]) -> Result<TrustedLeaf, WebhookTlsError> {
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(bundle)
        .collect::<Result<_, _>>()
        .map_err(|_| WebhookTlsError::Bundle)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|_| WebhookTlsError::Bundle)?;
    }
    TrustedLeaf::new(roots, certificates).map_err(|_| WebhookTlsError::Bundle)
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Who we are to webhooks that ask.
struct OwnIdentity(Arc<Pki>);

impl fmt::Debug for OwnIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnIdentity")
    }
}

impl ResolvesClientCert for OwnIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let own = self.0.node_client();
        let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .ok()?;
        let key = PrivateKeyDer::from_pem_slice(own.key.expose()).ok()?;
        Some(Arc::new(CertifiedKey::new(chain, any_supported_type(&key).ok()?)))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
