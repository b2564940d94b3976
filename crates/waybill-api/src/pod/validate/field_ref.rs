//! `fieldRef`: a field of the pod as the value of a variable.

use crate::{
    field::{ErrorList, FieldError, FieldPath},
    names::qualified_name_faults,
    pod::{ObjectFieldSelector, env::POD_VERSION},
};

/// Checks the reference that stands at `path`.
pub(super) fn check(reference: &ObjectFieldSelector, path: &FieldPath, errors: &mut ErrorList) {
    let ObjectFieldSelector { api_version, field_path } = reference;
    if api_version.is_empty() {
        errors.push(FieldError::required(path.child("apiVersion"), ""));
        return;
    }
    if field_path.is_empty() {
        errors.push(FieldError::required(path.child("fieldPath"), ""));
        return;
    }
    match Field::convert(api_version, field_path) {
        Ok(Field::Plain(field)) if VARIABLE_FIELDS.contains(&field) => {}
        Ok(Field::Plain(field)) => {
            let path = path.child("fieldPath");
            errors.push(FieldError::not_supported(path, field, VARIABLE_FIELDS));
        }
        // Upstream reports these at the reference, not at its `fieldPath`.
        Ok(Field::Label(key)) => {
            super::push_faults(qualified_name_faults(key), key, path, errors);
        }
        // Upstream lets the key of an annotation have upper case.
        Ok(Field::Annotation(key)) => {
            let faults = qualified_name_faults(&key.to_lowercase());
            super::push_faults(faults, key, path, errors);
        }
        Err(reason) => {
            let detail = format!("error converting fieldPath: {reason}");
            errors.push(FieldError::invalid(path.child("fieldPath"), field_path, detail));
        }
    }
}

/// A path that the pod schema knows.
enum Field<'a> {
    Annotation(&'a str),
    Label(&'a str),
    Plain(&'a str),
}

impl<'a> Field<'a> {
    /// The texts of the errors are upstream's.
    fn convert(version: &str, path: &'a str) -> Result<Self, String> {
        if version != POD_VERSION {
            return Err(format!("unsupported pod version: {version}"));
        }
        match split_subscript(path) {
            Some(("metadata.annotations", key)) => Ok(Self::Annotation(key)),
            Some(("metadata.labels", key)) => Ok(Self::Label(key)),
            Some(_) => Err(format!("field label does not support subscript: {path}")),
            // What clients of the first version send.
            None if path == "spec.host" => Ok(Self::Plain("spec.nodeName")),
            None if VARIABLE_FIELDS.contains(&path) || OTHER_FIELDS.contains(&path) => {
                Ok(Self::Plain(path))
            }
            None => Err(format!("field label not supported: {path}")),
        }
    }
}

/// `path['key']` as path and key.
fn split_subscript(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, key))
}

/// The fields that can be variables, in the order in which upstream lists them.
const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields that the pod schema knows but a variable cannot show.
const OTHER_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::validate::testing::check_source;

    #[track_caller]
    fn check(field_path: &str, expected: &[&str]) {
        check_source(&json!({"fieldRef": {"fieldPath": field_path}}), expected);
    }

    #[test]
    fn the_fields_of_a_pod_that_can_be_variables() {
        for field in VARIABLE_FIELDS {
            check(field, &[]);
        }
        check("spec.host", &[]);
    }

    #[test]
    fn labels_and_annotations_are_named_by_key() {
        check("metadata.labels['app.kubernetes.io/name']", &[]);
        check("metadata.annotations['Example.COM/Key']", &[]);
        check(
            "metadata.annotations['a[b]']",
            &["fieldRef: Invalid value: \"a[b]\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character \
             (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
        );
        check(
            "metadata.labels['/a']",
            &["fieldRef: Invalid value: \"/a\": prefix part must be non-empty"],
        );
    }

    #[test]
    fn known_fields_that_are_no_variables_are_unsupported() {
        for field in OTHER_FIELDS {
            check(
                field,
                &[&format!(
                    "fieldRef.fieldPath: Unsupported value: \"{field}\": supported values: \
                 \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \
                 \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \
                 \"status.podIP\", \"status.podIPs\""
                )],
            );
        }
    }

    #[test]
    fn other_paths_do_not_convert() {
        for path in ["x", "metadata", "metadata.labels['a'", "['a']", "metadata.name ", "é"] {
            check(
                path,
                &[&format!(
                    "fieldRef.fieldPath: Invalid value: \"{path}\": error converting fieldPath: field \
                 label not supported: {path}"
                )],
            );
        }
        check(
            "metadata.name['x']",
            &["fieldRef.fieldPath: Invalid value: \"metadata.name['x']\": error converting \
             fieldPath: field label does not support subscript: metadata.name['x']"],
        );
    }

    #[test]
    fn version_and_path_are_required_and_the_version_defaults() {
        check("", &["fieldRef.fieldPath: Required value"]);
        check_source(&json!({"fieldRef": {}}), &["fieldRef.fieldPath: Required value"]);
        check_source(
            &json!({"fieldRef": {"apiVersion": "", "fieldPath": "metadata.name"}}),
            &["fieldRef.apiVersion: Required value"],
        );
        check_source(
            &json!({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}),
            &["fieldRef.fieldPath: Invalid value: \"metadata.name\": error converting fieldPath: \
             unsupported pod version: v2"],
        );
    }
}
