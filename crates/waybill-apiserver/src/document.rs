//! Reading and writing JSON objects without surprises: what is missing reads as null, and writing
//! makes the way.

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};
use waybill_core::id::ResourceVersion;

use crate::store::kept;

/// What stands at `pointer`, as `/spec/nodeName`; null if nothing does.
pub(crate) fn at<'a>(document: &'a Value, pointer: &str) -> &'a Value {
    document.pointer(pointer).unwrap_or(&Value::Null)
}

/// The text at `pointer`; empty if there is none.
pub(crate) fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    at(document, pointer).as_str().unwrap_or_default()
}

/// The items of the list at `pointer`; none if there is no list.
pub(crate) fn items<'a>(document: &'a Value, pointer: &str) -> &'a [Value] {
    at(document, pointer).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The place at `pointer`, to be changed. Whatever on the way is no object becomes one.
pub(crate) fn at_mut<'a>(document: &'a mut Value, pointer: &str) -> &'a mut Value {
    let mut place = document;
    for name in pointer.split('/').skip(1) {
        place = fields(place).entry(name).or_insert(Value::Null);
    }
    place
}

/// Sets what stands at `pointer`.
pub(crate) fn put(document: &mut Value, pointer: &str, value: impl Into<Value>) {
    *at_mut(document, pointer) = value.into();
}

/// The text at `metadata.<field>`; empty if there is none.
pub(crate) fn metadata<'a>(document: &'a Value, field: &str) -> &'a str {
    let found = document.get("metadata").and_then(|metadata| metadata.get(field));
    found.and_then(Value::as_str).unwrap_or_default()
}

/// Sets `metadata.<field>`.
pub(crate) fn set_metadata(document: &mut Value, field: &str, value: impl Into<Value>) {
    fields(at_mut(document, "/metadata")).insert(field.to_owned(), value.into());
}

/// Removes `metadata.<field>`.
pub(crate) fn remove_metadata(document: &mut Value, field: &str) {
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}

/// Whether the object has been marked for deletion.
pub(crate) fn is_terminating(document: &Value) -> bool {
    !metadata(document, "deletionTimestamp").is_empty()
}

/// Whether something still has to happen before the object may go.
pub(crate) fn has_finalizers(document: &Value) -> bool {
    !items(document, "/metadata/finalizers").is_empty()
        || (text(document, "/kind") == "Namespace"
            && !items(document, "/spec/finalizers").is_empty())
}

/// A time as Kubernetes writes it in metadata: whole seconds, UTC.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The object with the resource version of its last write.
pub(crate) fn with_version(mut document: Value, version: ResourceVersion) -> Value {
    set_metadata(&mut document, "resourceVersion", version.to_string());
    document
}

/// The object as an item of a list, which says once for all what they are.
pub(crate) fn without_type(mut document: Value) -> Value {
    if let Some(fields) = document.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    document
}

/// The document as it is stored.
pub(crate) fn to_bytes(document: &Value) -> Bytes {
    kept(document.to_string().as_bytes())
}

/// Reads a stored document, but not who manages its fields.
pub(crate) fn without_managers(stored: &[u8]) -> Result<Value, serde_json::Error> {
    let mut source = serde_json::Deserializer::from_slice(stored);
    let read = Level::Root.deserialize(&mut source).and_then(|read| source.end().map(|()| read));
    // What is not as we write it is read as it is.
    read.or_else(|_| serde_json::from_slice(stored))
}

/// The levels of a document on the way to its managers.
#[derive(Clone, Copy)]
enum Level {
    Root,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = source.next_key::<String>()? {
            let value = match (self, name.as_str()) {
                (Self::Root, "metadata") => source.next_value_seed(Self::Metadata)?,
                (Self::Metadata, "managedFields") => {
                    source.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Self::Root | Self::Metadata, _) => source.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
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
    fn managers_can_be_left_unread() {
        let stored =
            br#"{"metadata":{"managedFields":[{"a":1}],"name":"n"},"data":{"managedFields":"x"}}"#;
        assert_eq!(
            without_managers(stored).unwrap(),
            json!({"metadata": {"name": "n"}, "data": {"managedFields": "x"}})
        );
        assert_eq!(without_managers(br#"{"metadata":1}"#).unwrap(), json!({"metadata": 1}));
        assert!(without_managers(b"{} {}").is_err());
    }

    #[test]
    fn namespaces_have_finalizers_in_their_spec_too() {
        assert!(has_finalizers(&json!({"metadata": {"finalizers": ["x/y"]}})));
        assert!(has_finalizers(&json!({"kind": "Namespace", "spec": {"finalizers": ["k"]}})));
        assert!(!has_finalizers(&json!({"kind": "Pod", "spec": {"finalizers": ["k"]}})));
        assert!(!has_finalizers(&json!({"metadata": {"finalizers": []}})));
    }
}
