//! Views of the four RBAC kinds.
//!
//! A view is lenient: null reads as absent and unknown fields are ignored, since validation judged
//! the object when it was written. What cannot be read at all grants nothing.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::rule::PolicyRule;
use crate::selector::label::LabelSelector;

/// The API group of the kinds.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A view of one object of the RBAC API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RbacObject {
    ClusterRole(ClusterRole),
    ClusterRoleBinding(Binding),
    Role(Role),
    RoleBinding(Binding),
}

impl RbacObject {
    /// Takes the view of `object`.
    pub(super) fn from_value(object: &Value) -> Result<Self, RbacViewError> {
        let key = RbacKey::of(object)?;
        let view = match key.kind {
            RbacKind::ClusterRole => ClusterRole::deserialize(object).map(Self::ClusterRole),
            RbacKind::ClusterRoleBinding => {
                Binding::deserialize(object).map(Self::ClusterRoleBinding)
            }
            RbacKind::Role => Role::deserialize(object).map(Self::Role),
            RbacKind::RoleBinding => Binding::deserialize(object).map(Self::RoleBinding),
        };
        view.map_err(|source| RbacViewError::Shape { key, source })
    }
}

/// The name of an object of the RBAC API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RbacKey {
    pub(super) kind: RbacKind,
    /// Empty for the kinds without namespace.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl RbacKey {
    /// Reads the kind and the names of `object` and nothing else.
    pub(super) fn of(object: &Value) -> Result<Self, RbacViewError> {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let kind = RbacKind::ALL.into_iter().find(|kind| kind.name() == text("/kind"));
        let kind = kind.ok_or_else(|| RbacViewError::Kind(text("/kind").to_owned()))?;
        let namespace = if kind.namespaced() { text("/metadata/namespace") } else { "" };
        // An empty namespace means the whole cluster further down, so it must not pass for one.
        if kind.namespaced() && namespace.is_empty() {
            return Err(RbacViewError::Namespace(kind.name()));
        }
        Ok(Self { kind, namespace: namespace.to_owned(), name: text("/metadata/name").to_owned() })
    }
}

impl fmt::Display for RbacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// The kinds of the RBAC API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RbacKind {
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
}

impl RbacKind {
    const ALL: [Self; 4] =
        [Self::ClusterRole, Self::ClusterRoleBinding, Self::Role, Self::RoleBinding];

    /// The kind in objects.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ClusterRole => "ClusterRole",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
        }
    }

    const fn namespaced(self) -> bool {
        matches!(self, Self::Role | Self::RoleBinding)
    }
}

/// Why an object of the RBAC API grants nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RbacViewError {
    /// It is of none of the four kinds.
    #[error("kind {0:?} is not part of the RBAC API")]
    Kind(String),
    /// It is of a kind that lives in namespaces, and has none.
    #[error("{0} without namespace")]
    Namespace(&'static str),
    /// A field has the wrong shape.
    #[error("reading {key}")]
    Shape {
        key: RbacKey,
        #[source]
        source: serde_json::Error,
    },
}

/// Names and labels; all else of the metadata is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) namespace: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) labels: BTreeMap<String, String>,
}

/// Rules for one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Role {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub(super) rules: Vec<PolicyRule>,
}

/// Rules for all namespaces, or for the one of the binding that refers to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClusterRole {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub(super) rules: Vec<PolicyRule>,
    #[serde(deserialize_with = "or_default")]
    pub(super) aggregation_rule: AggregationRule,
}

impl ClusterRole {
    /// Whether the rules are those of other roles, and not the role's own.
    pub(super) fn is_aggregated(&self) -> bool {
        !self.aggregation_rule.cluster_role_selectors.is_empty()
    }
}

/// Which roles' rules an aggregated role has. A selector that cannot be understood selects nothing,
/// so that it grants nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AggregationRule {
    #[serde(deserialize_with = "selectors")]
    pub(super) cluster_role_selectors: Vec<Option<LabelSelector>>,
}

fn selectors<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Option<LabelSelector>>, D::Error> {
    let selectors: Option<Vec<Value>> = Deserialize::deserialize(deserializer)?;
    let selectors = selectors.unwrap_or_default();
    Ok(selectors.iter().map(|selector| LabelSelector::from_json(selector).ok()).collect())
}

/// Who has a role; with a namespace in its metadata, in that namespace only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Binding {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub(super) role_ref: RoleRef,
    #[serde(deserialize_with = "or_default")]
    pub(super) subjects: Vec<Subject>,
}

/// The role that a binding refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRef {
    /// `Role` or `ClusterRole`; validation refuses all else.
    #[serde(deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
}

/// Someone in a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Subject {
    /// `User`, `Group` or `ServiceAccount`; all else is nobody.
    #[serde(deserialize_with = "or_default")]
    pub(super) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    /// Of a service account only.
    #[serde(deserialize_with = "or_default")]
    pub(super) namespace: String,
}

/// Reads null as the default.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_and_unknown_fields_are_no_fault() {
        let object = json!({
            "kind": "ClusterRole", "metadata": {"name": "r", "labels": null, "uid": "u"},
            "rules": null, "aggregationRule": null, "more": {},
        });
        let RbacObject::ClusterRole(role) = RbacObject::from_value(&object).unwrap() else {
            panic!("not a cluster role");
        };
        assert!(role.rules.is_empty() && !role.is_aggregated());
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_name() {
        let object = json!({
            "kind": "Role", "metadata": {"name": "r", "namespace": "ns"}, "rules": "all"});
        let error = RbacObject::from_value(&object).unwrap_err();
        assert_eq!(error.to_string(), "reading Role ns/r");
        let error = RbacObject::from_value(&json!({"kind": "Pod"})).unwrap_err();
        assert_eq!(error.to_string(), "kind \"Pod\" is not part of the RBAC API");
    }

    #[test]
    fn what_lacks_its_namespace_never_counts_for_the_cluster() {
        for kind in ["Role", "RoleBinding"] {
            for metadata in [json!({"name": "r"}), json!({"name": "r", "namespace": ""})] {
                let object = json!({"kind": kind, "metadata": metadata});
                let error = RbacObject::from_value(&object).unwrap_err();
                assert_eq!(error.to_string(), format!("{kind} without namespace"));
            }
        }
    }

    #[test]
    fn a_namespace_on_a_cluster_kind_is_ignored() {
        let object = json!({"kind": "ClusterRole", "metadata": {"name": "r", "namespace": "ns"}});
        assert_eq!(RbacKey::of(&object).unwrap().namespace, "");
    }
}
