//! What is wrong with the environments that a pod spec defines.
//!
//! Order, reasons and texts are those of Kubernetes; where ours differ, a comment says why. No
//! message repeats the value of a variable.

mod csi_secret_ref;
mod field_ref;
mod file_key_ref;
mod resource_field_ref;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;

pub(super) use file_key_ref::mount_findings;

use super::{
    EnvFromSource, EnvRules, EnvVar, EnvVarSource, KeySelector, PodEnvSpec, csi_word_errors,
};
use crate::{
    field::{ErrorList, FieldError, FieldPath},
    names::{config_map_key_faults, subdomain_faults},
};

/// Every fault in the environments of `spec`, which stands at `path` in its object.
pub fn validate(spec: &PodEnvSpec, path: &FieldPath, rules: &EnvRules) -> ErrorList {
    let mut errors = ErrorList::new();
    for (kind, position, container) in spec.all_containers() {
        let path = path.child(kind.field()).index(position);
        check_env(rules, &container.env, &path.child("env"), &mut errors);
        check_env_from(rules, &container.env_from, &path.child("envFrom"), &mut errors);
    }
    if rules.allows_csi_secret_ref() && !rules.allows_csi_words() {
        errors.extend(csi_word_errors(spec, path));
    }
    if rules.allows_file_key_ref() {
        file_key_ref::check_volumes(spec, path, &mut errors);
    }
    if rules.allows_file_key_ref() && rules.refuses_mounts() {
        for finding in mount_findings(spec) {
            errors.push(FieldError::forbidden(finding.path(path), finding.text()));
        }
    }
    errors
}

/// What is legal in `spec` but likely a mistake, as API warnings (OP-20).
///
/// Under [`super::EnvOptions::strict_env_file_mounts`] the same findings are errors, and there is
/// nothing to warn of.
pub fn warnings(spec: &PodEnvSpec, path: &FieldPath, rules: &EnvRules) -> Vec<String> {
    if rules.refuses_mounts() || !rules.allows_file_key_ref() {
        return Vec::new();
    }
    mount_findings(spec)
        .iter()
        .map(|finding| format!("{}: {}", finding.path(path), finding.text()))
        .collect()
}

fn check_env(rules: &EnvRules, env: &[EnvVar], path: &FieldPath, errors: &mut ErrorList) {
    for (position, variable) in env.iter().enumerate() {
        let path = path.index(position);
        if variable.name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        } else {
            check_name(rules, &variable.name, &path.child("name"), errors);
        }
        if let Some(source) = &variable.value_from {
            let has_value = !variable.value.is_empty();
            check_source(rules, source, has_value, &path.child("valueFrom"), errors);
        }
    }
}

fn check_env_from(
    rules: &EnvRules,
    env_from: &[EnvFromSource],
    path: &FieldPath,
    errors: &mut ErrorList,
) {
    for (position, entry) in env_from.iter().enumerate() {
        let path = path.index(position);
        if !entry.prefix.is_empty() {
            check_name(rules, &entry.prefix, &path.child("prefix"), errors);
        }
        if let Some(source) = &entry.config_map_ref {
            check_object_name(&source.name, &path.child("configMapRef"), errors);
        }
        if let Some(source) = &entry.secret_ref {
            check_object_name(&source.name, &path.child("secretRef"), errors);
        }
        // Upstream reports these two at the list, which leaves the reader to guess the entry.
        match (&entry.config_map_ref, &entry.secret_ref) {
            (None, None) => {
                let detail = "must specify one of: `configMapRef` or `secretRef`";
                errors.push(FieldError::invalid(path, "", detail));
            }
            (Some(_), Some(_)) => errors.push(FieldError::invalid(path, "", MORE_THAN_ONE)),
            (None, Some(_)) | (Some(_), None) => {}
        }
    }
}

/// Judges each source that is set, then how many there are (FILE-07, CSI-12).
fn check_source(
    rules: &EnvRules,
    source: &EnvVarSource,
    has_value: bool,
    path: &FieldPath,
    errors: &mut ErrorList,
) {
    let mut count = 0;
    if let Some(reference) = &source.field_ref {
        count += 1;
        field_ref::check(reference, &path.child("fieldRef"), errors);
    }
    if let Some(reference) = &source.resource_field_ref {
        count += 1;
        resource_field_ref::check(reference, &path.child("resourceFieldRef"), errors);
    }
    if let Some(reference) = &source.config_map_key_ref {
        count += 1;
        check_key(reference, &path.child("configMapKeyRef"), errors);
    }
    if let Some(reference) = &source.secret_key_ref {
        count += 1;
        check_key(reference, &path.child("secretKeyRef"), errors);
    }
    // A field whose gate is off counts as absent, whether or not it was dropped before (FILE-09).
    if let Some(reference) = source.file_key_ref.as_ref().filter(|_| rules.allows_file_key_ref()) {
        count += 1;
        file_key_ref::check(reference, &path.child("fileKeyRef"), errors);
    }
    if let Some(reference) = &source.csi_secret_ref {
        count += 1;
        csi_secret_ref::check(rules, reference, &path.child("csiSecretRef"), errors);
    }
    if count == 0 {
        errors.push(FieldError::invalid(path.clone(), "", one_of(rules)));
    } else if has_value {
        let detail = "may not be specified when `value` is not empty";
        errors.push(FieldError::invalid(path.clone(), "", detail));
    } else if count > 1 {
        errors.push(FieldError::invalid(path.clone(), "", MORE_THAN_ONE));
    }
}

const MORE_THAN_ONE: &str = "may not have more than one field specified at a time";

fn one_of(rules: &EnvRules) -> String {
    let mut fields = vec!["`fieldRef`", "`resourceFieldRef`", "`configMapKeyRef`"];
    let mut last = "`secretKeyRef`";
    if rules.allows_file_key_ref() {
        fields.push(std::mem::replace(&mut last, "`fileKeyRef`"));
    }
    if rules.allows_csi_secret_ref() {
        fields.push(std::mem::replace(&mut last, "`csiSecretRef`"));
    }
    format!("must specify one of: {} or {last}", fields.join(", "))
}

fn check_name(rules: &EnvRules, name: &str, path: &FieldPath, errors: &mut ErrorList) {
    push_faults(rules.names().faults(name.as_bytes()), name, path, errors);
}

fn check_key(reference: &KeySelector, path: &FieldPath, errors: &mut ErrorList) {
    check_object_name(&reference.name, path, errors);
    let path = path.child("key");
    if reference.key.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        push_faults(config_map_key_faults(&reference.key), &reference.key, &path, errors);
    }
}

/// The `name` of a ConfigMap or Secret, in the reference at `path`.
fn check_object_name(name: &str, path: &FieldPath, errors: &mut ErrorList) {
    let path = path.child("name");
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        push_faults(subdomain_faults(name), name, &path, errors);
    }
}

/// One error for each of `faults`, all about `value`.
fn push_faults(
    faults: impl IntoIterator<Item = impl ToString>,
    value: &str,
    path: &FieldPath,
    errors: &mut ErrorList,
) {
    for fault in faults {
        errors.push(FieldError::invalid(path.clone(), value, fault.to_string()));
    }
}

#[cfg(test)]
/// CSI-10, CSI-12, FILE-01, FILE-07, FILE-09, NAME-04..NAME-06, NAME-08, NAME-15, NAME-16, NAME-21
mod tests;
