//! Between the form in which objects are stored and the other forms in which they are served.
//!
//! Events have two faces: the core group's and that of `events.k8s.io`. Provider classes are served
//! under an older version too. Everything else is stored as it is served.

use serde_json::{Map, Value};

use crate::{document::put, kinds::event::EVENTS_OF_EVENTS, registry::Resource};

/// Fields of an event: in the core group, and in `events.k8s.io`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// Makes what a client of `resource` sent into what is stored.
pub(crate) fn to_storage(resource: &'static Resource, mut document: Value) -> Value {
    let stored = resource.storage();
    if std::ptr::eq(resource, stored) || document.is_null() {
        return document;
    }
    if std::ptr::eq(resource, &EVENTS_OF_EVENTS) {
        rename(&mut document, |(core, events)| (events, core));
    }
    put(&mut document, "/apiVersion", stored.api_version());
    document
}

/// Makes what is stored into what clients of `resource` see.
pub(crate) fn from_storage(resource: &'static Resource, mut document: Value) -> Value {
    if std::ptr::eq(resource, resource.storage()) || document.is_null() {
        return document;
    }
    if std::ptr::eq(resource, &EVENTS_OF_EVENTS) {
        rename(&mut document, |(core, events)| (core, events));
    }
    put(&mut document, "/apiVersion", resource.api_version());
    document
}

fn rename(
    document: &mut Value,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let empty = &mut Map::new();
    let fields = document.as_object_mut().unwrap_or(empty);
    for &pair in EVENT_FIELDS {
        let (from, to) = direction(pair);
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::find;

    #[test]
    fn events_have_two_faces_and_come_back_the_same() {
        let face = find("events.k8s.io", "v1", "events").unwrap();
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod"}, "message": "hello", "reason": "Because", "count": 3,
        });
        let shown = from_storage(face, stored.clone());
        assert_eq!(shown["apiVersion"], "events.k8s.io/v1");
        assert_eq!(shown["regarding"], json!({"kind": "Pod"}));
        assert_eq!((&shown["note"], &shown["reason"]), (&json!("hello"), &json!("Because")));
        assert_eq!(to_storage(face, shown), stored);
    }

    #[test]
    fn provider_classes_are_served_under_an_older_version() {
        let older = find("storage.k8s.io", "v1alpha1", "providerclasses").unwrap();
        let stored = json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass"});
        let shown = from_storage(older, stored.clone());
        assert_eq!(shown["apiVersion"], "storage.k8s.io/v1alpha1");
        assert_eq!(to_storage(older, shown), stored);
    }
}
