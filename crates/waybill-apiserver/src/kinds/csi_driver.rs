//! CSIDrivers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use waybill_api::field::{ErrorList, FieldError};

use super::{
    Context, Generation, Kind, Shape,
    document::{Field, fill, fill_text, object_mut, same},
};

use crate::{
    protobuf::tables,
    registry::{Resource, Scope},
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
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
    protobuf: Some(&tables::storage_v1::CSI_DRIVER),
    rules: Some(&CsiDriver),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("AttachRequired", "Whether volumes are attached before they are mounted.")
                .kind("boolean"),
            Column::new("PodInfoOnMount", "Whether the driver is told about the pod.")
                .kind("boolean"),
            Column::new("StorageCapacity", "Whether scheduling asks for the driver's capacity.")
                .kind("boolean"),
            Column::new("TokenRequests", "Audiences of the tokens that the driver gets."),
            Column::new("RequiresRepublish", "Whether volumes are published again and again.")
                .kind("boolean"),
            Column::new("Modes", "The volume modes that the driver supports."),
            columns::AGE,
        ],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let attach_required =
        object.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true);
    let audiences = match object.pointer("/spec/tokenRequests") {
        Some(Value::Array(requests)) => read::joined(requests, "/audience", ","),
        _ => "<unset>".to_owned(),
    };
    let modes: Vec<_> =
        read::list(object, "/spec/volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    let modes = if modes.is_empty() { "<none>".to_owned() } else { modes.join(",") };
    vec![
        cells::name(object),
        attach_required.into(),
        read::flag(object, "/spec/podInfoOnMount").into(),
        read::flag(object, "/spec/storageCapacity").into(),
        audiences.into(),
        read::flag(object, "/spec/requiresRepublish").into(),
        modes.into(),
        cells::age(object, now),
    ]
}

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
