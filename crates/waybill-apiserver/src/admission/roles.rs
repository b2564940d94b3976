//! Nobody hands out rights that they do not have.

use serde_json::Value;
use waybill_api::status::Status;

use super::{Admission, Attributes, Operation};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

impl Admission {
    pub(super) fn check_roles(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let gives = matches!(attributes.operation, Operation::Create | Operation::Update);
        if attributes.resource.group != RBAC_GROUP || !gives {
            return Ok(());
        }
        let old = Some(attributes.old).filter(|old| **old != Value::Null);
        self.authorizer
            .check_rbac_write(attributes.user, old, &attributes.object)
            .map_err(|error| attributes.forbidden(&error.to_string()))
    }
}
