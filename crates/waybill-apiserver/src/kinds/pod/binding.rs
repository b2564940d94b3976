//! The `binding` subresource: a pod gets its node, once.

use serde_json::{Value, json};
use waybill_api::field::ErrorList;

use crate::kinds::document::{Field, fill, member, object_mut, put, text};

/// Everything that is wrong with a `Binding`.
pub(crate) fn validate_binding(binding: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let root = Field::root(binding);
    let target = root.get("target");
    let (kind, name) = (target.get("kind"), target.get("name"));
    if !matches!(kind.text(), "" | "Node") {
        errors.push(kind.not_supported(&["Node", "<empty>"]));
    }
    if name.is_empty() {
        errors.push(name.required(""));
    }
    errors
}

/// Binds `pod` to the node that `binding` names, at the time `now` in RFC 3339.
///
/// The annotations of the binding become the pod's.
pub(crate) fn bind(pod: &mut Value, binding: &Value, now: &str) -> Result<(), BindError> {
    let metadata = member(pod, "metadata");
    let name = text(metadata, "name").to_owned();
    if !member(metadata, "deletionTimestamp").is_null() {
        return Err(BindError::Deleted { name });
    }
    let (found, wanted) = (text(metadata, "uid"), text(member(binding, "metadata"), "uid"));
    if !wanted.is_empty() && found != wanted {
        let (found, wanted) = (found.to_owned(), wanted.to_owned());
        return Err(BindError::Uid { found, wanted });
    }
    let spec = member(pod, "spec");
    if !text(spec, "nodeName").is_empty() {
        return Err(BindError::Assigned { name, node: text(spec, "nodeName").to_owned() });
    }
    if !Field::root(spec).get("schedulingGates").is_empty() {
        return Err(BindError::Gated { name });
    }
    let node = text(member(binding, "target"), "name").to_owned();
    if let Some(spec) = object_mut(pod, "spec") {
        put(spec, "nodeName", node);
    }
    copy_annotations(pod, binding);
    set_scheduled(pod, now);
    Ok(())
}

/// Why a pod cannot be bound; the texts are upstream's, and the answer is a conflict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BindError {
    /// It has a node.
    #[error("pod {name} is already assigned to node {node:?}")]
    Assigned { name: String, node: String },
    /// It is going away.
    #[error("pod {name} is being deleted, cannot be assigned to a host")]
    Deleted { name: String },
    /// It must not be scheduled yet.
    #[error("pod {name} has non-empty .spec.schedulingGates")]
    Gated { name: String },
    /// It is not the pod that the binding means.
    #[error("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}")]
    Uid { found: String, wanted: String },
}

fn copy_annotations(pod: &mut Value, binding: &Value) {
    let Value::Object(added) = member(member(binding, "metadata"), "annotations") else { return };
    let Some(metadata) = object_mut(pod, "metadata") else { return };
    let Some(annotations) = object_mut(metadata, "annotations") else { return };
    for (key, value) in added {
        put(annotations, key, value.clone());
    }
}

fn set_scheduled(pod: &mut Value, now: &str) {
    let generation = member(member(pod, "metadata"), "generation").clone();
    let Some(status) = object_mut(pod, "status") else { return };
    fill(status, "conditions", Vec::<Value>::new());
    let Some(Value::Array(conditions)) = status.get_mut("conditions") else { return };
    conditions.retain(|condition| text(condition, "type") != "PodScheduled");
    let mut condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": now});
    if !generation.is_null() {
        put(&mut condition, "observedGeneration", generation);
    }
    conditions.push(condition);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::check_errors;

    fn binding() -> Value {
        json!({"metadata": {"annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n"}})
    }

    #[test]
    fn a_binding_names_a_node() {
        check_errors(&validate_binding(&binding()), &[]);
        check_errors(
            &validate_binding(&json!({"target": {"kind": "Pod"}})),
            &[
                "target.kind: Unsupported value: \"Pod\": supported values: \"Node\"",
                "target.name: R",
            ],
        );
    }

    #[test]
    fn a_pod_is_bound_once() {
        let mut pod = json!({"metadata": {"name": "p", "uid": "u", "generation": 3}, "spec": {}});
        bind(&mut pod, &binding(), "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["metadata"]["annotations"]["a"], "b");
        assert_eq!(pod["status"]["conditions"][0]["status"], "True");
        assert_eq!(pod["status"]["conditions"][0]["observedGeneration"], 3);
        let error = bind(&mut pod, &binding(), "").unwrap_err();
        assert_eq!(error.to_string(), "pod p is already assigned to node \"n\"");
    }

    #[test]
    fn a_pod_that_waits_or_leaves_is_not_bound() {
        let mut gated = json!({"spec": {"schedulingGates": [{"name": "g"}]}});
        assert!(matches!(bind(&mut gated, &binding(), ""), Err(BindError::Gated { .. })));
        let mut leaving = json!({"metadata": {"deletionTimestamp": "t"}});
        assert!(matches!(bind(&mut leaving, &binding(), ""), Err(BindError::Deleted { .. })));
        let mut other = json!({"metadata": {"uid": "u"}});
        let mut binding = binding();
        binding["metadata"]["uid"] = "v".into();
        assert!(matches!(bind(&mut other, &binding, ""), Err(BindError::Uid { .. })));
    }
}
