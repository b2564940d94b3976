//! Servers whose certificate is itself what is trusted.
//!
//! Many bundles hold one certificate, which somebody made for one server and let sign itself, marked as an authority. Go's
//! clients take such a certificate for the server's own; webpki refuses it, because an authority is no server.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::aws_lc_rs,
    server::{ParsedCertificate, VerifierBuilderError},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Trusts what a bundle of certificates vouches for, and those certificates as the servers' own.
#[derive(Debug)]
pub(crate) struct TrustedLeaf {
    authorities: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl TrustedLeaf {
    /// `roots` are the authorities in `bundle`.
    pub(crate) fn new(
        roots: RootCertStore,
        bundle: Vec<CertificateDer<'static>>,
    ) -> Result<Self, VerifierBuilderError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self { authorities: builder.build()?, bundle })
    }
}

impl ServerCertVerifier for TrustedLeaf {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = self.authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        if found.is_ok() || !self.bundle.iter().any(|own| own.as_ref() == end_entity.as_ref()) {
            return found;
        }
        // Whoever made the bundle vouches for this very certificate; the handshake proves its key.
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        check_time_and_purpose(end_entity, now).map_err(Error::InvalidCertificate)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

fn check_time_and_purpose(
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), CertificateError> {
    let bad = |_| CertificateError::BadEncoding;
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| bad(()))?;
    let validity = certificate.validity();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    let usage = certificate.extended_key_usage().map_err(|_| bad(()))?;
    // One that names no purpose has all.
    match usage.map(|usage| usage.value) {
        Some(usage) if !usage.any && !usage.server_auth => Err(CertificateError::InvalidPurpose),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
    };

    use super::*;

    /// A certificate that signed itself, for `hook.example`, as an authority.
    fn own(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["hook.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verify(
        bundle: &CertificateDer<'static>,
        shown: &CertificateDer<'static>,
        name: &str,
    ) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(bundle.clone()).unwrap();
        let verifier = TrustedLeaf::new(roots, vec![bundle.clone()]).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::now()).map(|_| ())
    }

    #[test]
    fn an_authority_is_the_server_that_it_was_made_for() {
        let certificate = own(|_| {});
        verify(&certificate, &certificate, "hook.example").unwrap();
        let told = verify(&certificate, &certificate, "other.example").unwrap_err();
        assert!(told.to_string().contains("not valid for name"), "{told}");
        // Another of the same name and the same words.
        verify(&certificate, &own(|_| {}), "hook.example").unwrap_err();
    }

    #[test]
    fn an_authority_that_ended_or_serves_nothing_is_no_server() {
        let refused = |change: fn(&mut CertificateParams)| {
            let certificate = own(change);
            match verify(&certificate, &certificate, "hook.example") {
                Err(Error::InvalidCertificate(why)) => why,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            refused(|params| params.not_after = date_time_ymd(2020, 1, 1)),
            CertificateError::Expired
        );
        assert_eq!(
            refused(|params| params.not_before = date_time_ymd(4000, 1, 1)),
            CertificateError::NotValidYet
        );
        assert_eq!(
            refused(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            CertificateError::InvalidPurpose
        );
        let serving =
            own(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
        verify(&serving, &serving, "hook.example").unwrap();
    }
}
