//! CSINodes: the drivers of each node, as the node itself tells (OP-43).
//!
//! Texts and places are upstream's. An entry changes only by being removed and added again, except for
//! how many volumes there may be.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::{
    field::{ErrorList, FieldError},
    names::qualified_name_faults,
};
use waybill_core::id::DriverName;

use super::{
    Context, Kind, Shape,
    document::{Field, same},
};

use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Scope},
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

static CSI_NODES_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::storage::v1::CSINode>();

pub(crate) static CSI_NODES: Resource = Resource {
    group: "storage.k8s.io",
    plural: "csinodes",
    singular: "csinode",
    kind: "CSINode",
    scope: Scope::Cluster,
    schemas: &CSI_NODES_SCHEMAS,
    protobuf: Some(&tables::storage_v1::CSI_NODE),
    patch: patch::storage_v1::CSI_NODE,
    rules: Some(&CsiNode),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Drivers", "Number of drivers on the node.").kind("integer"),
            columns::AGE,
        ],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(object),
        read::list(object, "/spec/drivers").len().into(),
        cells::age(object, now),
    ]
}

pub(super) struct CsiNode;

impl Kind for CsiNode {
    fn shape(&self) -> Shape {
        Shape { unconditional_update: false, ..Shape::CLUSTER }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let spec = object.get("spec");
        let mut names = BTreeSet::new();
        for driver in spec.get("drivers").items() {
            check_driver(driver, errors);
            let name = driver.get("name");
            if !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        let (new, old) = (new.get("spec"), old.get("spec"));
        let (now, before) = (new.get("drivers"), old.get("drivers"));
        for driver in now.items() {
            let name = driver.get("name").text();
            let stored = before.items().find(|stored| stored.get("name").text() == name);
            if stored.is_some_and(|stored| !is_same_driver(driver, stored)) {
                errors.push(FieldError::invalid(now.path(), name, "field is immutable"));
            }
        }
    }
}

fn check_driver(driver: Field<'_, '_>, errors: &mut ErrorList) {
    let (name, id) = (driver.get("name"), driver.get("nodeID"));
    if name.is_empty() {
        errors.push(name.required(""));
    } else if DriverName::parse(name.text()).is_err() {
        errors.push(name.invalid(NAME_RULE));
    }
    if id.is_empty() {
        errors.push(id.required(""));
    } else if id.text().len() > NODE_ID_BYTES {
        errors.push(id.invalid(format!("must be {NODE_ID_BYTES} characters or less")));
    }
    let allocatable = driver.get("allocatable");
    let count = allocatable.get("count");
    if count.number().is_some_and(i64::is_negative) {
        errors.push(count.invalid("must be greater than or equal to 0"));
    }
    let mut keys = BTreeSet::new();
    for key in driver.get("topologyKeys").items() {
        if !keys.insert(key.text()) {
            errors.push(key.duplicate());
        }
        errors.extend(key.all_invalid(qualified_name_faults(key.text())));
    }
}

fn is_same_driver(new: Field<'_, '_>, old: Field<'_, '_>) -> bool {
    ["nodeID", "topologyKeys"].iter().all(|&field| {
        let at = |driver: Field<'_, '_>| driver.get(field).value().clone();
        same(&at(new), &at(old))
    })
}

/// The name is a socket's folder on the node.
const NAME_RULE: &str = "a CSI driver name must have at most 63 characters, consist of alphanumeric \
    characters, '-' or '.', and start and end with an alphanumeric character";

/// Of the CSI specification, since its version 1.8.
const NODE_ID_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::{check_create, check_update};

    fn node(drivers: &Value) -> Value {
        json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})
    }

    #[test]
    fn drivers_have_a_name_and_an_id() {
        check_create(&CsiNode, &node(&json!(null)), &[]);
        let good = json!([{"name": "a.example.com", "nodeID": "i", "topologyKeys": ["x.com/zone"],
            "allocatable": {"count": 0}}]);
        check_create(&CsiNode, &node(&good), &[]);
        check_create(
            &CsiNode,
            &node(&json!([{}, {"name": "../x", "nodeID": "i".repeat(257)}])),
            &[
                "spec.drivers[0].name: Required value",
                "spec.drivers[0].nodeID: Required value",
                "spec.drivers[1].name: Invalid value: \"../x\": a CSI driver name must have at most",
                "spec.drivers[1].nodeID: Invalid value: \"iiiiii",
            ],
        );
        check_create(
            &CsiNode,
            &node(&json!([
                {"name": "a", "nodeID": "i", "allocatable": {"count": -1}},
                {"name": "a", "nodeID": "i", "topologyKeys": ["k", "k", "a b"]},
            ])),
            &[
                "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or eq",
                "spec.drivers[1].topologyKeys[1]: Duplicate value: \"k\"",
                "spec.drivers[1].topologyKeys[2]: Invalid value: \"a b\": name part must consist of",
                "spec.drivers[1].name: Duplicate value: \"a\"",
            ],
        );
    }

    #[test]
    fn an_entry_is_replaced_and_not_changed() {
        let old = node(&json!([{"name": "a", "nodeID": "i", "allocatable": {"count": 1}}]));
        let changed = node(&json!([{"name": "a", "nodeID": "j"}]));
        check_update(
            &CsiNode,
            &changed,
            &old,
            &["spec.drivers: Invalid value: \"a\": field is immutable"],
        );
        check_update(&CsiNode, &node(&json!([])), &old, &[]);
        check_update(&CsiNode, &node(&json!([{"name": "b", "nodeID": "j"}])), &old, &[]);
        let counted = node(&json!([{"name": "a", "nodeID": "i", "allocatable": {"count": 2}}]));
        check_update(&CsiNode, &counted, &old, &[]);
    }
}
