//! The `resize` subresource: processors and memory of containers that run may change, and nothing else.

use serde_json::Value;
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    pod::drop_disabled_fields,
    quantity,
};

use super::{
    Pod, qos, spec,
    update::{MIRROR, without_zeros},
};
use crate::kinds::{
    Context, Kind as _,
    document::{Field, items_mut, keep, member, object_mut, put, same, text},
    meta,
};

/// Keeps in `new` all of `old` but the resources of its containers.
pub(crate) fn prepare_resize(new: &mut Value, old: &Value, context: &Context) {
    let mut resized = with_resources_of(new, old);
    if let Some(spec) = object_mut(&mut resized, "spec") {
        drop_disabled_fields(spec, Some(member(old, "spec")), &context.gates);
    }
    if let Some(metadata) = object_mut(&mut resized, "metadata") {
        let said = member(new, "metadata");
        keep(metadata, said, "resourceVersion");
        if !member(said, "managedFields").is_null() {
            keep(metadata, said, "managedFields");
        }
    }
    *new = resized;
    Pod.default(new);
    meta::prepare_update(Pod.shape(), new, old);
}

/// `old` with the resources, and the ways to change them, that `new` names. Containers that were added, removed, renamed
/// or moved stand as in `new`, which [`validate_resize`] refuses.
pub(crate) fn with_resources_of(new: &Value, old: &Value) -> Value {
    let mut resized = old.clone();
    let Some(spec) = object_mut(&mut resized, "spec") else { return resized };
    for list in LISTS {
        let wanted = member(member(new, "spec"), list);
        if !are_same_containers(wanted, member(spec, list)) {
            put(spec, list, wanted.clone());
            continue;
        }
        let wanted = wanted.as_array().into_iter().flatten();
        for (container, wanted) in items_mut(spec, list).zip(wanted) {
            for field in ["resources", "resizePolicy"] {
                keep(container, wanted, field);
            }
        }
    }
    resized
}

/// Everything that is wrong with the resources of `new` in place of those of `old`.
pub(crate) fn validate_resize(new: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::validate_update(new, old);
    let (new, old) = (Field::root(new), Field::root(old));
    spec::check_pod(new, &mut errors);
    if let Some(why) = never(new, old) {
        return vec![FieldError::forbidden(FieldPath::new(""), why)];
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let others: ErrorList =
        LISTS.iter().flat_map(|list| other_containers(spec, before, list)).collect();
    if !others.is_empty() {
        errors.extend(others);
        return errors;
    }
    let class = old.get("status").get("qosClass").text();
    let class = if class.is_empty() { qos::class(before.value()) } else { class };
    if class != qos::class(spec.value()) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(spec.invalid_as(class, detail));
    }
    if !node_resizes(old) {
        errors.push(spec.forbidden("Pod running on node without support for resize"));
    }
    for list in LISTS {
        let (now, before) = (spec.get(list), before.get(list));
        for (container, before) in now.items().zip(before.items()) {
            check_container(spec, list, container, before, &mut errors);
        }
    }
    errors
}

const LISTS: [&str; 2] = ["initContainers", "containers"];

/// What a node can change while a container runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// Why a pod is not resized, whatever is asked for.
fn never(new: Field<'_, '_>, old: Field<'_, '_>) -> Option<&'static str> {
    let has_resources_of_its_own = |pod: Field<'_, '_>| {
        let spec = pod.get("spec");
        let whole = spec.get("resources");
        !whole.get("requests").is_empty() || !whole.get("limits").is_empty()
    };
    if has_resources_of_its_own(new) || has_resources_of_its_own(old) {
        return Some("pods with pod-level resources cannot be resized");
    }
    if old.get("metadata").get("annotations").get(MIRROR).is_set() {
        return Some("static pods cannot be resized");
    }
    let is_windows = old.get("spec").get("os").get("name").text() == "windows";
    is_windows.then_some("windows pods cannot be resized")
}

/// Whether the node tells what containers have, as those do that can change it. Nobody knows before a container runs.
fn node_resizes(pod: Field<'_, '_>) -> bool {
    let status = pod.get("status");
    let statuses = status.get("containerStatuses");
    let running = statuses.items().find(|status| status.get("state").get("running").is_set());
    running.is_none_or(|status| status.get("resources").is_set())
}

fn are_same_containers(one: &Value, other: &Value) -> bool {
    let names = |list: &Value| -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items.map(|container| text(container, "name").to_owned()).collect()
    };
    names(one) == names(other)
}

/// What is wrong with containers that are not those which were there, in their order.
fn other_containers(spec: Field<'_, '_>, before: Field<'_, '_>, list: &str) -> ErrorList {
    let (now, before) = (spec.get(list), before.get(list));
    if now.items().count() != before.items().count() {
        return vec![now.forbidden(format!("{list} may not be added or removed on resize"))];
    }
    let pairs = now.items().zip(before.items());
    let renamed = pairs.filter(|(now, before)| now.get("name").text() != before.get("name").text());
    let detail = format!("{list} may not be renamed or reordered on resize");
    renamed.map(|(now, _)| now.get("name").forbidden(detail.as_str())).collect()
}

fn check_container(
    spec: Field<'_, '_>,
    list: &str,
    container: Field<'_, '_>,
    before: Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let is_init = list == "initContainers";
    let is_sidecar = is_init && before.get("restartPolicy").text() == "Always";
    let mut kept = container.value().clone();
    if !is_init || is_sidecar {
        let (resources, before) = (container.get("resources"), before.get("resources"));
        for kind in ["requests", "limits"] {
            let (now, before) = (resources.get(kind), before.get(kind));
            if before.entries().any(|(name, _)| !now.get(name).is_set()) {
                errors.push(now.forbidden(format!("resource {kind} cannot be removed")));
            }
        }
        keep_amounts(&mut kept, before.value());
    }
    if !same(&without_zeros(kept), &without_zeros(before.value().clone())) {
        errors.push(spec.forbidden(match (is_init, is_sidecar) {
            (false, _) => "only cpu and memory resources are mutable",
            (true, true) => "only cpu and memory resources for sidecar containers are mutable",
            (true, false) => "resources for non-sidecar init containers are immutable",
        }));
    }
}

/// Puts into `container` those of the `old` amounts that may change, and those that are only written in another way.
fn keep_amounts(container: &mut Value, old: &Value) {
    let Some(resources) = object_mut(container, "resources") else { return };
    for kind in ["requests", "limits"] {
        let old = member(old, kind);
        let Some(amounts) = object_mut(resources, kind) else { continue };
        for name in RESIZABLE {
            keep(amounts, old, name);
        }
        let amount = |list: &Value, name: &str| quantity::read(member(list, name)).ok();
        let names = old.as_object().into_iter().flatten().map(|(name, _)| name);
        for name in names {
            if amount(amounts, name).is_some() && amount(amounts, name) == amount(old, name) {
                keep(amounts, old, name);
            }
        }
    }
}

#[cfg(test)]
mod tests;
