//! ValidatingAdmissionPolicyBindings.

use serde_json::Value as Json;
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    names::{path_segment_faults, subdomain_faults},
};

use super::{check_one_of, check_selector, list, read_at, rules::check_match_resources};
use crate::config::{BindingSpec, ParamRef};

const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];

/// Everything that is wrong with a binding.
pub fn validate_binding(document: &Json) -> ErrorList {
    let spec: BindingSpec = match read_at(document, "/spec", "spec") {
        Ok(spec) => spec,
        Err(errors) => return errors,
    };
    let path = FieldPath::new("spec");
    let mut errors = ErrorList::new();
    let policy = path.child("policyName");
    if spec.policy_name.is_empty() {
        errors.push(FieldError::required(policy, ""));
    } else {
        let faults = subdomain_faults(&spec.policy_name);
        errors.extend(
            faults
                .into_iter()
                .map(|fault| FieldError::invalid(policy.clone(), &spec.policy_name, fault)),
        );
    }
    if let Some(chosen) = &spec.param_ref {
        check_param_ref(chosen, &path.child("paramRef"), &mut errors);
    }
    if let Some(resources) = &spec.match_resources {
        check_match_resources(resources, &path.child("matchResources"), &mut errors);
    }
    check_actions(&spec.validation_actions, &path.child("validationActions"), &mut errors);
    errors
}

fn check_param_ref(chosen: &ParamRef, path: &FieldPath, errors: &mut ErrorList) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    if !chosen.name.is_empty() {
        let faults = path_segment_faults(&chosen.name);
        errors.extend(
            faults
                .into_iter()
                .map(|fault| FieldError::invalid(path.child("name"), &chosen.name, fault)),
        );
    }
    match (&chosen.selector, chosen.name.is_empty()) {
        (Some(selector), true) => check_selector(selector, &path.child("selector"), errors),
        (Some(_), false) => {
            errors.push(FieldError::forbidden(path.child("name"), EXCLUSIVE));
            errors.push(FieldError::forbidden(path.child("selector"), EXCLUSIVE));
        }
        (None, true) => {
            let text = "one of name or selector must be specified";
            errors.push(FieldError::required(path.clone(), text));
        }
        (None, false) => {}
    }
    let action = path.child("parameterNotFoundAction");
    match chosen.parameter_not_found_action.as_deref() {
        None | Some("") => errors.push(FieldError::required(action, "")),
        some => check_one_of(some, &["Allow", "Deny"], action, errors),
    }
}

fn check_actions(actions: &[String], path: &FieldPath, errors: &mut ErrorList) {
    if actions.is_empty() {
        let text = "at least one validation action is required";
        errors.push(FieldError::required(path.clone(), text));
    }
    for (place, action) in actions.iter().enumerate() {
        check_one_of(Some(action), ACTIONS, path.index(place), errors);
        if actions.iter().take(place).any(|earlier| earlier == action) {
            errors.push(FieldError::duplicate(path.index(place), action));
        }
    }
    let has = |name: &str| actions.iter().any(|action| action == name);
    if has("Deny") && has("Warn") {
        let text = "must not contain both Deny and Warn (repeating the same validation failure \
                    information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path.clone(), list(actions), text));
    }
}
