//! How lists and maps merge: the extensions that clients read when they compute a patch.
//!
//! The facts are those of the Kubernetes API, written by `cargo xtask gen` (ADR 0058) but for what the types of Go hold by
//! value. What is not listed is replaced as a whole.

#[rustfmt::skip]
mod generated;

use serde_json::{Value, json};

use self::generated::{ATOMIC_MAPS, ATOMIC_OBJECTS, FIELDS, KEY_DEFAULTS};
use super::definitions::{Definitions, OBJECT_META};

/// Adds the extensions to every listed field that `definitions` has.
pub(super) fn annotate(definitions: &mut Definitions) {
    for (definition, fields) in FIELDS {
        let Some(properties) =
            definitions.get_mut(*definition).and_then(|found| found.get_mut("properties"))
        else {
            continue;
        };
        for (name, merge) in *fields {
            if let Some(Value::Object(field)) = properties.get_mut(*name) {
                for (key, value) in merge.extensions() {
                    field.insert(key.to_owned(), value);
                }
            }
        }
    }
    for name in ATOMIC_OBJECTS {
        if let Some(Value::Object(definition)) = definitions.get_mut(*name) {
            definition.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
    }
    for (definition, name) in ATOMIC_MAPS {
        insert(definitions, definition, name, "x-kubernetes-map-type", "atomic".into());
    }
    for (definition, name, value) in KEY_DEFAULTS {
        insert(definitions, definition, name, "default", (*value).into());
    }
    for (definition, names) in BY_VALUE {
        for name in *names {
            insert(definitions, definition, name, "default", json!({}));
        }
    }
    for definition in definitions.values_mut() {
        let Some(Value::Object(properties)) = definition.get_mut("properties") else { continue };
        let metadata = properties.get("metadata").and_then(|metadata| metadata.get("$ref"));
        if metadata.is_none_or(|reference| reference != OBJECT_META) {
            continue;
        }
        for name in PARTS {
            if let Some(Value::Object(part)) = properties.get_mut(name) {
                part.insert("default".to_owned(), json!({}));
            }
        }
    }
}

/// Says `key: value` of the field `name` of `definition`, if there is such a field.
fn insert(definitions: &mut Definitions, definition: &str, name: &str, key: &str, value: Value) {
    let properties = definitions.get_mut(definition).and_then(|found| found.get_mut("properties"));
    if let Some(Value::Object(field)) = properties.and_then(|found| found.get_mut(name)) {
        field.insert(key.to_owned(), value);
    }
}

/// How the elements of a list are told apart, by server-side apply and by strategic merge patch.
#[derive(Clone, Copy)]
enum Merge {
    /// Replaced as a whole by both.
    Atomic,
    /// Values, each at most once.
    Set,
    /// As `Set`, but a patch replaces the whole list.
    SetReplaced,
    /// Objects under the first key in a patch, under all of them in server-side apply.
    By(&'static [&'static str]),
    /// As `By`, but a patch replaces the whole list.
    ByReplaced(&'static [&'static str]),
    /// Objects under this key in a patch, replaced as a whole by server-side apply.
    PatchBy(&'static str),
    /// Objects under the first key, of each of which a patch keeps only the keys that it names.
    ByRetainKeys(&'static [&'static str]),
}

impl Merge {
    fn extensions(self) -> Vec<(&'static str, Value)> {
        let list_type = |name: &str| ("x-kubernetes-list-type", name.into());
        let map_keys = |keys: &[&str]| ("x-kubernetes-list-map-keys", json!(keys));
        let strategy = |name: &str| ("x-kubernetes-patch-strategy", name.into());
        let merge_key = |key: Option<&&str>| ("x-kubernetes-patch-merge-key", json!(key));
        match self {
            Self::Atomic => vec![list_type("atomic")],
            Self::Set => vec![list_type("set"), strategy("merge")],
            Self::SetReplaced => vec![list_type("set")],
            Self::By(keys) => {
                vec![list_type("map"), map_keys(keys), strategy("merge"), merge_key(keys.first())]
            }
            Self::ByReplaced(keys) => vec![list_type("map"), map_keys(keys)],
            Self::PatchBy(key) => {
                vec![list_type("atomic"), strategy("merge"), merge_key(Some(&key))]
            }
            Self::ByRetainKeys(keys) => vec![
                list_type("map"),
                map_keys(keys),
                strategy("merge,retainKeys"),
                merge_key(keys.first()),
            ],
        }
    }
}

/// Objects that upstream's types hold by value, besides the parts of every object: they are there with what
/// holds them, so whoever writes into one does not add it.
const BY_VALUE: &[(&str, &[&str])] = &[
    ("io.k8s.api.admissionregistration.v1.MutatingWebhook", &["clientConfig"]),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhook", &["clientConfig"]),
    ("io.k8s.api.core.v1.Container", &["resources"]),
    ("io.k8s.api.core.v1.EphemeralContainer", &["resources"]),
    ("io.k8s.api.core.v1.Event", &["involvedObject", "source"]),
    ("io.k8s.api.core.v1.NodeDaemonEndpoints", &["kubeletEndpoint"]),
    ("io.k8s.api.core.v1.NodeStatus", &["daemonEndpoints", "nodeInfo"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &["resources"]),
    ("io.k8s.api.core.v1.PodTemplate", &["template"]),
    ("io.k8s.api.core.v1.ServiceStatus", &["loadBalancer"]),
    ("io.k8s.api.events.v1.Event", &["deprecatedSource", "regarding"]),
    ("io.k8s.api.rbac.v1.ClusterRoleBinding", &["roleRef"]),
    ("io.k8s.api.rbac.v1.RoleBinding", &["roleRef"]),
];

/// The parts of an object that it holds by value.
const PARTS: [&str; 3] = ["metadata", "spec", "status"];

#[cfg(test)]
mod tests {
    use super::{
        super::{definitions::define, kinds},
        *,
    };

    #[test]
    fn every_listed_field_exists() {
        let definitions = define(kinds::all());
        for (definition, fields) in FIELDS {
            for (name, _) in *fields {
                let field = &definitions[*definition]["properties"][*name];
                assert_eq!(field["type"], "array", "{definition} {name}");
            }
        }
        for name in ATOMIC_OBJECTS {
            assert!(definitions.contains_key(*name), "{name}");
        }
        for (definition, name) in ATOMIC_MAPS {
            assert_eq!(definitions[*definition]["properties"][*name]["type"], "object", "{name}");
        }
        for (definition, name, value) in KEY_DEFAULTS {
            assert_eq!(definitions[*definition]["properties"][*name]["default"], *value, "{name}");
        }
        for (definition, names) in BY_VALUE {
            let properties = &definitions[*definition]["properties"];
            assert_eq!(properties[names[0]]["default"], json!({}), "{definition}");
        }
    }
}
