//! The server side of TLS.
//!
//! A client may present a certificate or not. The handshake proves that the client holds the key and
//! nothing more: who vouches for the certificate is judged by [`crate::authn`], which knows two
//! authorities and answers 401 with a reason, as upstream does, where a handshake could only hang up.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs},
    server::{
        ClientHello, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};

use super::authority::{Issued, parse};

/// A TLS 1.2 and 1.3 server for HTTP/2 and HTTP/1.1 that asks for a client certificate.
///
/// `hints` are the authorities named to clients, so that they can choose among their certificates.
pub(crate) fn server_config(
    serving: Arc<ServingCertificate>,
    hints: &[CertificateDer<'_>],
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = ClientPossession::new(&provider, hints)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificate that the server shows; swapped while connections go on.
#[derive(Debug)]
pub(crate) struct ServingCertificate(ArcSwap<CertifiedKey>);

impl ServingCertificate {
    /// Starts with `issued`.
    pub(crate) fn new(issued: &Issued) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from_pointee(certified_key(issued)?)))
    }

    /// Shows `issued` to every connection from now on.
    pub(crate) fn replace(&self, issued: &Issued) -> Result<(), TlsError> {
        self.0.store(Arc::new(certified_key(issued)?));
        Ok(())
    }

    /// The chain shown now, the server's own certificate first.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.0.load().cert.clone()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("an authority's certificate cannot be read")]
    Authority(#[source] super::authority::IssueError),
    #[error("not usable as PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error("not usable for TLS")]
    Rustls(#[from] rustls::Error),
}

/// Checks that a client holds the key of its certificate, whoever signed that.
#[derive(Debug)]
struct ClientPossession {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientPossession {
    fn new(provider: &CryptoProvider, hints: &[CertificateDer<'_>]) -> Result<Self, TlsError> {
        let subject = |der| -> Result<_, TlsError> {
            let parsed = parse(der).map_err(TlsError::Authority)?;
            Ok(DistinguishedName::from(parsed.subject().as_raw().to_vec()))
        };
        let hints = hints.iter().map(subject).collect::<Result<_, _>>()?;
        Ok(Self { hints, algorithms: provider.signature_verification_algorithms })
    }
}

impl ClientCertVerifier for ClientPossession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn certified_key(issued: &Issued) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(issued.key.expose())?;
    // Checks as well that the two belong together.
    Ok(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
}
