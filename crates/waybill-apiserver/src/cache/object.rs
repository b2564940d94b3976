//! An object as the cache keeps it: the bytes that clients get, and what selectors look at.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use waybill_core::id::ResourceVersion;

/// Namespace and name; objects without a namespace have an empty one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// A key that comes before every object of `namespace`.
    pub(super) fn first_of(namespace: &str) -> Self {
        Self::new(namespace, "")
    }
}

/// One object at one revision.
#[derive(Debug)]
pub(crate) struct CachedObject {
    pub(crate) key: ObjectKey,
    pub(crate) revision: ResourceVersion,
    /// The whole document with its `resourceVersion`.
    pub(crate) json: Bytes,
    pub(crate) labels: BTreeMap<String, String>,
    /// What field selectors of this resource can ask for, beyond name and namespace.
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl CachedObject {
    /// Makes `document` ready to be served as of `revision`.
    pub(crate) fn new(
        mut document: Value,
        revision: ResourceVersion,
        fields: impl FnOnce(&Value) -> Vec<(&'static str, String)>,
    ) -> Self {
        if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
        let metadata = document.get("metadata");
        let text = |field: &str| {
            metadata.and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or("")
        };
        let labels = metadata
            .and_then(|metadata| metadata.get("labels"))
            .and_then(Value::as_object)
            .map(|labels| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                labels.iter().map(|(key, value)| (key.clone(), text(value))).collect()
            })
            .unwrap_or_default();
        Self {
            key: ObjectKey::new(text("namespace"), text("name")),
            revision,
            json: Bytes::from(document.to_string()),
            labels,
            fields: fields(&document),
        }
    }

    /// The document, to be changed.
    pub(crate) fn document(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The value of a field that a selector asks for.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(&self.key.name),
            "metadata.namespace" => Some(&self.key.namespace),
            _ => {
                let found = self.fields.iter().find(|(field, _)| *field == name);
                found.map(|(_, value)| value.as_str())
            }
        }
    }
}
