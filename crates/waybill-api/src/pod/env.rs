//! The parts of a container that define its variables.
//!
//! These are views of a JSON document: unknown fields are left where they are, null reads as absent,
//! and nothing is judged here. No view can print the value of a variable.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use waybill_core::quantity::Quantity;

use super::json::{object, or_default, wrong_kind};
use crate::quantity::or_zero;

/// One entry of `env`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    /// Name of the variable.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Its value, when it stands in the pod itself.
    pub value: HiddenText,
    /// Where the value is to be fetched.
    #[serde(deserialize_with = "object")]
    pub value_from: Option<EnvVarSource>,
}

/// `valueFrom`: at most one of the fields may be set, which validation checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVarSource {
    /// A field of the pod.
    #[serde(deserialize_with = "object")]
    pub field_ref: Option<ObjectFieldSelector>,
    /// A limit or request of a container.
    #[serde(deserialize_with = "object")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
    /// A key of a ConfigMap.
    #[serde(deserialize_with = "object")]
    pub config_map_key_ref: Option<KeySelector>,
    /// A key of a Secret.
    #[serde(deserialize_with = "object")]
    pub secret_key_ref: Option<KeySelector>,
    /// A key of an env file in a volume (KEP-3721).
    #[serde(deserialize_with = "object")]
    pub file_key_ref: Option<FileKeySelector>,
    /// A key of an external system, by way of a CSI driver.
    #[serde(deserialize_with = "object")]
    pub csi_secret_ref: Option<CsiSecretSelector>,
}

/// A field of the pod itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectFieldSelector {
    /// Version of the pod schema in which the path is written.
    #[serde(deserialize_with = "pod_version")]
    pub api_version: String,
    /// Path of the field, such as `metadata.name`.
    #[serde(deserialize_with = "or_default")]
    pub field_path: String,
}

impl Default for ObjectFieldSelector {
    fn default() -> Self {
        Self { api_version: POD_VERSION.to_owned(), field_path: String::new() }
    }
}

/// A limit or request of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceFieldSelector {
    /// Whose; empty for the container that holds the variable.
    #[serde(deserialize_with = "or_default")]
    pub container_name: String,
    /// Which, such as `limits.cpu`.
    #[serde(deserialize_with = "or_default")]
    pub resource: String,
    /// The unit in which to give it; zero for the usual one.
    #[serde(deserialize_with = "or_zero")]
    pub divisor: Quantity,
}

/// A key of a ConfigMap or a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeySelector {
    /// Name of the ConfigMap or Secret.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The key in it.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// Whether the container may start without it.
    #[serde(deserialize_with = "or_default")]
    pub optional: bool,
}

/// A key of an env file that another container of the pod wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileKeySelector {
    /// The `emptyDir` volume of the pod.
    #[serde(deserialize_with = "or_default")]
    pub volume_name: String,
    /// Path of the file in the volume.
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    /// The variable in the file.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// Whether the container may start without it.
    #[serde(deserialize_with = "or_default")]
    pub optional: bool,
}

/// A key of an external system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiSecretSelector {
    /// The CSI driver that fetches the value.
    #[serde(deserialize_with = "or_default")]
    pub driver: String,
    /// The ProviderClass that allows it.
    #[serde(deserialize_with = "or_default")]
    pub provider_class_name: String,
    /// What to fetch, in the driver's own terms.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// For the driver; hidden, since users put what they like there.
    #[serde(deserialize_with = "or_default")]
    pub parameters: BTreeMap<String, HiddenText>,
    /// Whether the container may start without it (OP-33).
    #[serde(deserialize_with = "or_default")]
    pub optional: bool,
}

/// One entry of `envFrom`: all keys of a ConfigMap or Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvFromSource {
    /// Put before each key; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub prefix: String,
    /// The ConfigMap.
    #[serde(deserialize_with = "object")]
    pub config_map_ref: Option<EnvSource>,
    /// The Secret.
    #[serde(deserialize_with = "object")]
    pub secret_ref: Option<EnvSource>,
}

/// A whole ConfigMap or Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvSource {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Whether the container may start without it.
    #[serde(deserialize_with = "or_default")]
    pub optional: bool,
}

/// Text that a user typed where secrets are typed: `Debug` shows its length only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HiddenText(String);

impl HiddenText {
    /// The text. Where it goes from here is the caller's responsibility.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of its characters is of a kind.
    pub(crate) fn has(&self, kind: impl Fn(char) -> bool) -> bool {
        self.0.contains(kind)
    }
}

impl fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HiddenText({} bytes)", self.0.len())
    }
}

/// Not derived, because serde's own errors repeat what they found.
impl<'de> Deserialize<'de> for HiddenText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Self::default()),
            Value::String(text) => Ok(Self(text)),
            other => Err(wrong_kind(&other, "a string")),
        }
    }
}

/// The one version of the pod schema, and the default of `fieldRef.apiVersion`.
pub(super) const POD_VERSION: &str = "v1";

fn pod_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let version = Option::deserialize(deserializer)?;
    Ok(version.unwrap_or_else(|| POD_VERSION.to_owned()))
}
