//! HashiCorp's provider, in the words of our driver `vault`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Mapping, Reference, list, object_name, renamed, word};
use crate::migrate::{document::set, synced::SyncedClass};

pub(super) const DRIVER: &str = "vault.csi.waybill.dev";

/// Whom the pod's token is for, where the class does not say.
pub(super) const AUDIENCE: &str = "vault";

/// Names of the provider's parameters and of ours.
const PARAMETERS: [(&str, &str); 5] = [
    ("audience", "audience"),
    ("roleName", "vaultRole"),
    ("vaultAddress", "vaultAddr"),
    ("vaultAuthMountPath", "vaultAuthPath"),
    ("vaultNamespace", "vaultNamespace"),
];

/// What has no counterpart, and what to do instead.
const WITHOUT_COUNTERPART: [(&str, &str); 6] = [
    ("vaultCACertPath", "set caBundle to the certificates themselves"),
    ("vaultCADirectory", "set caBundle to the certificates themselves"),
    ("vaultSkipTLSVerify", "set caBundle instead; the driver always verifies"),
    ("vaultTLSClientCertPath", "the driver authenticates by the pod's token alone"),
    ("vaultTLSClientKeyPath", "the driver authenticates by the pod's token alone"),
    ("vaultTLSServerName", "use an address that the certificate names"),
];

pub(super) fn map(class: &SyncedClass) -> Result<Mapping, String> {
    let mut parameters = renamed(&class.parameters, &PARAMETERS);
    // The older name of the mount, without `auth/`.
    if let Some(mount) = class.parameters.get("vaultKubernetesMountPath") {
        parameters.entry("vaultAuthPath".to_owned()).or_insert_with(|| mount.clone());
    }
    let mut notes = Vec::new();
    if !parameters.contains_key("vaultAddr") {
        notes.push("set vaultAddr: the provider took its address from its own flags".to_owned());
    }
    for (name, instead) in WITHOUT_COUNTERPART {
        if class.parameters.contains_key(name) {
            notes.push(format!("{name} has no counterpart: {instead}"));
        }
    }
    let mut objects = BTreeMap::new();
    for item in list(class, "objects")? {
        if let Some(name) = object_name(&item) {
            objects.insert(name.to_owned(), reference(&item));
        }
    }
    Ok(Mapping { driver: DRIVER, parameters, objects, notes })
}

fn reference(item: &Value) -> Result<Reference, String> {
    let path = word(item, "secretPath").ok_or("it has no secretPath")?;
    let field = word(item, "secretKey").ok_or(
        "without secretKey it is the whole answer of Vault, which no variable should hold",
    )?;
    if let Some(method) = word(item, "method").filter(|it| !it.eq_ignore_ascii_case("get")) {
        return Err(format!("it is read by {method}, and the driver only reads by GET"));
    }
    if let Some(encoding) = word(item, "encoding").filter(|it| it != "utf-8") {
        return Err(format!("it is decoded from {encoding}; variables hold text"));
    }
    let reference = Reference::plain(path).with("field", field);
    let arguments = item.get("secretArgs").unwrap_or(&Value::Null);
    let others = |it: &serde_json::Map<_, _>| it.keys().any(|name| name != "version");
    if arguments.as_object().is_some_and(others) {
        return Err("it has secretArgs other than version".to_owned());
    }
    Ok(match word(arguments, "version") {
        Some(version) => reference.with("version", version),
        None => reference,
    })
}

pub(super) fn back(
    parameters: &BTreeMap<String, String>,
    references: &BTreeMap<String, Reference>,
) -> BTreeMap<String, String> {
    let mut result = renamed(parameters, &PARAMETERS.map(|(theirs, ours)| (ours, theirs)));
    let object = |(name, reference): (&String, &Reference)| {
        let mut object = json!({"objectName": name, "secretPath": reference.key});
        if let Some(field) = reference.parameters.get("field") {
            set(&mut object, "secretKey", field.as_str());
        }
        if let Some(version) = reference.parameters.get("version") {
            set(&mut object, "secretArgs", json!({"version": version}));
        }
        object
    };
    let objects: Vec<_> = references.iter().map(object).collect();
    result.insert("objects".to_owned(), super::yaml(&objects));
    result
}
