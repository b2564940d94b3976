//! Who asks for a certificate is who they are, and who approves or signs may do so for the signer.

use serde_json::json;
use waybill_api::status::Status;

use super::{Admission, Attributes, Operation};
use crate::{
    document::{at, put, text},
    kinds::certificate_request::CERTIFICATE_SIGNING_REQUESTS,
    request::{Action, ResourceTarget, Target},
};

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
