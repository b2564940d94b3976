//! What may change in a pod that exists: very little.

use serde_json::Value;
use waybill_api::field::{ErrorList, FieldError};

use crate::kinds::document::{Field, items_mut, keep, member, remove, same};

/// What is wrong with the change from `old` to `new`.
pub(super) fn check_change(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        if spec.get(list).len() != before.get(list).len() {
            errors.push(spec.get(list).forbidden("pod updates may not add or remove containers"));
            return;
        }
    }
    check_deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"), errors);
    check_tolerations(spec.get("tolerations"), before.get("tolerations"), errors);
    check_gates(spec.get("schedulingGates"), before.get("schedulingGates"), errors);
    if !before.get("schedulingGates").is_empty() {
        check_node_selector(spec.get("nodeSelector"), before.get("nodeSelector"), errors);
    }
    if !same(spec.value(), before.value()) && !same_but_for_changeable(spec, before) {
        errors.push(spec.forbidden(CHANGEABLE));
    }
}

/// What the node says of a static pod it alone may change.
pub(super) fn check_mirror(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    let (new, old) = (new.get("metadata"), old.get("metadata"));
    let annotations = new.get("annotations");
    let (now, before) = (annotations.get(MIRROR), old.get("annotations").get(MIRROR).value());
    let detail = match (now.is_set(), before.is_null()) {
        (true, true) => "may not add mirror pod annotation",
        _ if now.value() != before => "may not remove or update mirror pod annotation",
        _ => return,
    };
    errors.push(FieldError::forbidden(annotations.path().key(MIRROR), detail));
}

/// Marks the mirror of a static pod, which exists on its node first.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// What stays of `spec` when it says nothing in a way of its own: values that Go leaves out.
pub(super) fn without_zeros(mut value: Value) -> Value {
    drop_zeros(&mut value);
    value
}

const CHANGEABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Fields in which zero and false mean the same as nothing.
const ZERO_MEANS_ABSENT: [&str; 10] = [
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "optional",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
];

/// A pod may get less time than it had, never more.
fn check_deadline(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    match (new.number(), old.number()) {
        (Some(now), Some(before)) if now > before => {
            errors.push(new.invalid("must be less than or equal to previous value"));
        }
        (None, Some(_)) => {
            errors.push(new.invalid("must not update from a positive integer to nil value"));
        }
        _ => {}
    }
}

fn check_tolerations(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    let bare = |toleration: Field<'_, '_>| {
        let mut value = toleration.value().clone();
        remove(&mut value, "tolerationSeconds");
        value
    };
    let now: Vec<_> = new.items().map(bare).collect();
    let is_kept = |toleration| now.iter().any(|found| same(found, &bare(toleration)));
    if !old.items().all(is_kept) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(new.forbidden(detail));
    }
}

fn check_gates(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    for gate in new.items() {
        let name = gate.get("name");
        if old.items().all(|known| known.get("name").text() != name.text()) {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            );
            errors.push(FieldError::forbidden(name.path(), detail));
        }
    }
}

/// While a pod is held back, its choice of nodes may become narrower.
fn check_node_selector(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    if old.entries().any(|(key, value)| new.get(key).value() != value.value()) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(new.invalid(detail));
    }
}

fn same_but_for_changeable(new: Field<'_, '_>, old: Field<'_, '_>) -> bool {
    let mut changed = new.value().clone();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        keep(&mut changed, old.value(), field);
    }
    if !old.get("schedulingGates").is_empty() {
        keep(&mut changed, old.value(), "nodeSelector");
    }
    let grace = "terminationGracePeriodSeconds";
    if old.get(grace).number().is_some_and(i64::is_negative) && new.get(grace).number() == Some(1) {
        keep(&mut changed, old.value(), grace);
    }
    for list in ["containers", "initContainers"] {
        let before = old.get(list);
        for (container, before) in items_mut(&mut changed, list).zip(before.items()) {
            keep(container, before.value(), "image");
        }
    }
    same(&without_zeros(changed), &without_zeros(old.value().clone()))
}

fn drop_zeros(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_zeros),
        Value::Object(_) => {
            for field in ZERO_MEANS_ABSENT {
                let found = member(value, field);
                if found == false || found == 0 {
                    remove(value, field);
                }
            }
            for child in value.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
                drop_zeros(child);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
