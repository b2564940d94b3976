//! Who asks for a certificate is who they are, and who approves or signs may do so for the signer.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use serde_json::json;
use waybill_api::status::Status;
use x509_parser::{
    asn1_rs::{Any, Tag},
    prelude::{FromDer, X509CertificationRequest},
};

use super::{Admission, Attributes, Operation};
use crate::{
    document::{at, put, text},
    kinds::certificate_request::CERTIFICATE_SIGNING_REQUESTS,
    request::{Action, ResourceTarget, Target},
};

/// Signs certificates with which clients come to the API server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// May do everything, whatever the roles say.
const MASTERS: &str = "system:masters";

impl Admission {
    /// Writes into a new request who makes it, whatever it says.
    pub(super) fn set_requestor(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let is_new = attributes.operation == Operation::Create
            && attributes.is_main(&CERTIFICATE_SIGNING_REQUESTS);
        if !is_new || !at(&attributes.object, "/spec").is_object() {
            return Ok(());
        }
        let user = attributes.user;
        for (field, value) in [
            ("username", json!(user.name)),
            ("uid", json!(user.uid)),
            ("groups", json!(user.groups)),
            ("extra", json!(user.extra)),
        ] {
            put(&mut attributes.object, &format!("/spec/{field}"), value);
        }
        Ok(())
    }

    /// Nobody becomes an administrator by a certificate that the API server's own clients get.
    pub(super) fn restrict_subject(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Attributes { ref object, .. } = *attributes;
        let is_new = attributes.operation == Operation::Create
            && attributes.is_main(&CERTIFICATE_SIGNING_REQUESTS);
        if !is_new || text(object, "/spec/signerName") != CLIENT_SIGNER {
            return Ok(());
        }
        let groups = organizations(text(object, "/spec/request"))
            .map_err(|error| attributes.forbidden(&format!("failed to parse CSR: {error}")))?;
        if groups.iter().any(|group| group == MASTERS) {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            return Err(attributes.forbidden(&why));
        }
        Ok(())
    }

    /// Approving and signing are rights of their own, by signer.
    pub(super) fn check_signer(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let Attributes { old, ref object, .. } = *attributes;
        let verb = match attributes.part() {
            _ if !attributes.resource.is(&CERTIFICATE_SIGNING_REQUESTS) => return Ok(()),
            "approval" => "approve",
            // Who says that a request failed ends it, and so does who signs it.
            "status"
                if ["/status/certificate", "/status/conditions"]
                    .iter()
                    .any(|part| at(old, part) != at(object, part)) =>
            {
                "sign"
            }
            _ => return Ok(()),
        };
        let signer = text(old, "/spec/signerName");
        let domain = signer.split('/').next().unwrap_or_default();
        let may = |name: String| {
            let target = ResourceTarget {
                group: "certificates.k8s.io".to_owned(),
                version: "*".to_owned(),
                resource: "signers".to_owned(),
                name,
                ..ResourceTarget::default()
            };
            let action = Action { verb: verb.to_owned(), target: Target::Resource(target) };
            self.authorizer.authorize(attributes.user, &action, &[]).is_allowed()
        };
        if may(signer.to_owned()) || may(format!("{domain}/*")) {
            return Ok(());
        }
        Err(attributes.forbidden(&format!(
            "user not permitted to {verb} requests with signerName {signer:?}"
        )))
    }
}

/// The organizations in the subject of a request, in Base64 of PEM; they become the groups of its user.
///
/// What cannot be read for certain is an error, since whoever signs may read it in another way.
fn organizations(request: &str) -> Result<Vec<String>, &'static str> {
    let pem = STANDARD.decode(request).map_err(|_| "it is no Base64")?;
    if pem.windows(BEGIN.len()).filter(|found| *found == BEGIN).count() != 1 {
        return Err("it is not one PEM block");
    }
    let der = CertificateSigningRequestDer::from_pem_slice(&pem).map_err(|_| "it is no PEM")?;
    let (rest, request) = X509CertificationRequest::from_der(der.as_ref())
        .map_err(|_| "it is no certificate request")?;
    if !rest.is_empty() {
        return Err("something follows it");
    }
    let subject = &request.certification_request_info.subject;
    subject.iter_organization().map(|name| written(name.attr_value())).collect()
}

const BEGIN: &[u8] = b"-----BEGIN";

/// A text of ASN.1, of which there are several kinds.
fn written(value: &Any<'_>) -> Result<String, &'static str> {
    const UNREADABLE: &str = "an organization cannot be read";
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            String::from_utf8(value.data.to_vec()).map_err(|_| UNREADABLE)
        }
        // Upstream reads it as Latin-1 of which only the ASCII part is certain.
        Tag::T61String if value.data.is_ascii() => {
            String::from_utf8(value.data.to_vec()).map_err(|_| UNREADABLE)
        }
        Tag::BmpString => {
            let (units, rest) = value.data.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(UNREADABLE);
            }
            let units: Vec<u16> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            String::from_utf16(&units).map_err(|_| UNREADABLE)
        }
        _ => Err(UNREADABLE),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, string::BmpString};

    use super::*;

    fn request(organizations: Vec<DnValue>) -> String {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        for organization in organizations {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        request.pem().unwrap()
    }

    #[test]
    fn groups_are_read_in_every_spelling() {
        let read = |value: DnValue| organizations(&STANDARD.encode(request(vec![value]))).unwrap();
        assert_eq!(read(DnValue::Utf8String(MASTERS.into())), [MASTERS]);
        assert_eq!(read(DnValue::PrintableString(MASTERS.try_into().unwrap())), [MASTERS]);
        let wide = BmpString::try_from(MASTERS).unwrap();
        assert_eq!(read(DnValue::BmpString(wide)), [MASTERS]);
        assert!(organizations(&STANDARD.encode(request(vec![]))).unwrap().is_empty());
    }

    #[test]
    fn what_others_could_read_otherwise_is_not_read() {
        let harmless = request(vec![]);
        let masters = request(vec![DnValue::Utf8String(MASTERS.into())]);
        for pem in [
            format!("{harmless}{masters}"),
            harmless.replace("CERTIFICATE REQUEST", "CERTIFICATE"),
            "-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----".into(),
            String::new(),
        ] {
            assert!(organizations(&STANDARD.encode(&pem)).is_err(), "{pem}");
        }
        assert!(organizations("?").is_err());
    }
}
