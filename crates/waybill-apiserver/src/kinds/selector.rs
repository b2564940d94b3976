//! The form of selectors that stand in objects.

use waybill_api::{
    field::ErrorList,
    names::{label_value_faults, qualified_name_faults},
};

use super::{document::Field, meta};

/// A `LabelSelector`; an absent one is fine.
pub(super) fn check_label_selector(selector: Field<'_, '_>, errors: &mut ErrorList) {
    meta::check_labels(selector.get("matchLabels"), errors);
    for requirement in selector.get("matchExpressions").items() {
        check_requirement(requirement, &[], errors);
        check_values(requirement.get("values"), errors);
    }
}

/// A `NodeSelectorTerm` that a node must match.
pub(super) fn check_node_term(term: Field<'_, '_>, errors: &mut ErrorList) {
    check_node_preference(term, errors);
    for requirement in term.get("matchExpressions").items() {
        check_values(requirement.get("values"), errors);
    }
}

/// A `NodeSelectorTerm` that a node had better match; its values may be such that none does.
pub(super) fn check_node_preference(term: Field<'_, '_>, errors: &mut ErrorList) {
    for requirement in term.get("matchExpressions").items() {
        check_requirement(requirement, &["Gt", "Lt"], errors);
    }
    for requirement in term.get("matchFields").items() {
        check_field_requirement(requirement, errors);
    }
}

/// The name of a label.
pub(super) fn check_label_name(name: Field<'_, '_>, errors: &mut ErrorList) {
    errors.extend(name.all_invalid(qualified_name_faults(name.text())));
}

/// A requirement on labels; `comparisons` are operators that need one value.
fn check_requirement(requirement: Field<'_, '_>, comparisons: &[&str], errors: &mut ErrorList) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(values.forbidden(detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other if comparisons.contains(&other) => {
            if values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(values.required(detail));
            }
        }
        _ => errors.push(operator.invalid_text("not a valid selector operator")),
    }
    check_label_name(requirement.get("key"), errors);
}

fn check_values(values: Field<'_, '_>, errors: &mut ErrorList) {
    for value in values.items() {
        errors.extend(value.all_invalid(label_value_faults(value.text())));
    }
}

/// A requirement on the fields of a node, of which only its name can be asked for.
fn check_field_requirement(requirement: Field<'_, '_>, errors: &mut ErrorList) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.text() {
        "In" | "NotIn" if values.len() != 1 => errors.push(values.required(
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )),
        "In" | "NotIn" => {}
        _ => errors.push(operator.invalid_text("not a valid selector operator")),
    }
    let key = requirement.get("key");
    if key.text() != "metadata.name" {
        errors.push(key.invalid_text("not a valid field selector key"));
        return;
    }
    for value in values.items() {
        errors.extend(value.all_invalid(super::NameRule::Subdomain.faults(value.text())));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::check_errors;

    #[track_caller]
    fn check(selector: &Value, expected: &[&str]) {
        let mut errors = ErrorList::new();
        check_label_selector(Field::root(selector), &mut errors);
        check_errors(&errors, expected);
    }

    #[track_caller]
    fn check_node(term: &Value, expected: &[&str]) {
        let mut errors = ErrorList::new();
        check_node_term(Field::root(term), &mut errors);
        check_errors(&errors, expected);
    }

    #[test]
    fn labels_and_expressions_have_a_form() {
        check(&Value::Null, &[]);
        check(&json!({"matchLabels": {"a": "b"}}), &[]);
        check(&json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), &[]);
        check(
            &json!({"matchLabels": {"a b": "c"}, "matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "", "operator": "Exists", "values": ["x"]},
                {"key": "a", "operator": "Gt", "values": ["-"]}]}),
            &[
                "matchLabels: Invalid value: \"a b\": name part must consist of",
                "matchExpressions[0].values: Required value: must be specified when `operator` is",
                "matchExpressions[1].values: Forbidden: may not be specified when `operator` is",
                "matchExpressions[1].key: Invalid value: \"\": name part must be non-empty",
                "matchExpressions[1].key: Invalid value: \"\": name part must consist of",
                "matchExpressions[2].operator: Invalid value: \"Gt\": not a valid selector oper",
                "matchExpressions[2].values[0]: Invalid value: \"-\": a valid label must be",
            ],
        );
    }

    #[test]
    fn nodes_are_compared_and_named() {
        check_node(
            &json!({
                "matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
            &[],
        );
        check_node(
            &json!({
                "matchExpressions": [{"key": "cores", "operator": "Lt", "values": ["4", "5"]}],
                "matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": []},
                    {"key": "metadata.name", "operator": "Exists", "values": ["N"]},
                    {"key": "spec.x", "operator": "In", "values": ["n"]}]}),
            &[
                "matchExpressions[0].values: Required value: must be specified single value when",
                "matchFields[0].values: Required value: must be only one value when `operator` is",
                "matchFields[1].operator: Invalid value: \"Exists\": not a valid selector oper",
                "matchFields[1].values[0]: Invalid value: \"N\": a lowercase RFC 1123 subdomain",
                "matchFields[2].key: Invalid value: \"spec.x\": not a valid field selector key",
            ],
        );
    }
}
