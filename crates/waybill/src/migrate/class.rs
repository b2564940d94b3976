//! The ProviderClass that stands in for a SecretProviderClass, and who may use it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use waybill_core::provider::{ALLOWED_FIELDS, ALLOWED_NAMESPACES, AllowedFields};

use super::{
    mapping::{Mapping, Reference},
    synced::SyncedClass,
};

/// Annotation with what the way back needs.
pub(super) const MIGRATED_FROM: &str = "waybill.dev/migrated-from";

/// The key of a Secret that a variable was read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) secret: String,
    pub(super) key: String,
}

/// Whether `key` can stand in the list of allowed keys and allows itself alone: no comma, and no
/// character that a pattern reads otherwise.
pub(super) fn can_be_listed(key: &str) -> bool {
    !key.contains([',', '*', '?'])
        && AllowedFields::parse(Some(key)).is_ok_and(|list| list.allows(key))
}

/// What the annotation holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigratedFrom {
    /// The SecretProviderClass.
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) variables: Vec<MigratedVariable>,
}

/// One reference, and what it stands for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MigratedVariable {
    pub(super) key: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) origin: Origin,
}

pub(super) fn provider_class(
    name: &str,
    class: &SyncedClass,
    mapping: &Mapping,
    keys: &BTreeSet<String>,
    origins: &BTreeMap<Reference, Origin>,
) -> Value {
    let fields = keys.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let variable = |(reference, origin): (&Reference, &Origin)| MigratedVariable {
        key: reference.key.clone(),
        parameters: reference.parameters.clone(),
        origin: origin.clone(),
    };
    let from = MigratedFrom {
        name: class.name.clone(),
        namespace: class.namespace.clone(),
        variables: origins.iter().map(variable).collect(),
    };
    let mut parameters = mapping.parameters.clone();
    parameters.insert(ALLOWED_NAMESPACES.to_owned(), class.namespace.clone());
    parameters.insert(ALLOWED_FIELDS.to_owned(), fields);
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "ProviderClass",
        "metadata": {
            "name": name,
            "annotations": {MIGRATED_FROM: json!(from).to_string()},
        },
        "spec": {"driver": mapping.driver, "parameters": parameters},
    })
}

/// Lets the service accounts of a namespace use the class, and nobody else.
pub(super) fn user_roles(class: &str, namespace: &str, accounts: &BTreeSet<String>) -> [Value; 2] {
    let name = format!("providerclass-user-{class}");
    let subject = |it| json!({"kind": "ServiceAccount", "name": it, "namespace": namespace});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{
            "apiGroups": ["storage.k8s.io"],
            "resources": ["providerclasses"],
            "resourceNames": [class],
            "verbs": ["use"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": accounts.iter().map(subject).collect::<Vec<_>>(),
    });
    [role, binding]
}
