//! ValidatingAdmissionPolicies.

use serde_json::Value as Json;
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    names::{qualified_name_faults, subdomain_faults},
};

use super::{
    FAILURE_POLICIES, MOST_EXPRESSIONS, check_conditions, check_one_of, read_at,
    rules::check_match_resources,
};
use crate::{
    config::{AuditAnnotation, ParamKind, PolicySpec, Validation, Variable},
    policy::compile,
};

/// As many annotations as a policy may have, and as long as their expressions may be, as upstream's.
const MOST_ANNOTATIONS: usize = 20;
const MOST_ANNOTATION_BYTES: usize = 5 * 1024;

const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];

/// Everything that is wrong with a policy.
pub fn validate_policy(document: &Json) -> ErrorList {
    let spec: PolicySpec = match read_at(document, "/spec", "spec") {
        Ok(spec) => spec,
        Err(errors) => return errors,
    };
    let path = FieldPath::new("spec");
    let mut errors = ErrorList::new();
    let failure_policy = spec.failure_policy.as_deref();
    check_one_of(failure_policy, FAILURE_POLICIES, path.child("failurePolicy"), &mut errors);
    if let Some(kind) = &spec.param_kind {
        check_param_kind(kind, &path.child("paramKind"), &mut errors);
    }
    let constraints = path.child("matchConstraints");
    match &spec.match_constraints {
        None => errors.push(FieldError::required(constraints, "")),
        Some(resources) => {
            check_match_resources(resources, &constraints, &mut errors);
            if resources.resource_rules.is_empty() {
                errors.push(FieldError::required(constraints.child("resourceRules"), ""));
            }
        }
    }
    check_conditions(&spec.match_conditions, &path.child("matchConditions"), &mut errors);
    for (place, variable) in spec.variables.iter().enumerate() {
        check_variable(variable, &path.child("variables").index(place), &mut errors);
    }
    if spec.validations.is_empty() && spec.audit_annotations.is_empty() {
        let text = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required(path.child("validations"), text));
        errors.push(FieldError::required(path.child("auditAnnotations"), text));
    }
    for (place, validation) in spec.validations.iter().enumerate() {
        check_validation(validation, &path.child("validations").index(place), &mut errors);
    }
    check_annotations(document, &spec, &path.child("auditAnnotations"), &mut errors);
    // Upstream has none of these bounds; each expression is compiled here and once more when loaded.
    for (name, count) in
        [("variables", spec.variables.len()), ("validations", spec.validations.len())]
    {
        if count > MOST_EXPRESSIONS {
            errors.push(FieldError::too_many(path.child(name), count, MOST_EXPRESSIONS));
            return errors;
        }
    }
    compile(&spec, &mut errors);
    errors
}

fn check_param_kind(kind: &ParamKind, path: &FieldPath, errors: &mut ErrorList) {
    let version_path = path.child("apiVersion");
    let parts: Vec<_> = kind.api_version.split('/').collect();
    match *parts.as_slice() {
        [""] => errors.push(FieldError::required(version_path, "")),
        [_] => {}
        [group, version] => {
            let faults = subdomain_faults(group);
            if !faults.is_empty() && !group.is_empty() {
                errors.push(FieldError::invalid(version_path.clone(), group, faults.join(",")));
            }
            if version.is_empty() {
                let text = "version must be specified";
                errors.push(FieldError::invalid(version_path, &kind.api_version, text));
            }
        }
        _ => {
            let text = format!("unexpected GroupVersion string: {}", kind.api_version);
            errors.push(FieldError::invalid(version_path, &kind.api_version, text));
        }
    }
    if kind.kind.is_empty() {
        errors.push(FieldError::required(path.child("kind"), ""));
    }
}

fn check_variable(variable: &Variable, path: &FieldPath, errors: &mut ErrorList) {
    if variable.name.trim().is_empty() {
        errors.push(FieldError::required(path.child("name"), "name is not specified"));
    } else if !is_identifier(&variable.name) {
        let text = "must be a valid CEL identifier";
        errors.push(FieldError::invalid(path.child("name"), &variable.name, text));
    }
    if variable.expression.trim().is_empty() {
        errors.push(FieldError::required(path.child("expression"), "expression is not specified"));
    }
}

fn is_identifier(text: &str) -> bool {
    let reserved = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    let first = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    first
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
        && !reserved.contains(&text)
}

fn check_validation(validation: &Validation, path: &FieldPath, errors: &mut ErrorList) {
    if validation.expression.trim().is_empty() {
        errors.push(FieldError::required(path.child("expression"), "expression is not specified"));
    }
    let blank = |text: &str| !text.is_empty() && text.trim().is_empty();
    if blank(&validation.message_expression) {
        let path = path.child("messageExpression");
        let text = "must be non-empty if specified";
        errors.push(FieldError::invalid(path, &validation.message_expression, text));
    }
    let message = path.child("message");
    if blank(&validation.message) {
        let text = "must be non-empty if specified";
        errors.push(FieldError::invalid(message, &validation.message, text));
    } else if validation.message.trim().contains(['\n', '\r']) {
        let text = "must not contain line breaks";
        errors.push(FieldError::invalid(message, &validation.message, text));
    }
    check_one_of(validation.reason.as_deref(), REASONS, path.child("reason"), errors);
}

fn check_annotations(document: &Json, spec: &PolicySpec, path: &FieldPath, errors: &mut ErrorList) {
    let annotations = &spec.audit_annotations;
    if annotations.len() > MOST_ANNOTATIONS {
        errors.push(FieldError::too_many(path.clone(), annotations.len(), MOST_ANNOTATIONS));
    }
    let name = document.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
    for (place, annotation) in annotations.iter().enumerate() {
        let path = path.index(place);
        check_annotation(name, annotation, &path, errors);
        if annotations.iter().take(place).any(|earlier| earlier.key == annotation.key) {
            errors.push(FieldError::duplicate(path.child("key"), &annotation.key));
        }
    }
}

fn check_annotation(
    policy: &str,
    annotation: &AuditAnnotation,
    path: &FieldPath,
    errors: &mut ErrorList,
) {
    let key = format!("{policy}/{}", annotation.key);
    let faults = qualified_name_faults(&key);
    errors.extend(
        faults.into_iter().map(|fault| FieldError::invalid(path.child("key"), &key, fault)),
    );
    let value = path.child("valueExpression");
    match annotation.value_expression.trim().len() {
        0 => errors.push(FieldError::required(value, "valueExpression is not specified")),
        length if length > MOST_ANNOTATION_BYTES => {
            let text = format!("must not exceed {MOST_ANNOTATION_BYTES} bytes in length");
            errors.push(FieldError::required(value, text));
        }
        _ => {}
    }
}
