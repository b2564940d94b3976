//! What `metadata` may say, with upstream's texts.

use std::collections::BTreeSet;

use serde_json::Value;
use waybill_api::{
    field::{ErrorList, FieldError},
    names::{label_faults, label_value_faults, qualified_name_faults},
};

use super::{super::document::Field, super::document::same, NameRule};
use crate::kinds::{Scope, Shape};

/// Everything that is wrong with the metadata of a new object. Names were generated before.
pub(crate) fn validate_create(shape: Shape, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let root = Field::root(object);
    let metadata = root.get("metadata");
    check_name(metadata, shape.names, &mut errors);
    check_namespace(metadata, shape.scope, &mut errors);
    check_common(metadata, &mut errors);
    errors
}

/// Everything that is wrong with the metadata of `new` in place of that of `old`.
pub(crate) fn validate_update(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let (new, old) = (Field::root(new), Field::root(old));
    let (new, old) = (new.get("metadata"), old.get("metadata"));
    if old.get("deletionTimestamp").is_set() {
        errors.extend(new_finalizers_fault(new, old));
    }
    let version = new.get("resourceVersion");
    if version.is_empty() {
        errors.push(version.invalid_text("must be specified for an update"));
    }
    let generation = new.get("generation");
    if generation.number().unwrap_or_default() < old.get("generation").number().unwrap_or_default()
    {
        errors.push(generation.invalid("must not be decremented"));
    }
    for name in IMMUTABLE_FIELDS {
        let field = new.get(name);
        if !same(field.value(), old.get(name).value()) {
            errors.push(field.invalid("field is immutable"));
        }
    }
    check_common(new, &mut errors);
    errors
}

/// The labels of an object or of a pod template.
pub(crate) fn check_labels(labels: Field<'_, '_>, errors: &mut ErrorList) {
    for (key, value) in labels.entries() {
        for fault in qualified_name_faults(key) {
            errors.push(labels.invalid_as(key, fault));
        }
        errors.extend(value.all_invalid(label_value_faults(value.text())));
    }
}

const IMMUTABLE_FIELDS: [&str; 6] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

const ANNOTATIONS_BYTES: usize = 256 << 10;

/// Finalizers that need no domain; they are upstream's.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

fn check_name(metadata: Field<'_, '_>, rule: NameRule, errors: &mut ErrorList) {
    let prefix = metadata.get("generateName");
    if !prefix.is_empty() {
        errors.extend(prefix.all_invalid(rule.prefix_faults(prefix.text())));
    }
    let name = metadata.get("name");
    if name.is_empty() {
        errors.push(name.required("name or generateName is required"));
    } else {
        errors.extend(name.all_invalid(rule.faults(name.text())));
    }
}

fn check_namespace(metadata: Field<'_, '_>, scope: Scope, errors: &mut ErrorList) {
    let namespace = metadata.get("namespace");
    match (scope, namespace.is_empty()) {
        (Scope::Cluster, true) => {}
        (Scope::Cluster, false) => errors.push(namespace.forbidden("not allowed on this type")),
        (Scope::Namespaced, true) => errors.push(namespace.required("")),
        (Scope::Namespaced, false) => {
            errors.extend(namespace.all_invalid(label_faults(namespace.text())));
        }
    }
}

fn check_common(metadata: Field<'_, '_>, errors: &mut ErrorList) {
    let generation = metadata.get("generation");
    if generation.number().is_some_and(i64::is_negative) {
        errors.push(generation.invalid("must be greater than or equal to 0"));
    }
    check_labels(metadata.get("labels"), errors);
    check_annotations(metadata.get("annotations"), errors);
    check_owners(metadata.get("ownerReferences"), errors);
    check_finalizers(metadata.get("finalizers"), errors);
}

/// The annotations of an object or of a pod template.
pub(crate) fn check_annotations(annotations: Field<'_, '_>, errors: &mut ErrorList) {
    let mut bytes = 0_usize;
    for (key, value) in annotations.entries() {
        bytes = bytes.saturating_add(key.len()).saturating_add(value.text().len());
        // Unlike in labels, upper case is allowed in the domain.
        for fault in qualified_name_faults(&key.to_lowercase()) {
            errors.push(annotations.invalid_as(key, fault));
        }
    }
    if bytes > ANNOTATIONS_BYTES {
        errors.push(FieldError::too_long(annotations.path(), ANNOTATIONS_BYTES));
    }
}

/// Upstream reports faults of a reference at the list.
fn check_owners(owners: Field<'_, '_>, errors: &mut ErrorList) {
    let mut controller: Option<String> = None;
    for owner in owners.items() {
        let (version, kind) = (owner.get("apiVersion").text(), owner.get("kind").text());
        if version.is_empty() || version.ends_with('/') {
            errors.push(owners.get("apiVersion").invalid_as(version, "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if owner.get(name).is_empty() {
                errors.push(owners.get(name).invalid_as("", "must not be empty"));
            }
        }
        if (version, kind) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(owners.invalid_as(owner.value(), detail));
        }
        if owner.get("controller").is_true() {
            let current = format!("{kind}/{}", owner.get("name").text());
            match &controller {
                None => controller = Some(current),
                Some(first) => errors.push(owners.invalid(format!(
                    "Only one reference can have Controller set to true. Found \"true\" in \
                     references for {first} and {current}"
                ))),
            }
        }
    }
}

fn check_finalizers(finalizers: Field<'_, '_>, errors: &mut ErrorList) {
    for finalizer in finalizers.items() {
        for fault in qualified_name_faults(finalizer.text()) {
            errors.push(finalizers.invalid_as(finalizer.text(), fault));
        }
    }
    let has = |name: &str| finalizers.items().any(|finalizer| finalizer.text() == name);
    if has(ORPHAN) && has(FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(finalizers.invalid(detail));
    }
    for finalizer in finalizers.items() {
        let text = finalizer.text();
        if !text.contains('/') && !STANDARD_FINALIZERS.contains(&text) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(finalizer.invalid_text(detail));
        }
    }
}

/// An object that is being deleted must not be held up further.
fn new_finalizers_fault(new: Field<'_, '_>, old: Field<'_, '_>) -> Option<FieldError> {
    let finalizers = new.get("finalizers");
    let before = old.get("finalizers");
    let known: BTreeSet<_> = before.items().map(|finalizer| finalizer.text()).collect();
    let now: BTreeSet<_> = finalizers.items().map(|finalizer| finalizer.text()).collect();
    let added: Vec<_> = now.difference(&known).map(|name| format!("{name:?}")).collect();
    // The list reads as Go prints it.
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{{}}}",
        added.join(", ")
    );
    (!added.is_empty()).then(|| finalizers.forbidden(detail))
}

#[cfg(test)]
mod tests;
