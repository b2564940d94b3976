//! Namespaces.

use jiff::Timestamp;
use serde_json::{Value, json};
use waybill_api::{field::ErrorList, names::qualified_name_faults};

use super::{
    Context, Kind, NameRule, Shape, Status,
    document::{Field, keep, member, object_mut, put, text},
    meta,
};

use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Scope, Subresource},
    schema::{self, KindSchema},
    selector::supported::{self, Source},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

static NAMESPACES_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::Namespace>();

pub(crate) static NAMESPACES: Resource = Resource {
    plural: "namespaces",
    singular: "namespace",
    kind: "Namespace",
    short_names: &["ns"],
    scope: Scope::Cluster,
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    subresources: &[
        Subresource { name: "finalize", group_version: None, kind: "", verbs: &["update"] },
        Subresource::STATUS,
    ],
    schemas: &NAMESPACES_SCHEMAS,
    protobuf: Some(&tables::core_v1::NAMESPACE),
    rules: Some(&Namespace),
    table: Table {
        columns: &[columns::NAME, Column::new("Status", "Phase of the namespace."), columns::AGE],
        cells: row,
        ..Table::PLAIN
    },
    fields: &[supported::NAME, ("status.phase", Source::Text(&["/status/phase"]))],
    patch: patch::core_v1::NAMESPACE,
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cells::name(object), read::text(object, "/status/phase").into(), cells::age(object, now)]
}

pub(super) struct Namespace;

impl Kind for Namespace {
    fn shape(&self) -> Shape {
        Shape { names: NameRule::Label, status: Status::Subresource, ..Shape::CLUSTER }
    }

    /// Every namespace can be selected by a label with its name.
    fn default(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata") else { return };
        let name = text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = object_mut(metadata, "labels")
        {
            put(labels, "kubernetes.io/metadata.name", name);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        meta::prepare_create(self.shape(), object);
        // A name that was generated came after the defaults.
        self.default(object);
        put(object, "status", json!({"phase": "Active"}));
        let Some(spec) = object_mut(object, "spec") else { return };
        let mut finalizers = member(spec, "finalizers").as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|name| name == FINALIZER) {
            finalizers.push(FINALIZER.into());
        }
        put(spec, "finalizers", finalizers);
    }

    /// Finalizers change by the `finalize` subresource only.
    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, "spec");
        meta::prepare_update(self.shape(), new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value, _context: &Context) -> ErrorList {
        let mut errors = meta::validate_update(new, old);
        let root = Field::root(new);
        let leaving = root.get("metadata").get("deletionTimestamp").is_set();
        let status = root.get("status");
        let phase = status.get("phase");
        match (leaving, phase.text()) {
            (false, "Active") | (true, "Terminating") => {}
            (false, _) => errors
                .push(phase.invalid_text("may only be 'Active' if `deletionTimestamp` is empty")),
            (true, _) => errors.push(
                phase.invalid_text("may only be 'Terminating' if `deletionTimestamp` is not empty"),
            ),
        }
        errors
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let spec = object.get("spec");
        let finalizers = spec.get("finalizers");
        for finalizer in finalizers.items() {
            errors.extend(finalizer.all_invalid(qualified_name_faults(finalizer.text())));
            if !finalizer.text().contains('/') && finalizer.text() != FINALIZER {
                let detail = "name is neither a standard finalizer name nor is it fully qualified";
                errors.push(finalizer.invalid_text(detail));
            }
        }
    }
}

/// Keeps in `new` all but the finalizers of the spec, for the `finalize` subresource.
pub(crate) fn prepare_finalize(new: &mut Value, old: &Value) {
    meta::prepare_update(Namespace.shape(), new, old);
}

/// Everything that is wrong with `new` in place of `old`, for the `finalize` subresource.
pub(crate) fn validate_finalize(new: &Value, old: &Value, context: &Context) -> ErrorList {
    Namespace.validate_update(new, old, context)
}

/// Held by the controller that empties a namespace.
const FINALIZER: &str = "kubernetes";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{check_create, check_errors, context, defaulted};

    #[test]
    fn a_namespace_is_born_active_with_a_label_and_a_finalizer() {
        let mut object = defaulted(&Namespace, &json!({"metadata": {"name": "a"}, "status": {}}));
        Namespace.prepare_create(&mut object, &context());
        assert_eq!(
            object,
            json!({
                "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            })
        );
    }

    #[test]
    fn names_are_labels() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        check_create(&Namespace, &named("a"), &[]);
        check_create(
            &Namespace,
            &named("a.b"),
            &["metadata.name: Invalid value: \"a.b\": must not contain dots"],
        );
    }

    #[test]
    fn an_update_keeps_the_finalizers_and_finalize_changes_them() {
        let old = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        let mut new = json!({"metadata": {"name": "a"}, "spec": {"finalizers": []}});
        let mut finalized = new.clone();
        Namespace.prepare_update(&mut new, &old, &context());
        assert_eq!(new["spec"], old["spec"]);
        prepare_finalize(&mut finalized, &old);
        assert_eq!(finalized["spec"], json!({"finalizers": []}));
    }

    #[test]
    fn the_phase_follows_the_deletion() {
        let at = |phase: &str, leaving: bool| {
            let time = if leaving { json!("t") } else { json!(null) };
            let metadata = json!({"name": "a", "resourceVersion": "1", "deletionTimestamp": time});
            json!({"metadata": metadata, "status": {"phase": phase}})
        };
        let check = |phase: &str, leaving: bool, expected: &[&str]| {
            let new = at(phase, leaving);
            check_errors(&Namespace.validate_status_update(&new, &new, &context()), expected);
        };
        check("Active", false, &[]);
        check("Terminating", true, &[]);
        check(
            "Terminating",
            false,
            &["status.phase: Invalid value: \"Terminating\": may only be 'A"],
        );
        check(
            "Active",
            true,
            &["status.phase: Invalid value: \"Active\": may only be 'Terminating'"],
        );
    }
}
