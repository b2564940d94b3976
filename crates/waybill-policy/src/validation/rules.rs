//! Rules of webhooks, policies and bindings.

use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    names::path_segment_faults,
};

use super::{MATCH_POLICIES, check_one_of, check_selector, list};
use crate::rules::{MatchResources, Rule};

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];

/// The rules and selectors of a policy or binding.
pub(super) fn check_match_resources(
    resources: &MatchResources,
    path: &FieldPath,
    errors: &mut ErrorList,
) {
    let policy = resources.match_policy.as_deref();
    check_one_of(policy, MATCH_POLICIES, path.child("matchPolicy"), errors);
    if let Some(selector) = &resources.namespace_selector {
        check_selector(selector, &path.child("namespaceSelector"), errors);
    }
    if let Some(selector) = &resources.object_selector {
        check_selector(selector, &path.child("objectSelector"), errors);
    }
    for (name, rules) in [
        ("resourceRules", &resources.resource_rules),
        ("excludeResourceRules", &resources.exclude_resource_rules),
    ] {
        for (place, rule) in rules.iter().enumerate() {
            let path = path.child(name).index(place);
            check_names(rule, &path.child("resourceNames"), errors);
            check_rule(rule, &path, errors);
        }
    }
}

fn check_names(rule: &Rule, path: &FieldPath, errors: &mut ErrorList) {
    for (place, name) in rule.resource_names.iter().enumerate() {
        let faults = path_segment_faults(name);
        errors.extend(
            faults.into_iter().map(|fault| FieldError::invalid(path.index(place), name, fault)),
        );
        if rule.resource_names.iter().take(place).any(|earlier| earlier == name) {
            errors.push(FieldError::duplicate(path.index(place), name));
        }
    }
}

pub(super) fn check_rule(rule: &Rule, path: &FieldPath, errors: &mut ErrorList) {
    let operations = path.child("operations");
    check_wildcard(&rule.operations, operations.clone(), "operations", errors);
    for (place, operation) in rule.operations.iter().enumerate() {
        check_one_of(Some(operation), OPERATIONS, operations.index(place), errors);
    }
    check_wildcard(&rule.api_groups, path.child("apiGroups"), "API groups", errors);
    let versions = path.child("apiVersions");
    check_wildcard(&rule.api_versions, versions.clone(), "API versions", errors);
    for (place, version) in rule.api_versions.iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(versions.index(place), ""));
        }
    }
    check_resources(&rule.resources, &path.child("resources"), errors);
    check_one_of(rule.scope.as_deref(), SCOPES, path.child("scope"), errors);
}

/// There must be something, and nothing beside a `*`.
fn check_wildcard(values: &[String], path: FieldPath, what: &str, errors: &mut ErrorList) {
    if values.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if values.len() > 1 && values.iter().any(|value| value == "*") {
        let text = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(path, list(values), text));
    }
}

fn check_resources(resources: &[String], path: &FieldPath, errors: &mut ErrorList) {
    if resources.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
    }
    for (place, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.push(FieldError::required(path.index(place), ""));
        }
        let Some((whole, part)) = resource.split_once('/') else { continue };
        let earlier = |pattern: &str| resources.iter().take(place).any(|other| other == pattern);
        for wildcard in [format!("{whole}/*"), format!("*/{part}")] {
            if earlier(&wildcard) {
                let text = format!("if '{wildcard}' is present, must not specify {resource}");
                errors.push(FieldError::invalid(path.index(place), resource, text));
            }
        }
    }
    if resources.len() > 1 && resources.iter().any(|resource| resource == "*/*") {
        let text = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path.clone(), list(resources), text));
    }
    let plain = |resource: &&String| !resource.contains('/') && *resource != "*";
    if resources.iter().any(|resource| resource == "*") && resources.iter().any(|r| plain(&r)) {
        let text = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path.clone(), list(resources), text));
    }
}
