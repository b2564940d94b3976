//! Where a pod wants to be: its affinities, and how it spreads.

use std::collections::BTreeSet;

use waybill_api::field::{ErrorList, FieldError};

use super::spec::check_optional_choice;
use crate::kinds::{
    NameRule,
    document::Field,
    selector::{check_label_name, check_label_selector, check_node_preference, check_node_term},
};

/// The `affinity` of a pod.
pub(super) fn check_affinity(affinity: Field<'_, '_>, errors: &mut ErrorList) {
    check_node_affinity(affinity.get("nodeAffinity"), errors);
    for name in ["podAffinity", "podAntiAffinity"] {
        let affinity = affinity.get(name);
        for term in affinity.get(REQUIRED).items() {
            check_pod_term(term, errors);
        }
        for term in affinity.get(PREFERRED).items() {
            check_weight(term.get("weight"), errors);
            check_pod_term(term.get("podAffinityTerm"), errors);
        }
    }
}

/// The `topologySpreadConstraints` of a pod.
pub(super) fn check_spread(constraints: Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for constraint in constraints.items() {
        let (skew, action) = (constraint.get("maxSkew"), constraint.get("whenUnsatisfiable"));
        let key = constraint.get("topologyKey");
        if skew.number().unwrap_or_default() <= 0 {
            errors.push(skew.invalid_as(skew.number().unwrap_or_default(), NOT_POSITIVE));
        }
        if key.is_empty() {
            errors.push(key.required("can not be empty"));
        }
        if !ACTIONS.contains(&action.text()) {
            errors.push(action.not_supported(&ACTIONS));
        }
        if !seen.insert((key.text(), action.text())) {
            let path = constraint.get("{topologyKey, whenUnsatisfiable}").path();
            let shown = format!("{{{}, {}}}", key.text(), action.text());
            errors.push(FieldError::duplicate(path, shown));
        }
        check_min_domains(constraint.get("minDomains"), action.text(), errors);
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            check_optional_choice(constraint.get(name), &INCLUSIONS, errors);
        }
        check_label_keys(constraint, "matchLabelKeys", errors);
        check_own_keys(constraint, errors);
        check_label_selector(constraint.get("labelSelector"), errors);
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NOT_POSITIVE: &str = "must be greater than zero";
const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const INCLUSIONS: [&str; 2] = ["Honor", "Ignore"];

fn check_node_affinity(affinity: Field<'_, '_>, errors: &mut ErrorList) {
    let required = affinity.get(REQUIRED);
    let terms = required.get("nodeSelectorTerms");
    if required.is_set() && terms.is_empty() {
        errors.push(terms.required("must have at least one node selector term"));
    }
    for term in terms.items() {
        check_node_term(term, errors);
    }
    for term in affinity.get(PREFERRED).items() {
        check_weight(term.get("weight"), errors);
        check_node_preference(term.get("preference"), errors);
    }
}

fn check_weight(weight: Field<'_, '_>, errors: &mut ErrorList) {
    let number = weight.number().unwrap_or_default();
    if !(1..=100).contains(&number) {
        errors.push(weight.invalid_as(number, "must be in the range 1-100"));
    }
}

fn check_pod_term(term: Field<'_, '_>, errors: &mut ErrorList) {
    for name in ["labelSelector", "namespaceSelector"] {
        check_label_selector(term.get(name), errors);
    }
    for name in term.get("namespaces").items() {
        for fault in NameRule::Label.faults(name.text()) {
            // The place is upstream's.
            errors.push(term.get("namespace").invalid_as(name.text(), fault));
        }
    }
    check_label_keys(term, "matchLabelKeys", errors);
    check_label_keys(term, "mismatchLabelKeys", errors);
    check_own_keys(term, errors);
    let (with, without) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"));
    for key in with.items() {
        if without.items().any(|other| other.text() == key.text()) {
            errors.push(key.invalid_text("exists in both matchLabelKeys and mismatchLabelKeys"));
        }
    }
    let key = term.get("topologyKey");
    if key.is_empty() {
        errors.push(key.required("can not be empty"));
    }
    check_label_name(key, errors);
}

/// Keys whose values are taken from the pod itself add to the selector.
fn check_label_keys(term: Field<'_, '_>, name: &str, errors: &mut ErrorList) {
    let keys = term.get(name);
    if !keys.is_empty() && !term.get("labelSelector").is_set() {
        errors.push(keys.forbidden("must not be specified when labelSelector is not set"));
    }
    for key in keys.items() {
        check_label_name(key, errors);
    }
}

/// The selector must not name what pods of the same value are found by.
fn check_own_keys(term: Field<'_, '_>, errors: &mut ErrorList) {
    let (keys, selector) = (term.get("matchLabelKeys"), term.get("labelSelector"));
    let expressions = selector.get("matchExpressions");
    let mut named: BTreeSet<_> = expressions.items().map(|one| one.get("key").text()).collect();
    named.extend(selector.get("matchLabels").entries().map(|(key, _)| key));
    for key in keys.items() {
        if named.contains(key.text()) {
            errors.push(key.invalid_text("exists in both matchLabelKeys and labelSelector"));
        }
    }
}

fn check_min_domains(domains: Field<'_, '_>, action: &str, errors: &mut ErrorList) {
    let Some(number) = domains.number() else { return };
    if number <= 0 {
        errors.push(domains.invalid(NOT_POSITIVE));
    }
    if action != "DoNotSchedule" {
        errors.push(domains.invalid(format!(
            "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        )));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::pod::testing::check_spec;

    #[track_caller]
    fn check(affinity: &Value, expected: &[&str]) {
        check_spec(&json!({"affinity": affinity}), expected);
    }

    #[test]
    fn nodes_are_required_by_terms_and_preferred_by_weight() {
        let at = "spec.affinity.nodeAffinity";
        let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        check(&json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}), &[]);
        check(
            &json!({"nodeAffinity": {REQUIRED: {}}}),
            &[&format!("{at}.{REQUIRED}.nodeSelectorTerms: Required value: must have at least")],
        );
        check(
            &json!({"nodeAffinity": {PREFERRED: [
                {"weight": 1, "preference": term},
                {"weight": 101, "preference": {"matchExpressions": [{"key": "a"}]}}]}}),
            &[
                &format!(
                    "{at}.{PREFERRED}[1].weight: Invalid value: 101: must be in the range 1-1"
                ),
                &format!(
                    "{at}.{PREFERRED}[1].preference.matchExpressions[0].operator: Invalid value: \
                     \"\": not a valid selector operator"
                ),
            ],
        );
    }

    #[test]
    fn pods_are_found_by_labels_within_a_topology() {
        let at = "spec.affinity.podAntiAffinity";
        let good = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}});
        check(
            &json!({"podAffinity": {REQUIRED: [good]}, "podAntiAffinity": {REQUIRED: [good]}}),
            &[],
        );
        check(
            &json!({"podAntiAffinity": {
                REQUIRED: [{"namespaces": ["A"], "matchLabelKeys": ["x"]}],
                PREFERRED: [{"weight": 0, "podAffinityTerm": {
                    "topologyKey": "a b", "labelSelector": {"matchLabels": {"x": "y"}},
                    "matchLabelKeys": ["x"], "mismatchLabelKeys": ["z"]}}]}}),
            &[
                &format!("{at}.{REQUIRED}[0].namespace: Invalid value: \"A\": a lowercase RFC"),
                &format!(
                    "{at}.{REQUIRED}[0].matchLabelKeys: Forbidden: must not be specified when"
                ),
                &format!("{at}.{REQUIRED}[0].topologyKey: Required value: can not be empty"),
                &format!("{at}.{REQUIRED}[0].topologyKey: Invalid value: \"\": name part must be"),
                &format!("{at}.{REQUIRED}[0].topologyKey: Invalid value: \"\": name part must con"),
                &format!("{at}.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-10"),
                &format!(
                    "{at}.{PREFERRED}[0].podAffinityTerm.matchLabelKeys[0]: Invalid value: \"x\": \
                     exists in both matchLabelKeys and labelSelector"
                ),
                &format!(
                    "{at}.{PREFERRED}[0].podAffinityTerm.topologyKey: Invalid value: \"a b\": name \
                     part must consist of"
                ),
            ],
        );
        check(
            &json!({"podAffinity": {REQUIRED: [{"topologyKey": "k", "labelSelector": {},
                "matchLabelKeys": ["x"], "mismatchLabelKeys": ["x"]}]}}),
            &[&format!(
                "spec.affinity.podAffinity.{REQUIRED}[0].matchLabelKeys[0]: Invalid value: \"x\": \
                 exists in both matchLabelKeys and mismatchLabelKeys"
            )],
        );
    }

    #[test]
    fn pods_spread_as_constraints_say() {
        let at = "spec.topologySpreadConstraints";
        let good = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 2, "labelSelector": {"matchLabels": {"a": "b"}}});
        check_spec(&json!({"topologySpreadConstraints": [good]}), &[]);
        check_spec(
            &json!({"topologySpreadConstraints": [
                {"maxSkew": 0, "whenUnsatisfiable": "Odd", "nodeTaintsPolicy": "Odd"},
                {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "ScheduleAnyway",
                    "minDomains": 0, "matchLabelKeys": ["x"]},
                {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]}),
            &[
                &format!("{at}[0].maxSkew: Invalid value: 0: must be greater than zero"),
                &format!("{at}[0].topologyKey: Required value: can not be empty"),
                &format!("{at}[0].whenUnsatisfiable: Unsupported value: \"Odd\": supported values"),
                &format!(
                    "{at}[0].nodeTaintsPolicy: Unsupported value: \"Odd\": supported values: "
                ),
                &format!("{at}[1].minDomains: Invalid value: 0: must be greater than zero"),
                &format!("{at}[1].minDomains: Invalid value: 0: can only use minDomains if when"),
                &format!("{at}[1].matchLabelKeys: Forbidden: must not be specified when labelSel"),
                &format!(
                    "{at}[2].{{topologyKey, whenUnsatisfiable}}: Duplicate value: \"{{k, Schedule"
                ),
                &format!("{at}[2].labelSelector.matchExpressions[0].values: Required value: must"),
            ],
        );
    }
}
