//! What a start does to roles and bindings that are already there.
//!
//! What is missing comes back, what was added stays, and whoever sets the annotation
//! `rbac.authorization.kubernetes.io/autoupdate` to `false` is left alone. As the `rbac/bootstrap-
//! roles` hook of Kubernetes.

use serde_json::{Map, Value, json};

use crate::authz::{covers::covers, rule::PolicyRule};

/// Whether an object is kept up to date.
pub(super) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What is to be done about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reconciled {
    Keep,
    /// Delete the old and create this: a binding cannot change its role.
    Recreate(Value),
    Update(Value),
}

/// Brings `existing` to hold at least what `wanted` holds.
pub(crate) fn reconcile(existing: &Value, wanted: &Value) -> Reconciled {
    let annotation = existing["metadata"]["annotations"].get(AUTO_UPDATE);
    if annotation.and_then(Value::as_str) == Some("false") {
        return Reconciled::Keep;
    }
    if existing.get("roleRef") != wanted.get("roleRef") {
        return Reconciled::Recreate(wanted.clone());
    }
    let mut next = existing.clone();
    for field in ["labels", "annotations"] {
        add_entries(&mut next["metadata"], field, &wanted["metadata"][field]);
    }
    add_items(&mut next, "subjects", wanted.get("subjects"));
    if let Some(rule) = wanted.get("aggregationRule") {
        // The rules of an aggregated role are those of others.
        add_items(
            &mut next["aggregationRule"],
            "clusterRoleSelectors",
            rule.get("clusterRoleSelectors"),
        );
    } else {
        add_rules(&mut next, wanted);
    }
    if next == *existing { Reconciled::Keep } else { Reconciled::Update(next) }
}

/// Adds the entries whose keys are not there.
fn add_entries(object: &mut Value, field: &str, wanted: &Value) {
    for (key, value) in wanted.as_object().into_iter().flatten() {
        if object[field].get(key).is_none() {
            if !object[field].is_object() {
                object[field] = Value::Object(Map::new());
            }
            object[field][key] = value.clone();
        }
    }
}

/// Adds the items that are not there.
fn add_items(object: &mut Value, field: &str, wanted: Option<&Value>) {
    for item in wanted.and_then(Value::as_array).into_iter().flatten() {
        push_unless(object, field, item, |items| items.contains(item));
    }
}

/// Adds the rules that those there do not cover.
fn add_rules(object: &mut Value, wanted: &Value) {
    let view = |rules: &Value| -> Vec<PolicyRule> {
        serde_json::from_value(rules.clone()).unwrap_or_default()
    };
    for rule in wanted.get("rules").and_then(Value::as_array).into_iter().flatten() {
        let parsed = view(&json!([rule]));
        push_unless(object, "rules", rule, |rules| covers(&view(&json!(rules)), &parsed));
    }
}

fn push_unless(object: &mut Value, field: &str, item: &Value, known: impl Fn(&[Value]) -> bool) {
    let items = object[field].as_array().cloned().unwrap_or_default();
    if !known(&items) {
        object[field] = Value::Array([items, vec![item.clone()]].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Value {
        json!({
            "kind": "ClusterRole",
            "metadata": {"name": "r", "labels": {"l": "1"}, "annotations": {AUTO_UPDATE: "true"}},
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
            ],
        })
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expected: Option<fn(&mut Value)>) {
        let mut existing = wanted();
        change(&mut existing);
        let mut next = existing.clone();
        match expected {
            None => assert_eq!(reconcile(&existing, &wanted()), Reconciled::Keep),
            Some(expected) => {
                expected(&mut next);
                assert_eq!(reconcile(&existing, &wanted()), Reconciled::Update(next));
            }
        }
    }

    #[test]
    fn what_is_complete_is_kept_with_all_that_was_added() {
        check(|_| {}, None);
        check(|role| role["metadata"]["labels"]["own"] = json!("x"), None);
        check(|role| role["metadata"]["labels"]["l"] = json!("other"), None);
        check(
            |role| {
                role["rules"] = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
            },
            None,
        );
    }

    #[test]
    fn what_is_missing_comes_back() {
        check(
            |role| role["rules"] = json!([wanted()["rules"][0]]),
            Some(|role| role["rules"] = wanted()["rules"].clone()),
        );
        check(
            |role| role["rules"] = Value::Null,
            Some(|role| role["rules"] = wanted()["rules"].clone()),
        );
        check(
            |role| role["metadata"]["labels"] = Value::Null,
            Some(|role| role["metadata"]["labels"] = json!({"l": "1"})),
        );
    }

    #[test]
    fn who_opts_out_is_left_alone() {
        check(
            |role| {
                role["rules"] = json!([]);
                role["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
            },
            None,
        );
    }

    #[test]
    fn a_binding_gets_its_subjects_back_and_is_made_anew_for_another_role() {
        let wanted = json!({"metadata": {}, "roleRef": {"name": "r"}, "subjects": [1]});
        let existing = json!({"metadata": {}, "roleRef": {"name": "r"}, "subjects": [2]});
        let both = json!({"metadata": {}, "roleRef": {"name": "r"}, "subjects": [2, 1]});
        assert_eq!(reconcile(&existing, &wanted), Reconciled::Update(both));
        let other = json!({"metadata": {}, "roleRef": {"name": "s"}, "subjects": [1]});
        assert_eq!(reconcile(&other, &wanted), Reconciled::Recreate(wanted));
    }

    #[test]
    fn an_aggregated_role_gets_its_selectors_back_and_no_rules() {
        let wanted = json!({"metadata": {}, "rules": [],
            "aggregationRule": {"clusterRoleSelectors": [1]}});
        let existing = json!({"metadata": {}, "rules": [7]});
        let next = json!({"metadata": {}, "rules": [7],
            "aggregationRule": {"clusterRoleSelectors": [1]}});
        assert_eq!(reconcile(&existing, &wanted), Reconciled::Update(next));
    }
}
