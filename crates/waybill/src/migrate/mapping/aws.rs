//! AWS's provider (ASCP), in the words of our driver `aws`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Mapping, Reference, list, object_name, renamed, word};
use crate::migrate::{document::set, synced::SyncedClass};

pub(super) const DRIVER: &str = "aws.csi.waybill.dev";

/// Whom the pod's token is for.
pub(super) const AUDIENCE: &str = "sts.amazonaws.com";

/// Names of the provider's parameters and of ours.
const PARAMETERS: [(&str, &str); 1] = [("region", "region")];

/// Our parameter for the role that is taken on with the pod's token.
pub(super) const ROLE: &str = "roleArn";

/// What to do where no service account told the role.
pub(super) const NO_ROLE: &str =
    "set roleArn to the role of its service accounts (their annotation eks.amazonaws.com/role-arn)";

const SECRETS: &str = "secretsmanager";
const PARAMETER_STORE: &str = "ssm";

pub(super) fn map(class: &SyncedClass) -> Result<Mapping, String> {
    let is_set = |name: &str| class.parameters.get(name).is_some_and(|it| !it.is_empty());
    if class.parameters.get("usePodIdentity").is_some_and(|it| it == "true") {
        return Err("it uses EKS Pod Identity, which the driver does not know; migrate it with \
                    --keep-provider"
            .to_owned());
    }
    let mut notes = vec![NO_ROLE.to_owned()];
    if is_set("failoverRegion") {
        notes.push("failoverRegion has no counterpart: only region is asked".to_owned());
    }
    if !is_set("region") {
        notes.push("set region: the provider took that of the node".to_owned());
    }
    let mut objects = BTreeMap::new();
    for item in list(class, "objects")? {
        let Some(name) = object_name(&item) else { continue };
        let whole = whole(&item, name);
        for part in item.get("jmesPath").and_then(Value::as_array).into_iter().flatten() {
            if let (Some(path), Some(alias)) = (word(part, "path"), word(part, "objectAlias")) {
                let part = whole.clone().and_then(|it| Ok(it.with("field", field(&path)?)));
                objects.insert(alias, part);
            }
        }
        // A Secret may name the object as it is, or as its file is called.
        for mounted in [mounted_name(&item, name), name.to_owned()] {
            objects.insert(mounted, whole.clone());
        }
    }
    let parameters = renamed(&class.parameters, &PARAMETERS);
    Ok(Mapping { driver: DRIVER, parameters, objects, notes })
}

/// The names of the files that the provider makes.
pub(super) fn mounted_names(objects: &[Value]) -> Vec<String> {
    let names = |item: &Value| {
        let parts = item.get("jmesPath").and_then(Value::as_array).into_iter().flatten();
        let parts: Vec<_> = parts.filter_map(|part| word(part, "objectAlias")).collect();
        object_name(item).map(|name| mounted_name(item, name)).into_iter().chain(parts)
    };
    objects.iter().flat_map(names).collect()
}

fn mounted_name(item: &Value, name: &str) -> String {
    word(item, "objectAlias").unwrap_or_else(|| name.replace('/', "_"))
}

fn whole(item: &Value, name: &str) -> Result<Reference, String> {
    let service = match (word(item, "objectType").as_deref(), name.split(':').nth(2)) {
        (Some("secretsmanager"), _) | (None, Some("secretsmanager")) => SECRETS,
        (Some("ssmparameter"), _) | (None, Some("ssm")) => PARAMETER_STORE,
        _ => return Err("its objectType is neither secretsmanager nor ssmparameter".to_owned()),
    };
    // Parameters in a hierarchy start with a slash, which the driver puts back.
    let id = name.strip_prefix('/').unwrap_or(name);
    if service == PARAMETER_STORE && name.starts_with('/') && !id.contains('/') {
        return Err(format!("no key of the driver names the parameter {name:?}"));
    }
    let mut reference = Reference::plain(format!("{service}/{id}"));
    for (theirs, ours) in versions(service) {
        if let Some(version) = word(item, theirs) {
            reference = reference.with(ours, version);
        }
    }
    Ok(reference)
}

/// Their names of versions, and ours: a parameter's label is one of its versions.
fn versions(service: &str) -> [(&'static str, &'static str); 2] {
    match service {
        SECRETS => [("objectVersion", "versionId"), ("objectVersionLabel", "versionStage")],
        _ => [("objectVersion", "version"), ("objectVersionLabel", "version")],
    }
}

/// The field that a path names; only paths of one step are fields.
fn field(path: &str) -> Result<String, String> {
    let quoted = path.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    let is_name = |it: &str| {
        it.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && it.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
    };
    match quoted {
        Some(name) if !name.contains(['"', '\\']) => Ok(name.to_owned()),
        None if is_name(path) => Ok(path.to_owned()),
        _ => Err(format!("its jmesPath {path:?} is more than the name of one field")),
    }
}

pub(super) fn back(
    parameters: &BTreeMap<String, String>,
    references: &BTreeMap<String, Reference>,
) -> Result<BTreeMap<String, String>, String> {
    let mut result = renamed(parameters, &PARAMETERS.map(|(theirs, ours)| (ours, theirs)));
    // The provider takes an object once, with all its fields.
    let mut fields: BTreeMap<_, Vec<(&str, Option<&str>)>> = BTreeMap::new();
    for (name, Reference { key, parameters }) in references {
        let of = |parameter| parameters.get(parameter).map(String::as_str);
        let version = of("versionId").or_else(|| of("version"));
        let object = (key.as_str(), version, of("versionStage"));
        fields.entry(object).or_default().push((name, of("field")));
    }
    let mut objects = Vec::new();
    for ((key, version, stage), fields) in fields {
        let (kind, id) = match key.split_once('/') {
            Some((SECRETS, id)) => ("secretsmanager", id.to_owned()),
            Some((PARAMETER_STORE, id)) if id.contains('/') => ("ssmparameter", format!("/{id}")),
            Some((PARAMETER_STORE, id)) => ("ssmparameter", id.to_owned()),
            _ => return Err(format!("its key {key:?} names no service of AWS")),
        };
        let mut object = json!({"objectName": id, "objectType": kind});
        for (field, value) in [("objectVersion", version), ("objectVersionLabel", stage)] {
            if let Some(value) = value {
                set(&mut object, field, value);
            }
        }
        let mut parts = Vec::new();
        for (name, field) in fields {
            match field {
                Some(field) => parts.push(json!({"path": path(field), "objectAlias": name})),
                None => set(&mut object, "objectAlias", name),
            }
        }
        if !parts.is_empty() {
            set(&mut object, "jmesPath", parts);
        }
        objects.push(object);
    }
    result.insert("objects".to_owned(), super::yaml(&objects));
    Ok(result)
}

fn path(name: &str) -> String {
    if field(name).is_ok() && !name.starts_with('"') {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}
