//! Taints of nodes, and the tolerations of pods that answer them.

use std::collections::BTreeSet;

use waybill_api::{
    field::{ErrorList, FieldError},
    names::{label_value_faults, qualified_name_faults},
};

use super::document::Field;

/// The taints of a node.
pub(super) fn check_taints(taints: Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        errors.extend(key.all_invalid(qualified_name_faults(key.text())));
        let faults = label_value_faults(value.text());
        if !faults.is_empty() {
            errors.push(value.invalid_text(faults.join(";")));
        }
        if effect.is_empty() {
            errors.push(effect.required(""));
        } else {
            check_effect(effect, errors);
        }
        if !seen.insert((effect.text(), key.text())) {
            let shown = format!("{}:{}", key.text(), effect.text());
            errors.push(FieldError::duplicate(taint.path(), shown));
        }
    }
}

/// The tolerations of a pod.
pub(super) fn check_tolerations(tolerations: Field<'_, '_>, errors: &mut ErrorList) {
    for toleration in tolerations.items() {
        check_toleration(toleration, errors);
    }
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn check_toleration(toleration: Field<'_, '_>, errors: &mut ErrorList) {
    let (key, value) = (toleration.get("key"), toleration.get("value"));
    let (operator, effect) = (toleration.get("operator"), toleration.get("effect"));
    if !key.is_empty() {
        errors.extend(key.all_invalid(qualified_name_faults(key.text())));
    } else if operator.text() != "Exists" {
        errors.push(operator.invalid_text(
            "operator must be Exists when `key` is empty, which means \"match all values and all \
             keys\"",
        ));
    }
    if toleration.get("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(effect.invalid_text(detail));
    }
    match operator.text() {
        "" | "Equal" => {
            let faults = label_value_faults(value.text());
            if !faults.is_empty() {
                errors.push(operator.invalid_as(value.text(), faults.join(";")));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(operator.invalid_as(value.text(), detail));
        }
        _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
    }
    if !effect.is_empty() {
        check_effect(effect, errors);
    }
}

fn check_effect(effect: Field<'_, '_>, errors: &mut ErrorList) {
    if !EFFECTS.contains(&effect.text()) {
        errors.push(effect.not_supported(&EFFECTS));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::check_errors;

    #[track_caller]
    fn check(toleration: &Value, expected: &[&str]) {
        let document = json!([toleration]);
        let mut errors = ErrorList::new();
        check_tolerations(Field::root(&document), &mut errors);
        check_errors(&errors, expected);
    }

    #[test]
    fn tolerations() {
        check(&json!({"key": "a", "value": "b"}), &[]);
        check(&json!({"operator": "Exists"}), &[]);
        check(
            &json!({"value": "b"}),
            &["[0].operator: Invalid value: \"\": operator must be Exis"],
        );
        check(
            &json!({"key": "a", "operator": "Exists", "value": "b"}),
            &[
                "[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
            ],
        );
        check(
            &json!({"key": "a", "operator": "Like"}),
            &["[0].operator: Unsupported value: \"Lik"],
        );
        check(
            &json!({"key": "a", "effect": "Now"}),
            &["[0].effect: Unsupported value: \"Now\": sup"],
        );
        check(
            &json!({"key": "a", "tolerationSeconds": 5}),
            &[
                "[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds`",
            ],
        );
    }

    #[test]
    fn taints_are_unique_by_key_and_effect() {
        let document = json!([
            {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"},
            {"key": "a", "effect": "NoSchedule", "value": "x"},
        ]);
        let mut errors = ErrorList::new();
        check_taints(Field::root(&document), &mut errors);
        check_errors(&errors, &["[2]: Duplicate value: \"a:NoSchedule\""]);
    }
}
