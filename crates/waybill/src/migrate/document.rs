//! Looking into objects that are JSON documents.

use std::collections::BTreeMap;

use serde_json::Value;

/// The text at a JSON pointer.
pub(super) fn text<'v>(object: &'v Value, pointer: &str) -> Option<&'v str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// The items of the list at a JSON pointer.
pub(super) fn items<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The map of texts at a JSON pointer; what is not a text there is left out.
pub(super) fn text_map(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    let entries = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    entries.filter_map(text).collect()
}

/// Sets a field of an object.
pub(super) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object {
        fields.insert(field.to_owned(), value.into());
    }
}

/// Where the pod spec of a workload is; nothing for objects that start no pods.
pub(super) fn pod_spec(object: &Value) -> Option<&'static str> {
    let (version, kind) = (text(object, "/apiVersion")?, text(object, "/kind")?);
    match (version.split('/').next()?, kind) {
        ("v1", "Pod") => Some("/spec"),
        ("v1", "PodTemplate") => Some("/template/spec"),
        ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job")
        | ("v1", "ReplicationController") => Some("/spec/template/spec"),
        ("batch", "CronJob") => Some("/spec/jobTemplate/spec/template/spec"),
        _ => None,
    }
}

/// Kind, namespace and name, as reports name an object.
pub(super) fn title(object: &Value, namespace: &str) -> String {
    let namespace = text(object, "/metadata/namespace").unwrap_or(namespace);
    let of = |pointer| text(object, pointer).unwrap_or_default();
    format!("{} {namespace}/{}", of("/kind"), of("/metadata/name"))
}

/// Every container of a pod spec, with its JSON pointer below the spec.
pub(super) fn containers(spec: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (at, container) in items(spec, &format!("/{list}")).iter().enumerate() {
            found.push((format!("/{list}/{at}"), container));
        }
    }
    found
}
