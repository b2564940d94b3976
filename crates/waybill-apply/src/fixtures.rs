//! A kind with one of everything, for the tests.

use std::{borrow::Cow, sync::LazyLock};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{FieldSet, Schema, Tracker, Versions};

/// The kind: a struct that is always there, lists of all types, maps, atomic things.
pub(crate) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let definitions = json!({
        "Thing": {"type": "object", "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": "#/definitions/Meta", "default": {}},
            "spec": {"$ref": "#/definitions/Spec", "default": {}},
            "status": {"$ref": "#/definitions/Status", "default": {}},
            "data": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "Meta": {"type": "object", "properties": {
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"},
                "x-kubernetes-list-type": "set"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "managedFields": {"type": "array", "items": {"type": "object"}},
            "name": {"type": "string"},
            "resourceVersion": {"type": "string"},
            "uid": {"type": "string"},
        }},
        "Spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "args": {"type": "array", "items": {"type": "string"}},
            "containers": {"type": "array", "items": {"$ref": "#/definitions/Container"},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"},
                "x-kubernetes-map-type": "atomic"},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "probe": {"$ref": "#/definitions/Probe"},
            "selector": {"$ref": "#/definitions/Selector"},
        }},
        "Container": {"type": "object", "properties": {
            "image": {"type": "string"},
            "name": {"type": "string"},
            "env": {"type": "array", "items": {"$ref": "#/definitions/Env"},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            "ports": {"type": "array", "items": {"$ref": "#/definitions/Port"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["containerPort", "protocol"]},
            "resources": {"$ref": "#/definitions/Resources", "default": {}},
        }},
        "Env": {"type": "object", "properties": {
            "name": {"type": "string"}, "value": {"type": "string"},
        }},
        "Port": {"type": "object", "properties": {
            "containerPort": {"type": "integer"},
            "name": {"type": "string"},
            "protocol": {"type": "string", "default": "TCP"},
        }},
        "Resources": {"type": "object", "properties": {
            "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "Probe": {"type": "object", "properties": {
            "exec": {"$ref": "#/definitions/Exec"}, "period": {"type": "integer"},
        }},
        "Exec": {"type": "object", "properties": {
            "command": {"type": "array", "items": {"type": "string"},
                "x-kubernetes-list-type": "atomic"},
        }},
        "Selector": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "Status": {"type": "object", "properties": {
            "phase": {"type": "string"},
            "conditions": {"type": "array", "items": {"$ref": "#/definitions/Condition"},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        }},
        "Condition": {"type": "object", "properties": {
            "type": {"type": "string"}, "status": {"type": "string"},
        }},
    });
    Schema::new(definitions.as_object().unwrap_or(&Map::new()), "Thing")
});

/// Two versions that differ in nothing but the name of one field: `spec.replicas` is `spec.count` in `v2`.
pub(crate) struct Things {
    ignored: FieldSet,
}

impl Things {
    /// As writes to the object itself see it.
    pub(crate) fn main() -> Self {
        Self { ignored: unmanaged(&[&["status"]]) }
    }

    /// As writes to its status see it.
    pub(crate) fn status() -> Self {
        Self { ignored: unmanaged(&[&["spec"]]) }
    }
}

fn unmanaged(parts: &[&[&str]]) -> FieldSet {
    let mut set = FieldSet::of_fields(parts);
    set.unite(&FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "resourceVersion"],
        &["metadata", "uid"],
    ]));
    set
}

impl Versions for Things {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        ["v1", "v2"].contains(&api_version).then(|| &*SCHEMA)
    }

    fn convert<'o>(&self, object: &'o Value, api_version: &str) -> Option<Cow<'o, Value>> {
        let found = object.get("apiVersion").and_then(Value::as_str);
        match found {
            Some(found) if found != api_version => {
                let mut object = object.clone();
                object["apiVersion"] = api_version.into();
                Some(Cow::Owned(object))
            }
            _ => Some(Cow::Borrowed(object)),
        }
    }

    fn unmanaged(&self, _: &str) -> &FieldSet {
        &self.ignored
    }
}

pub(crate) fn tracker<'a>(things: &'a Things, manager: &'a str, now: &'a str) -> Tracker<'a> {
    Tracker { versions: things, api_version: "v1", manager, subresource: "", now }
}

/// A thing with this metadata and spec.
#[expect(clippy::needless_pass_by_value, reason = "cases are written in place")]
pub(crate) fn thing(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

/// The fields of a manager of `object`, or null.
pub(crate) fn fields(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array();
    let entry = entries.into_iter().flatten().find(|entry| entry["manager"] == manager);
    entry.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
}

/// `object` as users see it: without its managers.
pub(crate) fn shown(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Sets of a few paths, some of which lie below others.
pub(crate) fn any_set() -> impl Strategy<Value = FieldSet> {
    let step = prop_oneof![
        Just("f:a".to_owned()),
        Just("f:b".to_owned()),
        Just(r#"k:{"name":"x"}"#.to_owned()),
        Just(r#"v:"y""#.to_owned()),
    ];
    let path = prop::collection::vec(step, 1..4);
    prop::collection::vec(path, 0..8).prop_map(|paths| {
        let mut set = FieldSet::new();
        for path in &paths {
            set.insert(path);
        }
        set
    })
}

/// Configurations of the kind.
pub(crate) fn any_config() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[ab]", "[xy]", 0..3);
    let env = prop::collection::btree_map("[AB]", "[xy]", 0..3).prop_map(|env| {
        env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    });
    let ports = prop::collection::btree_set(80..83_i64, 0..3)
        .prop_map(|ports| ports.into_iter().map(|port| json!({"containerPort": port})).collect());
    let parts = (prop::option::of("[im]"), env, ports);
    let containers = prop::collection::btree_map("[cd]", parts, 0..3).prop_map(|containers| {
        let made = containers.into_iter().map(|(name, (image, env, ports))| {
            let (env, ports): (Vec<Value>, Vec<Value>) = (env, ports);
            without_nothing(json!({"name": name, "image": image, "env": env, "ports": ports}))
        });
        made.collect::<Vec<_>>()
    });
    let finalizers = prop::collection::btree_set("[fgh]", 0..3);
    let scalars = (prop::option::of(0..3_i64), prop::collection::vec("[pq]", 0..3));
    let selector = prop::collection::btree_map("[ab]", "[xy]", 0..2);
    (labels, containers, finalizers, scalars, selector).prop_map(
        |(labels, containers, finalizers, (replicas, args), selector)| {
            let metadata = json!({"name": "a", "labels": labels, "finalizers": finalizers});
            let spec = json!({"replicas": replicas, "args": args, "containers": containers,
                "nodeSelector": selector});
            let mut thing = thing(without_nothing(spec));
            thing["metadata"] = without_nothing(metadata);
            thing
        },
    )
}

/// `object` without fields that hold nothing.
fn without_nothing(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| {
            !value.is_null()
                && value.as_array().is_none_or(|items| !items.is_empty())
                && value.as_object().is_none_or(|fields| !fields.is_empty())
        });
    }
    object
}
