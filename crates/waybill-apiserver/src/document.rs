//! Reading and writing the metadata of JSON objects.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The text at `metadata.<field>`; empty if there is none.
pub(crate) fn metadata<'a>(document: &'a Value, field: &str) -> &'a str {
    document["metadata"][field].as_str().unwrap_or_default()
}

/// Sets `metadata.<field>`; `metadata` is made if it is missing.
pub(crate) fn set_metadata(document: &mut Value, field: &str, value: impl Into<Value>) {
    metadata_mut(document).insert(field.to_owned(), value.into());
}

/// Removes `metadata.<field>`.
pub(crate) fn remove_metadata(document: &mut Value, field: &str) {
    metadata_mut(document).remove(field);
}

/// Whether the object has been marked for deletion.
pub(crate) fn is_terminating(document: &Value) -> bool {
    !metadata(document, "deletionTimestamp").is_empty()
}

/// Whether something still has to happen before the object may go.
pub(crate) fn has_finalizers(document: &Value) -> bool {
    let some = |value: &Value| value.as_array().is_some_and(|finalizers| !finalizers.is_empty());
    some(&document["metadata"]["finalizers"])
        || (document["kind"] == "Namespace" && some(&document["spec"]["finalizers"]))
}

/// A time as Kubernetes writes it in metadata: whole seconds, UTC.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The object with the resource version of its last write.
pub(crate) fn with_version(mut document: Value, version: impl ToString) -> Value {
    set_metadata(&mut document, "resourceVersion", version.to_string());
    document
}

fn metadata_mut(document: &mut Value) -> &mut Map<String, Value> {
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let metadata = &mut document["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_made_where_it_is_missing() {
        let mut document = json!({});
        set_metadata(&mut document, "name", "a");
        assert_eq!(document, json!({"metadata": {"name": "a"}}));
        assert_eq!(metadata(&document, "name"), "a");
        assert_eq!(metadata(&document, "namespace"), "");
        remove_metadata(&mut document, "name");
        assert_eq!(document, json!({"metadata": {}}));
    }

    #[test]
    fn namespaces_have_finalizers_in_their_spec_too() {
        assert!(has_finalizers(&json!({"metadata": {"finalizers": ["x/y"]}})));
        assert!(has_finalizers(&json!({"kind": "Namespace", "spec": {"finalizers": ["k"]}})));
        assert!(!has_finalizers(&json!({"kind": "Pod", "spec": {"finalizers": ["k"]}})));
        assert!(!has_finalizers(&json!({"metadata": {"finalizers": []}})));
    }
}
