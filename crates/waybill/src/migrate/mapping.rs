//! The objects of a SecretProviderClass as keys of a driver of ours.
//!
//! Vault and AWS have drivers of their own, which need no provider on the node. Azure, GCP and whatever
//! else there is keep their provider, which the driver `provider` asks; so do Vault and AWS on demand.

mod aws;
mod vault;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{document::text, synced::SyncedClass};

/// The driver that asks providers of the Secrets Store CSI driver.
pub(super) const PROVIDER_DRIVER: &str = "provider.csi.waybill.dev";

/// Its parameter for the provider's name.
pub(super) const PROVIDER: &str = "provider";

/// What `csiSecretRef` names in place of a mounted object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) key: String,
    pub(super) parameters: BTreeMap<String, String>,
}

impl Reference {
    fn plain(key: impl Into<String>) -> Self {
        Self { key: key.into(), parameters: BTreeMap::new() }
    }

    fn with(mut self, parameter: &str, value: impl Into<String>) -> Self {
        self.parameters.insert(parameter.to_owned(), value.into());
        self
    }
}

/// A class in the words of one of our drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) driver: &'static str,
    pub(super) parameters: BTreeMap<String, String>,
    /// By the name under which the object is mounted; why not, where it cannot be asked for.
    pub(super) objects: BTreeMap<String, Result<Reference, String>>,
    /// What the new class lacks, or does in another way.
    pub(super) notes: Vec<String>,
}

impl Mapping {
    /// Whether the driver needs the role of the service accounts.
    pub(super) fn wants_role(&self) -> bool {
        self.driver == aws::DRIVER
    }

    pub(super) fn set_role(&mut self, role: String) {
        self.parameters.insert(aws::ROLE.to_owned(), role);
        self.notes.retain(|note| note != aws::NO_ROLE);
    }
}

/// The CSIDriver that makes nodes send the tokens which the driver of `mapping` logs in with; none for
/// providers, each of which wants another.
pub(super) fn csi_driver(mapping: &Mapping) -> Option<Value> {
    let audience = match mapping.driver {
        vault::DRIVER => mapping.parameters.get("audience").map_or(vault::AUDIENCE, String::as_str),
        aws::DRIVER => aws::AUDIENCE,
        _ => return None,
    };
    Some(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": mapping.driver},
        "spec": {"attachRequired": false, "tokenRequests": [{"audience": audience}]},
    }))
}

/// Finds the driver for `class`; `keep_provider` asks for the provider in every case.
pub(super) fn map(class: &SyncedClass, keep_provider: bool) -> Result<Mapping, String> {
    match class.provider.as_str() {
        "vault" if !keep_provider => vault::map(class),
        "aws" if !keep_provider => aws::map(class),
        _ => by_provider(class),
    }
}

/// The driver of a class of ours, turned back.
pub(super) fn provider_of(driver: &str, parameters: &BTreeMap<String, String>) -> Option<String> {
    match driver {
        vault::DRIVER => Some("vault".to_owned()),
        aws::DRIVER => Some("aws".to_owned()),
        PROVIDER_DRIVER => parameters.get(PROVIDER).cloned(),
        _ => None,
    }
}

/// Parameters of a SecretProviderClass that reads `references`, by the name of their mounted objects.
pub(super) fn back(
    driver: &str,
    parameters: &BTreeMap<String, String>,
    references: &BTreeMap<String, Reference>,
) -> Result<BTreeMap<String, String>, String> {
    match driver {
        vault::DRIVER => Ok(vault::back(parameters, references)),
        aws::DRIVER => aws::back(parameters, references),
        _ => Ok(parameters
            .iter()
            .filter(|(name, _)| *name != PROVIDER && !is_ours(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()),
    }
}

/// Parameters that only a ProviderClass has.
fn is_ours(parameter: &str) -> bool {
    matches!(parameter, "allowedFields" | "allowedNamespaces" | "cacheTTL")
        || parameter.starts_with("envInjection.")
}

fn by_provider(class: &SyncedClass) -> Result<Mapping, String> {
    if let Some(taken) = class.parameters.keys().find(|it| is_ours(it) || *it == PROVIDER) {
        return Err(format!("its parameter {taken:?} means something else in a ProviderClass"));
    }
    let mut parameters = class.parameters.clone();
    parameters.insert(PROVIDER.to_owned(), class.provider.clone());
    let names = mounted_names(class)?;
    let objects = names.into_iter().map(|it| (it.clone(), Ok(Reference::plain(it)))).collect();
    let notes = vec![format!(
        "keeps its provider: a node needs the socket of {:?} and `waybill driver provider`, and a \
         CSIDriver the tokenRequests that the provider wants",
        class.provider
    )];
    Ok(Mapping { driver: PROVIDER_DRIVER, parameters, objects, notes })
}

/// The names of the files that the provider would mount.
fn mounted_names(class: &SyncedClass) -> Result<Vec<String>, String> {
    let named = |objects: Vec<Value>, fields: &[&str]| {
        let name = |it: &Value| {
            let mut found = fields.iter().filter_map(|field| it.get(field)?.as_str());
            found.find(|name| !name.is_empty()).map(ToOwned::to_owned)
        };
        objects.iter().filter_map(name).collect::<Vec<_>>()
    };
    match class.provider.as_str() {
        "azure" => Ok(named(azure_objects(class)?, &["objectAlias", "objectName"])),
        "gcp" => Ok(named(list(class, "secrets")?, &["path", "fileName"])),
        "vault" => Ok(named(list(class, "objects")?, &["objectName"])),
        "aws" => Ok(aws::mounted_names(&list(class, "objects")?)),
        // How another provider names its objects only it knows: those that Secrets are made of exist.
        _ => Ok(class
            .secrets
            .iter()
            .flat_map(|it| it.keys.iter().map(|key| key.1.clone()))
            .collect()),
    }
}

/// A YAML list inside a parameter.
fn list(class: &SyncedClass, parameter: &str) -> Result<Vec<Value>, String> {
    let text = class.parameters.get(parameter).map_or("", String::as_str);
    if text.trim().is_empty() {
        return Err(format!("it has no parameter {parameter:?}"));
    }
    serde_saphyr::from_str(text)
        .map_err(|_| format!("its parameter {parameter:?} is not a YAML list"))
}

/// Azure's list stands below `array`, and each of its items is YAML in a text.
fn azure_objects(class: &SyncedClass) -> Result<Vec<Value>, String> {
    let fault = || "its parameter \"objects\" is not what Azure's provider reads".to_owned();
    let text = class.parameters.get("objects").ok_or_else(fault)?;
    let objects: Value = serde_saphyr::from_str(text).map_err(|_| fault())?;
    let items = objects.get("array").and_then(Value::as_array).ok_or_else(fault)?;
    let object = |item: &Value| match item {
        Value::String(text) => serde_saphyr::from_str(text).map_err(|_| fault()),
        object => Ok(object.clone()),
    };
    items.iter().map(object).collect()
}

/// A field of a list's item as text; numbers are often written without quotes.
fn word(item: &Value, field: &str) -> Option<String> {
    match item.get(field)? {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Moves the parameters that both sides have, by their two names.
fn renamed(from: &BTreeMap<String, String>, names: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pair = |(old, new): &(&str, &str)| Some(((*new).to_owned(), from.get(*old)?.clone()));
    names.iter().filter_map(pair).collect()
}

/// As it stands inside a parameter.
fn yaml(objects: &[Value]) -> String {
    // JSON is YAML, should the one writer ever fail.
    serde_saphyr::to_string(&objects).unwrap_or_else(|_| Value::from(objects.to_vec()).to_string())
}

/// The name of an item, which all providers but GCP's call so.
fn object_name(item: &Value) -> Option<&str> {
    text(item, "/objectName").filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
