//! PriorityClasses: names for how much a pod matters.

use serde_json::Value;
use waybill_api::field::ErrorList;

use super::{
    Context, Kind, Shape,
    document::{Field, fill_text, same},
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

static SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::scheduling::v1::PriorityClass>();

pub(crate) static PRIORITY_CLASSES: Resource = Resource {
    group: "scheduling.k8s.io",
    plural: "priorityclasses",
    singular: "priorityclass",
    kind: "PriorityClass",
    short_names: &["pc"],
    scope: Scope::Cluster,
    schemas: &SCHEMAS,
    protobuf: Some(&tables::scheduling_v1::PRIORITY_CLASS),
    rules: Some(&PriorityClass),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Value", "How much pods of the class matter.").kind("integer"),
            Column::new("Global-Default", "Whether pods without a class are of this one.")
                .kind("boolean"),
            columns::AGE,
            Column::new("PreemptionPolicy", "Whether others may have to go for them.").wide(),
        ],
        cells: |object, now| {
            let field = |name: &str| object.get(name).cloned().unwrap_or_default();
            let default = field("globalDefault").as_bool().unwrap_or_default();
            let policy = field("preemptionPolicy");
            let age = cells::age(object, now);
            vec![cells::name(object), field("value"), default.into(), age, policy]
        },
        ..Table::PLAIN
    },
    ..Resource::BASE
};

/// The classes that the system brings along.
pub(crate) const SYSTEM_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// The highest priority that users may give.
const HIGHEST: i64 = 1_000_000_000;

struct PriorityClass;

impl Kind for PriorityClass {
    fn shape(&self) -> Shape {
        Shape::CLUSTER
    }

    fn default(&self, object: &mut Value) {
        fill_text(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let (metadata, value) = (object.get("metadata"), object.get("value"));
        let name = metadata.get("name");
        let known = SYSTEM_CLASSES.iter().find(|(known, ..)| *known == name.text());
        match known {
            Some(&(_, wanted, _)) if value.number() != Some(wanted) => {
                errors.push(value.invalid(format!("must be {wanted}")));
            }
            None if name.text().starts_with("system-") => {
                let detail =
                    "priority class names with 'system-' prefix are reserved for system use only";
                errors.push(name.forbidden(detail));
            }
            None if value.number().is_some_and(|value| value > HIGHEST) => {
                errors.push(value.forbidden(format!(
                    "maximum allowed value of a user defined priority is {HIGHEST}"
                )));
            }
            Some(_) | None => {}
        }
        let policy = object.get("preemptionPolicy");
        let policies = &["Never", "PreemptLowerPriority"];
        if !policies.contains(&policy.text()) {
            errors.push(policy.not_supported(policies));
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        for field in ["value", "preemptionPolicy"] {
            let changed = new.get(field);
            if !same(changed.value(), old.get(field).value()) {
                errors.push(changed.forbidden("may not be changed in an update."));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_update};

    fn class(name: &str, value: i64) -> Value {
        json!({"metadata": {"name": name}, "value": value})
    }

    #[test]
    fn users_stay_below_the_system() {
        check_create(&PriorityClass, &class("mine", 1_000_000_000), &[]);
        check_create(&PriorityClass, &class("mine", 1_000_000_001), &["value: Forbidden: maximum"]);
        check_create(&PriorityClass, &class("system-mine", 1), &["metadata.name: Forbidden"]);
        check_create(&PriorityClass, &class("system-node-critical", 2_000_001_000), &[]);
        check_create(
            &PriorityClass,
            &class("system-node-critical", 7),
            &["value: Invalid value: 7"],
        );
    }

    #[test]
    fn a_value_is_for_good() {
        let (new, old) = (class("mine", 2), class("mine", 1));
        check_update(&PriorityClass, &new, &old, &["value: Forbidden: may not be changed"]);
    }
}
