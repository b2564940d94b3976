//! From the text of a file to a static pod.
//!
//! No API server judges these, so names that become parts of paths are judged here, and what users
//! leave out is filled in.

use serde_json::{Map, Value, json};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use sha2::{Digest, Sha256};
use waybill_api::{
    field::FieldPath,
    gates::FeatureGates,
    names::{label_faults, subdomain_faults},
    pod::{EnvRules, drop_disabled_fields, validate},
};

use super::mirror::{CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE};
use crate::{
    Clock,
    pod::{Pod, PodOrigin},
};

/// As large as a body that an API server takes.
pub(super) const MAX_BYTES: u64 = 3 * 1024 * 1024;

/// Deeper documents are refused.
const MAX_DEPTH: usize = 48;

/// What a manifest is read with.
pub(super) struct Rules {
    pub(super) node: String,
    pub(super) gates: FeatureGates,
    pub(super) clock: Clock,
}

/// Why a file is no static pod. No text repeats a value.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("it is not UTF-8")]
    NotText,
    #[error("line {line}: it is not one YAML or JSON document")]
    Syntax { line: u64 },
    #[error("it must be an object of apiVersion v1 and kind Pod")]
    NotAPod,
    #[error("{field}: {fault}")]
    Name { field: String, fault: String },
    #[error("spec.containers: a pod needs at least one container")]
    NoContainers,
    #[error("{0}")]
    Environment(String),
    #[error(transparent)]
    Pod(#[from] serde_json::Error),
}

/// A static pod, and its object for the API server.
pub(super) struct StaticPod {
    pub(super) pod: Pod,
    pub(super) object: Value,
}

/// Reads a manifest from the file `path`.
pub(super) fn read(content: &[u8], path: &str, rules: &Rules) -> Result<StaticPod, ManifestError> {
    let mut object = parse(content)?;
    let is_pod = *member(&object, "apiVersion") == "v1" && *member(&object, "kind") == "Pod";
    if !is_pod || !member(&object, "spec").is_object() {
        return Err(ManifestError::NotAPod);
    }
    complete(&mut object, &hash(content, path, &rules.node), rules);
    check_names(&object)?;
    let pod = Pod::from_value(object.clone(), PodOrigin::File)?;
    let env_rules = EnvRules::for_create(&rules.gates);
    let faults = validate(pod.environments(), &FieldPath::new("spec"), &env_rules);
    if let Some(fault) = faults.first() {
        return Err(ManifestError::Environment(fault.to_string()));
    }
    Ok(StaticPod { pod, object })
}

fn parse(content: &[u8]) -> Result<Value, ManifestError> {
    let text = std::str::from_utf8(content).map_err(|_| ManifestError::NotText)?;
    let budget = serde_saphyr::budget! { max_depth: MAX_DEPTH, flow_nesting_limit: MAX_DEPTH };
    let options = serde_saphyr::options! {
        budget: budget,
        duplicate_keys: DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        ManifestError::Syntax { line }
    })
}

/// Another file, another node or another content make another pod.
fn hash(content: &[u8], path: &str, node: &str) -> String {
    let mut digest = Sha256::new();
    for part in [content, path.as_bytes(), node.as_bytes()] {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// What a file leaves out, or cannot know.
fn complete(object: &mut Value, hash: &str, rules: &Rules) {
    let Some(object) = object.as_object_mut() else { return };
    object.remove("status");
    let metadata = child(object, "metadata");
    fill(metadata, "namespace", "default");
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    metadata.insert("name".to_owned(), format!("{name}-{}", rules.node.to_lowercase()).into());
    metadata.insert("uid".to_owned(), hash.into());
    for field in ["deletionTimestamp", "finalizers", "ownerReferences", "resourceVersion"] {
        metadata.remove(field);
    }
    let annotations = child(metadata, "annotations");
    annotations.insert(CONFIG_HASH.to_owned(), hash.into());
    annotations.insert(CONFIG_SOURCE.to_owned(), "file".into());
    annotations.insert(CONFIG_SEEN.to_owned(), (rules.clock)().to_string().into());
    if let Some(spec) = object.get_mut("spec") {
        drop_disabled_fields(spec, None, &rules.gates);
    }
    let spec = child(object, "spec");
    spec.insert("nodeName".to_owned(), rules.node.clone().into());
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "enableServiceLinks", true);
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    // A static pod is bound to its node whatever befalls that.
    fill(spec, "tolerations", json!([{"effect": "NoExecute", "operator": "Exists"}]));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().filter_map(Value::as_object_mut).for_each(|container| {
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
            fill(container, "imagePullPolicy", policy);
            fill(container, "terminationMessagePath", "/dev/termination-log");
            fill(container, "terminationMessagePolicy", "File");
        });
    }
}

/// Whether an image is named by no tag, or by the one that moves.
fn is_latest(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    match (last.contains('@'), last.rsplit_once(':')) {
        (true, _) => false,
        (false, None) => true,
        (false, Some((_, tag))) => tag == "latest",
    }
}

/// A field, or null.
fn member<'a>(object: &'a Value, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}

fn child<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let child = object.entry(name).or_insert(Value::Null);
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    match child {
        Value::Object(child) => child,
        _ => unreachable!("an object was put there"),
    }
}

fn fill(object: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let field = object.entry(name).or_insert(Value::Null);
    if field.is_null() || *field == "" {
        *field = value.into();
    }
}

/// Names that become parts of paths, cgroups and labels.
fn check_names(object: &Value) -> Result<(), ManifestError> {
    let text = |of: &Value, name: &str| member(of, name).as_str().unwrap_or_default().to_owned();
    let metadata = member(object, "metadata");
    check("metadata.name", subdomain_faults(&text(metadata, "name")))?;
    check("metadata.namespace", label_faults(&text(metadata, "namespace")))?;
    let spec = member(object, "spec");
    let list = |name: &str| member(spec, name).as_array().map(Vec::as_slice).unwrap_or_default();
    if list("containers").is_empty() {
        return Err(ManifestError::NoContainers);
    }
    let mut seen = Vec::new();
    for kind in ["initContainers", "containers", "volumes"] {
        if kind == "volumes" {
            seen.clear();
        }
        for (at, item) in list(kind).iter().enumerate() {
            let name = text(item, "name");
            let field = format!("spec.{kind}[{at}].name");
            check(&field, label_faults(&name))?;
            if seen.contains(&name) {
                return Err(ManifestError::Name { field, fault: "it is used twice".to_owned() });
            }
            seen.push(name);
        }
    }
    Ok(())
}

fn check(field: &str, faults: Vec<String>) -> Result<(), ManifestError> {
    match faults.into_iter().next() {
        Some(fault) => Err(ManifestError::Name { field: field.to_owned(), fault }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
