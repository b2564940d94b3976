//! RuntimeClasses: which handler of the container runtime starts a pod, and what that costs.

use waybill_api::{
    field::ErrorList,
    names::{label_faults, label_value_faults, qualified_name_faults},
};

use super::{
    Context, Kind, Shape,
    document::{Field, same},
};
use crate::{
    protobuf::tables,
    registry::{Resource, Scope},
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
    },
};

static SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::node::v1::RuntimeClass>();

pub(crate) static RUNTIME_CLASSES: Resource = Resource {
    group: "node.k8s.io",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    kind: "RuntimeClass",
    scope: Scope::Cluster,
    schemas: &SCHEMAS,
    protobuf: Some(&tables::node_v1::RUNTIME_CLASS),
    rules: Some(&RuntimeClass),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Handler", "The handler of the container runtime."),
            columns::AGE,
        ],
        cells: |object, now| {
            let handler = object.get("handler").cloned().unwrap_or_default();
            vec![cells::name(object), handler, cells::age(object, now)]
        },
        ..Table::PLAIN
    },
    ..Resource::BASE
};

struct RuntimeClass;

impl Kind for RuntimeClass {
    fn shape(&self) -> Shape {
        Shape::CLUSTER
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let handler = object.get("handler");
        if handler.is_empty() {
            errors.push(handler.required(""));
        } else {
            errors.extend(handler.all_invalid(label_faults(handler.text())));
        }
        let scheduling = object.get("scheduling");
        for (key, value) in scheduling.get("nodeSelector").entries() {
            for fault in qualified_name_faults(key) {
                errors.push(value.invalid_as(key, fault));
            }
            errors.extend(value.all_invalid(label_value_faults(value.text())));
        }
        let overhead = object.get("overhead");
        for (resource, amount) in overhead.get("podFixed").entries() {
            if !resource.contains('/')
                && !["cpu", "ephemeral-storage", "memory"].contains(&resource)
            {
                errors.push(amount.invalid_as(resource, "must be a resource of containers"));
            }
            if amount.text().starts_with('-') {
                errors.push(amount.invalid("must be greater than or equal to 0"));
            }
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        let handler = new.get("handler");
        if !same(handler.value(), old.get("handler").value()) {
            errors.push(handler.invalid("field is immutable"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_update};

    #[test]
    fn a_class_names_one_handler_for_good() {
        let class = |handler: &str| json!({"metadata": {"name": "c"}, "handler": handler});
        check_create(&RuntimeClass, &class("runsc"), &[]);
        check_create(&RuntimeClass, &class(""), &["handler: Required value"]);
        check_create(&RuntimeClass, &class("Run_sc"), &["handler: Invalid value: \"Run_sc\""]);
        check_update(
            &RuntimeClass,
            &class("kata"),
            &class("runsc"),
            &["handler: Invalid value: \"kata\": field is immutable"],
        );
    }
}
