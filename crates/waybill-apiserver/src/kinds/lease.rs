//! Leases.

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::field::ErrorList;

use super::{Context, Kind, Shape, document::Field};

use crate::{
    protobuf::tables,
    registry::Resource,
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

static LEASES_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::coordination::v1::Lease>();

pub(crate) static LEASES: Resource = Resource {
    group: "coordination.k8s.io",
    plural: "leases",
    singular: "lease",
    kind: "Lease",
    schemas: &LEASES_SCHEMAS,
    protobuf: Some(&tables::coordination_v1::LEASE),
    rules: Some(&Lease),
    table: Table {
        columns: &[columns::NAME, Column::new("Holder", "Who holds the lease."), columns::AGE],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(object),
        read::text(object, "/spec/holderIdentity").into(),
        cells::age(object, now),
    ]
}

pub(super) struct Lease;

impl Kind for Lease {
    fn shape(&self) -> Shape {
        Shape {
            create_on_update: true,
            // A lease is for those who know what they replace.
            unconditional_update: false,
            ..Shape::NAMESPACED
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let spec = object.get("spec");
        let duration = spec.get("leaseDurationSeconds");
        if duration.number().is_some_and(|seconds| seconds <= 0) {
            errors.push(duration.invalid("must be greater than 0"));
        }
        let transitions = spec.get("leaseTransitions");
        if transitions.number().is_some_and(i64::is_negative) {
            errors.push(transitions.invalid("must be greater than or equal to 0"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::check_create;

    #[track_caller]
    fn check(spec: &Value, expected: &[&str]) {
        let lease = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec});
        check_create(&Lease, &lease, expected);
    }

    #[test]
    fn numbers() {
        check(&json!({"leaseDurationSeconds": 1, "leaseTransitions": 0}), &[]);
        check(
            &json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}),
            &[
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
    }
}
