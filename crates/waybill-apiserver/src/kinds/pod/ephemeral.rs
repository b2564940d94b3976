//! The `ephemeralcontainers` subresource: containers may be added, and that is all.

use serde_json::Value;
use waybill_api::{field::ErrorList, pod::drop_disabled_fields};

use super::{
    Pod, check_env_update, spec,
    update::{MIRROR, without_zeros},
};
use crate::kinds::{
    Context, Kind as _,
    document::{Field, member, object_mut, put, same},
    meta,
};

/// Keeps in `new` all of `old` but its ephemeral containers.
pub(crate) fn prepare_ephemeral_containers_update(new: &mut Value, old: &Value, context: &Context) {
    let containers = member(member(new, "spec"), "ephemeralContainers").clone();
    let version = member(member(new, "metadata"), "resourceVersion").clone();
    let managers = member(member(new, "metadata"), "managedFields").clone();
    *new = old.clone();
    let old_spec = member(old, "spec");
    if let Some(spec) = object_mut(new, "spec") {
        put(spec, "ephemeralContainers", containers);
        drop_disabled_fields(spec, Some(old_spec), &context.gates);
    }
    if let Some(metadata) = object_mut(new, "metadata") {
        put(metadata, "resourceVersion", version);
        if !managers.is_null() {
            put(metadata, "managedFields", managers);
        }
    }
    Pod.default(new);
    meta::prepare_update(Pod.shape(), new, old);
}

/// Everything that is wrong with the ephemeral containers of `new` in place of those of `old`.
pub(crate) fn validate_ephemeral_containers_update(
    new: &Value,
    old: &Value,
    context: &Context,
) -> ErrorList {
    let mut errors = meta::validate_update(new, old);
    let (new, old) = (Field::root(new), Field::root(old));
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    spec::check_pod(new, &mut errors);
    check_env_update(new, old, context, &mut errors);
    let (now, before) = (spec.get("ephemeralContainers"), old_spec.get("ephemeralContainers"));
    let metadata = new.get("metadata");
    if !now.is_empty() && metadata.get("annotations").get(MIRROR).is_set() {
        errors.push(spec.forbidden("static pods do not support ephemeral containers"));
    }
    for container in before.items() {
        let name = container.get("name").text();
        let kept = now.items().find(|found| found.get("name").text() == name);
        let fault = match kept {
            None => "removed",
            Some(kept) if !same_container(kept.value(), container.value()) => "changed",
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {name:?} may not be {fault}\n");
        errors.push(now.forbidden(detail));
    }
    errors
}

fn same_container(one: &Value, other: &Value) -> bool {
    same(&without_zeros(one.clone()), &without_zeros(other.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::testing::pod, *};
    use crate::kinds::testing::{check_errors, context};

    fn with_ephemeral(containers: &Value) -> Value {
        let mut pod = pod(&json!({"ephemeralContainers": containers}));
        pod["metadata"]["resourceVersion"] = "1".into();
        Pod.default(&mut pod);
        pod
    }

    #[track_caller]
    fn check(old: &Value, new: &Value, expected: &[&str]) {
        let old = with_ephemeral(old);
        let mut new = with_ephemeral(new);
        prepare_ephemeral_containers_update(&mut new, &old, &context());
        check_errors(&validate_ephemeral_containers_update(&new, &old, &context()), expected);
    }

    #[test]
    fn containers_are_only_added() {
        let container = |name: &str, tty: bool| json!({"name": name, "image": "i", "tty": tty});
        let one = json!([container("a", false)]);
        check(&json!([]), &one, &[]);
        check(&one, &one, &[]);
        check(&one, &json!([container("b", false), container("a", false)]), &[]);
        let at =
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"a\" may not be";
        check(&one, &json!(null), &[&format!("{at} removed")]);
        check(&one, &json!([container("a", true)]), &[&format!("{at} changed")]);
    }

    #[test]
    fn ephemeral_containers_serve_nobody() {
        let at = "spec.ephemeralContainers[0]";
        check(
            &json!([]),
            &json!([{"name": "c", "image": "i", "targetContainerName": "none",
                "ports": [{"containerPort": 1}]}]),
            &[
                &format!("{at}.name: Duplicate value: \"c\""),
                &format!("{at}.targetContainerName: Not found: \"none\""),
                &format!("{at}.ports: Forbidden: cannot be set for an Ephemeral Container"),
            ],
        );
    }

    #[test]
    fn nothing_else_of_the_pod_changes() {
        let old = with_ephemeral(&json!([]));
        let mut new = with_ephemeral(&json!([]));
        new["spec"]["nodeName"] = "elsewhere".into();
        new["metadata"]["labels"] = json!({"a": "b"});
        prepare_ephemeral_containers_update(&mut new, &old, &context());
        assert!(same(&new, &old));
    }
}
