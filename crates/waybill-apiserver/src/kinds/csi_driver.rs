//! CSIDrivers.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waybill_api::field::{ErrorList, FieldError};

use super::{
    Context, Generation, Kind, Shape,
    document::{Field, fill, fill_text, object_mut, same},
};

use crate::{
    registry::{Resource, Scope},
    schema::{self, KindSchema},
    table::{Table, cells, columns},
};

static CSI_DRIVERS_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::storage::v1::CSIDriver>();

pub(crate) static CSI_DRIVERS: Resource = Resource {
    group: "storage.k8s.io",
    plural: "csidrivers",
    singular: "csidriver",
    kind: "CSIDriver",
    scope: Scope::Cluster,
    schemas: &CSI_DRIVERS_SCHEMAS,
    rules: Some(&CsiDriver),
    table: Table { columns: columns::CSI_DRIVERS, cells: cells::csi_driver, ..Table::PLAIN },
    ..Resource::BASE
};

pub(super) struct CsiDriver;

impl Kind for CsiDriver {
    fn shape(&self) -> Shape {
        Shape { generation: Generation::OfSpec, unconditional_update: false, ..Shape::CLUSTER }
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object_mut(object, "spec") else { return };
        fill(spec, "attachRequired", true);
        fill_text(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        for field in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
            fill(spec, field, false);
        }
        if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty)
            && let Value::Object(fields) = spec
        {
            fields.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let (metadata, spec) = (object.get("metadata"), object.get("spec"));
        let name = metadata.get("name");
        // The name is a socket's folder on the node, hence shorter than others.
        if name.text().len() > NAME_BYTES {
            errors.push(FieldError::too_long(name.path(), NAME_BYTES));
        }
        for mode in spec.get("volumeLifecycleModes").items() {
            if !LIFECYCLE_MODES.contains(&mode.text()) {
                errors.push(mode.not_supported(&LIFECYCLE_MODES));
            }
        }
        let policy = spec.get("fsGroupPolicy");
        if !FS_GROUP_POLICIES.contains(&policy.text()) {
            errors.push(policy.not_supported(&FS_GROUP_POLICIES));
        }
        let mut audiences = BTreeSet::new();
        for request in spec.get("tokenRequests").items() {
            let audience = request.get("audience");
            if !audiences.insert(audience.text()) {
                errors.push(audience.duplicate());
            }
            let seconds = request.get("expirationSeconds");
            if seconds.number().is_some_and(|seconds| seconds < MIN_TOKEN_SECONDS) {
                errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
            }
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        let (new, old) = (new.get("spec"), old.get("spec"));
        for name in ["attachRequired", "volumeLifecycleModes"] {
            let field = new.get(name);
            if !same(field.value(), old.get(name).value()) {
                errors.push(field.invalid("field is immutable"));
            }
        }
    }
}

const NAME_BYTES: usize = 63;
const LIFECYCLE_MODES: [&str; 2] = ["Ephemeral", "Persistent"];
const FS_GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const MIN_TOKEN_SECONDS: i64 = 600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{check_create, check_update, defaulted};

    fn driver(spec: &Value) -> Value {
        json!({"metadata": {"name": "d.example.com"}, "spec": spec})
    }

    #[test]
    fn defaults() {
        assert_eq!(
            defaulted(&CsiDriver, &json!({}))["spec"],
            json!({"attachRequired": true, "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "podInfoOnMount": false, "requiresRepublish": false, "seLinuxMount": false,
                "storageCapacity": false, "volumeLifecycleModes": ["Persistent"]})
        );
    }

    #[test]
    fn closed_sets_and_changes() {
        check_create(&CsiDriver, &driver(&json!({})), &[]);
        check_create(
            &CsiDriver,
            &driver(&json!({"volumeLifecycleModes": ["Odd"], "fsGroupPolicy": "Odd",
                "tokenRequests": [{"audience": "a"}, {"audience": "a", "expirationSeconds": 1}]})),
            &[
                "spec.volumeLifecycleModes[0]: Unsupported value: \"Odd\": supported values: \"Eph",
                "spec.fsGroupPolicy: Unsupported value: \"Odd\": supported values: \"File\", \"None\"",
                "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
                "spec.tokenRequests[1].expirationSeconds: Invalid value: 1: may not specify a dur",
            ],
        );
        check_update(
            &CsiDriver,
            &driver(&json!({"attachRequired": false})),
            &driver(&json!({})),
            &["spec.attachRequired: Invalid value: false: field is immutable"],
        );
    }
}
