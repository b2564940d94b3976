//! Objects live only in namespaces that exist, are made only in those that are not going away, and some
//! namespaces stay.

use waybill_api::status::{Status, Target};

use super::{Admission, Attributes, Operation};
use crate::{document::is_terminating, kinds::namespace::NAMESPACES};

/// Namespaces that the cluster cannot do without.
const KEPT: &[&str] = &["default", "kube-public", "kube-system"];

impl Admission {
    pub(super) fn check_namespace(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let kept = KEPT.contains(&attributes.name());
        if attributes.operation == Operation::Delete && attributes.is_main(&NAMESPACES) && kept {
            return Err(attributes.forbidden("this namespace may not be deleted"));
        }
        // Whether somebody may do something somewhere is a fair question about any place.
        let is_review = !attributes.resource.is_stored();
        let makes = attributes.operation == Operation::Create;
        if !attributes.resource.is_namespaced() || is_review || !makes {
            return Ok(());
        }
        let namespace = attributes.namespace;
        let Some(found) = self.objects.namespace(namespace) else {
            let target = Target { group: "", resource: NAMESPACES.plural, name: namespace };
            return Err(Status::not_found(target));
        };
        if is_terminating(&found) {
            return Err(attributes.forbidden(&format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            )));
        }
        Ok(())
    }
}
