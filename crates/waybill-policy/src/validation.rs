//! What is wrong with a webhook configuration, a policy or a binding, told as upstream tells it.
//!
//! Metadata is judged by the server, as for every kind.

mod bindings;
mod policies;
mod rules;
mod webhooks;

use serde_json::Value as Json;
use waybill_api::{
    field::{BadValue, ErrorList, FieldError, FieldPath},
    names::{label_value_faults, qualified_name_faults},
};

pub use bindings::validate_binding;
pub use policies::validate_policy;
pub use webhooks::{validate_mutating_webhooks, validate_validating_webhooks};

use crate::{config::MatchCondition, selector::LabelSelector};

const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];

/// As many conditions as one webhook or policy may have, as upstream's.
const MOST_CONDITIONS: usize = 64;

/// As many expressions as one object may have: each is compiled when it is written and when it is
/// loaded. Upstream has no such bound.
const MOST_EXPRESSIONS: usize = 512;

/// What is read of the object, or the one error that it is of another form.
fn read_at<T: Default + for<'d> serde::Deserialize<'d>>(
    document: &Json,
    pointer: &str,
    path: &str,
) -> Result<T, ErrorList> {
    crate::config::read(document, pointer).map_err(|error| {
        let value = BadValue::Json("{}".to_owned());
        vec![FieldError::invalid(FieldPath::new(path), value, error.to_string())]
    })
}

fn check_one_of(value: Option<&str>, allowed: &[&str], path: FieldPath, errors: &mut ErrorList) {
    if let Some(value) = value
        && !allowed.contains(&value)
    {
        errors.push(FieldError::not_supported(path, value, allowed));
    }
}

fn check_selector(selector: &LabelSelector, path: &FieldPath, errors: &mut ErrorList) {
    let labels = path.child("matchLabels");
    for (key, value) in &selector.match_labels {
        let faults = qualified_name_faults(key);
        errors.extend(
            faults.into_iter().map(|fault| FieldError::invalid(labels.clone(), key, fault)),
        );
        let faults = label_value_faults(value);
        errors.extend(
            faults.into_iter().map(|fault| FieldError::invalid(labels.key(key), value, fault)),
        );
    }
    for (place, requirement) in selector.match_expressions.iter().enumerate() {
        let path = path.child("matchExpressions").index(place);
        let empty = requirement.values.is_empty();
        match requirement.operator.as_str() {
            "In" | "NotIn" if empty => errors.push(FieldError::required(
                path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !empty => errors.push(FieldError::forbidden(
                path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                path.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let faults = qualified_name_faults(&requirement.key);
        errors.extend(
            faults
                .into_iter()
                .map(|fault| FieldError::invalid(path.child("key"), &requirement.key, fault)),
        );
        for (place, value) in requirement.values.iter().enumerate() {
            let path = path.child("values").index(place);
            let faults = label_value_faults(value);
            errors.extend(
                faults.into_iter().map(|fault| FieldError::invalid(path.clone(), value, fault)),
            );
        }
    }
}

/// Everything about conditions but whether they compile.
fn check_conditions(conditions: &[MatchCondition], path: &FieldPath, errors: &mut ErrorList) {
    if conditions.len() > MOST_CONDITIONS {
        errors.push(FieldError::too_many(path.clone(), conditions.len(), MOST_CONDITIONS));
    }
    for (place, condition) in conditions.iter().enumerate() {
        let path = path.index(place);
        if condition.expression.trim().is_empty() {
            errors.push(FieldError::required(path.child("expression"), ""));
        }
        if condition.name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
            continue;
        }
        let faults = qualified_name_faults(&condition.name);
        errors.extend(
            faults
                .into_iter()
                .map(|fault| FieldError::invalid(path.child("name"), &condition.name, fault)),
        );
        let earlier = conditions.iter().take(place);
        if earlier.into_iter().any(|other| other.name == condition.name) {
            errors.push(FieldError::duplicate(path.child("name"), &condition.name));
        }
    }
}

/// A list as an error repeats it.
fn list(values: &[String]) -> BadValue {
    BadValue::Json(Json::from(values).to_string())
}

#[cfg(test)]
mod tests;
