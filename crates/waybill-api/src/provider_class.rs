//! `ProviderClass`: which driver serves which keys to whom.
//!
//! The class is the administrator's; pods only name it. Values of its parameters are not secrets, but
//! may tell where secrets are, so neither `Debug` nor an error shows any, except the two allow-lists.

pub mod hints;
mod immutable;
mod usage;
mod validate;

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};
use waybill_core::provider::{
    ALLOWED_FIELDS, ALLOWED_NAMESPACES, AllowListError, AllowedFields, AllowedNamespaces,
};

pub use self::{
    usage::UseDenied,
    validate::{validate_create, validate_update},
};

/// The API group of the kind (CSI-15).
pub const GROUP: &str = "storage.k8s.io";

/// The versions that serve it, the stored one first (OP-31).
pub const VERSIONS: [&str; 2] = ["v1", "v1alpha1"];

/// Its name in objects.
pub const KIND: &str = "ProviderClass";

/// Its name in URLs and RBAC rules; it is cluster-scoped.
pub const RESOURCE: &str = "providerclasses";

/// Annotation that lists fields which must not change (CSI-17).
pub const IMMUTABLE_FIELDS: &str = "storage.k8s.io/immutable-fields";

/// A class as it stands in the API.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderClass {
    /// `storage.k8s.io/` and one of [`VERSIONS`].
    #[serde(default)]
    pub api_version: String,
    /// Always [`KIND`].
    #[serde(default)]
    pub kind: String,
    /// Name, annotations and what else objects carry.
    #[serde(default, deserialize_with = "null_as_default")]
    pub metadata: Metadata,
    /// What the class says.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: Spec,
}

/// The metadata that we judge, and the rest as it came.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The class's name.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// Its annotations.
    #[serde(default, deserialize_with = "text_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Every other field, unread.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What a class says.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The CSI driver that serves the class.
    #[serde(default, deserialize_with = "null_as_default")]
    pub driver: String,
    /// Parameters for the driver, among them the allow-lists and the [`hints`].
    #[serde(default, deserialize_with = "text_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl ProviderClass {
    /// The namespaces whose pods may use the class.
    pub fn allowed_namespaces(&self) -> Result<AllowedNamespaces, AllowListError> {
        AllowedNamespaces::of(self.parameters())
    }

    /// The keys that the class serves.
    pub fn allowed_fields(&self) -> Result<AllowedFields, AllowListError> {
        AllowedFields::of(self.parameters())
    }

    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.spec.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        self.spec.parameters.get(key).map(String::as_str)
    }
}

/// Shows names only; an annotation may hold a copy of all parameters.
impl fmt::Debug for ProviderClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderClass")
            .field("name", &self.metadata.name)
            .field("driver", &self.spec.driver)
            .field("parameters", &self.spec.parameters.keys())
            .finish_non_exhaustive()
    }
}

/// What the author of a class should know although it is valid (OP-32).
pub fn warnings(class: &ProviderClass) -> Vec<String> {
    let absent = |key: &str| class.parameter(key).is_none();
    let mut warnings = Vec::new();
    if absent(ALLOWED_NAMESPACES) {
        warnings.push(format!(
            "spec.parameters[{ALLOWED_NAMESPACES}]: not set, pods of every namespace may use this \
             class; set \"*\" to say so"
        ));
    }
    if absent(ALLOWED_FIELDS) {
        warnings.push(format!(
            "spec.parameters[{ALLOWED_FIELDS}]: not set, this class serves every key that its \
             driver can read; set \"**\" to say so"
        ));
    }
    warnings
}

/// Kubernetes reads `null` as absent.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A map of texts. Other content is refused in words of our own, because serde's would quote it.
fn text_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let fault = || D::Error::custom("annotations and parameters must map strings to strings");
    let entries = match Value::deserialize(deserializer)? {
        Value::Null => Map::new(),
        Value::Object(entries) => entries,
        _ => return Err(fault()),
    };
    let text = |(key, value)| match value {
        Value::Null => Ok((key, String::new())),
        Value::String(text) => Ok((key, text)),
        _ => Err(fault()),
    };
    entries.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// CSI-15
    #[test]
    fn a_class_survives_decoding_and_encoding_csi_15() {
        let document = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "ProviderClass",
            "metadata": {
                "name": "vault",
                "uid": "u1",
                "labels": {"a": "b"},
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {"x": "y"},
            },
            "spec": {"driver": "d.example.com", "parameters": {"vaultAddr": "https://v"}},
        });
        let class: ProviderClass = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(class.metadata.rest.len(), 3);
        assert_eq!(serde_json::to_value(class).unwrap(), document);
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let null = json!({
            "metadata": {"name": "c", "annotations": null},
            "spec": {"driver": null, "parameters": null},
        });
        let absent = json!({"metadata": {"name": "c"}});
        let class = |document| serde_json::from_value::<ProviderClass>(document).unwrap();
        assert_eq!(class(null), class(absent));
    }

    #[test]
    fn decoding_errors_never_show_a_parameter() {
        for parameters in [json!("hunter2"), json!(["hunter2"]), json!({"a": ["hunter2"]})] {
            let document = json!({"spec": {"driver": "d", "parameters": parameters}});
            let error = serde_json::from_value::<ProviderClass>(document).unwrap_err();
            assert_eq!(error.to_string(), "annotations and parameters must map strings to strings");
        }
    }

    #[test]
    fn unrestricted_classes_are_warned_about_op_32() {
        let mut class = ProviderClass::default();
        let texts = warnings(&class);
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with("spec.parameters[allowedNamespaces]: not set"));
        assert!(texts[1].starts_with("spec.parameters[allowedFields]: not set"));

        class.spec.parameters.insert(ALLOWED_NAMESPACES.into(), "*".into());
        assert_eq!(warnings(&class).len(), 1);
        class.spec.parameters.insert(ALLOWED_FIELDS.into(), String::new());
        assert!(warnings(&class).is_empty());
    }

    #[test]
    fn debug_output_never_shows_a_parameter() {
        let class: ProviderClass = serde_json::from_value(json!({
            "metadata": {"name": "c", "annotations": {"a": "hunter2"}, "labels": {"a": "hunter2"}},
            "spec": {"driver": "d", "parameters": {"token": "hunter2"}},
        }))
        .unwrap();
        let text = format!("{class:?}");
        assert!(text.contains("token") && !text.contains("hunter2"), "{text}");
    }
}
