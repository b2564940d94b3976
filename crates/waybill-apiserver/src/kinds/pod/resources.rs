//! What containers ask for and may use.

use std::cmp::Ordering;

use waybill_api::{
    field::{ErrorList, FieldError},
    names::qualified_name_faults,
    quantity,
};

use crate::kinds::document::Field;

/// The `resources` of a container.
pub(super) fn check_resources(resources: Field<'_, '_>, errors: &mut ErrorList) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    for list in [limits, requests] {
        for (name, amount) in list.entries() {
            check_name(name, amount, errors);
            check_amount(name, amount, errors);
        }
    }
    for (name, request) in requests.entries() {
        check_request(name, request, requests, limits, errors);
    }
}

const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-")
}

/// Whether a node may promise more of it than it has.
fn is_overcommitted(name: &str) -> bool {
    STANDARD.contains(&name) || name.contains("kubernetes.io/")
}

fn check_name(name: &str, amount: Field<'_, '_>, errors: &mut ErrorList) {
    for fault in qualified_name_faults(name) {
        errors.push(amount.invalid_as(name, fault));
    }
    if !name.contains('/') && !is_standard(name) {
        errors.push(amount.invalid_as(name, "must be a standard resource type or fully qualified"));
        errors.push(amount.invalid_as(name, "must be a standard resource for containers"));
    }
}

fn check_amount(name: &str, amount: Field<'_, '_>, errors: &mut ErrorList) {
    match quantity::read(amount.value()) {
        Err(error) => errors.push(amount.invalid(error.to_string())),
        Ok(quantity) if quantity.is_negative() => {
            errors.push(amount.invalid("must be greater than or equal to 0"));
        }
        Ok(quantity) if !is_overcommitted(name) && !quantity.is_whole() => {
            errors.push(amount.invalid("must be an integer"));
        }
        Ok(_) => {}
    }
}

/// A request stays below its limit, and is equal to it where nothing can be overcommitted.
fn check_request(
    name: &str,
    request: Field<'_, '_>,
    requests: Field<'_, '_>,
    limits: Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let limit = limits.get(name);
    if !limit.is_set() {
        if !is_overcommitted(name) {
            let detail = "Limit must be set for non overcommitable resources";
            errors.push(limits.required(detail));
        }
        return;
    }
    let (Ok(asked), Ok(allowed)) = (quantity::read(request.value()), quantity::read(limit.value()))
    else {
        return;
    };
    let relation = match asked.cmp(&allowed) {
        Ordering::Equal => return,
        Ordering::Less | Ordering::Greater if !is_overcommitted(name) => "equal to",
        Ordering::Less => return,
        Ordering::Greater => "less than or equal to",
    };
    let detail = format!("must be {relation} {name} limit of {allowed}");
    errors.push(FieldError::invalid(requests.path(), asked.to_string(), detail));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::check_errors;

    #[track_caller]
    fn check(resources: &Value, expected: &[&str]) {
        let mut errors = ErrorList::new();
        check_resources(Field::root(resources), &mut errors);
        check_errors(&errors, expected);
    }

    #[test]
    fn requests_stay_within_limits() {
        check(&json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}), &[]);
        check(&json!({"requests": {"cpu": 0.5}, "limits": {"cpu": 1, "memory": "1Gi"}}), &[]);
        check(
            &json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}}),
            &["requests: Invalid value: \"1Gi\": must be less than or equal to memory limit of 1G"],
        );
    }

    #[test]
    fn amounts_parse_and_are_positive() {
        check(
            &json!({"limits": {"cpu": "-1"}}),
            &["limits[cpu]: Invalid value: \"-1\": must be gr"],
        );
        check(
            &json!({"limits": {"cpu": "x"}}),
            &["limits[cpu]: Invalid value: \"x\": quantities mu"],
        );
        check(
            &json!({"limits": {"cpu": "1x"}}),
            &["limits[cpu]: Invalid value: \"1x\": quantities mu"],
        );
    }

    #[test]
    fn other_resources_have_a_domain_and_are_not_overcommitted() {
        check(
            &json!({"limits": {"gpu": "1"}}),
            &[
                "limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully",
                "limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            ],
        );
        check(
            &json!({"limits": {"a.com/gpu": "500m"}}),
            &["limits[a.com/gpu]: Invalid value: \"5"],
        );
        check(&json!({"requests": {"a.com/gpu": "1"}}), &["limits: Required value: Limit must be"]);
        check(
            &json!({"requests": {"a.com/gpu": "1"}, "limits": {"a.com/gpu": "2"}}),
            &["requests: Invalid value: \"1\": must be equal to a.com/gpu limit of 2"],
        );
    }
}
