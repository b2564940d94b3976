//! What a start does to roles and bindings that are already there.
//!
//! What is missing comes back, what was added stays, and whoever sets the annotation
//! `rbac.authorization.kubernetes.io/autoupdate` to `false` is left alone. As the hook
//! `rbac/bootstrap-roles` of Kubernetes.

use std::slice;

use serde::Deserialize;
use serde_json::{Map, Value};

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
    let annotations = at(existing, &["metadata", "annotations"]);
    if annotations.and_then(|map| map.get(AUTO_UPDATE)?.as_str()) == Some("false") {
        return Reconciled::Keep;
    }
    if existing.get("roleRef") != wanted.get("roleRef") {
        return Reconciled::Recreate(wanted.clone());
    }
    let mut next = existing.clone();
    add_entries(&mut next, &["metadata", "labels"], wanted);
    add_entries(&mut next, &["metadata", "annotations"], wanted);
    add_items(&mut next, &["subjects"], wanted, <[Value]>::contains);
    add_items(&mut next, &["aggregationRule", "clusterRoleSelectors"], wanted, <[Value]>::contains);
    // An aggregated role is wanted without rules, since those are computed.
    add_items(&mut next, &["rules"], wanted, |rules, rule| {
        covers(&rules_of(rules), &rules_of(slice::from_ref(rule)))
    });
    if next == *existing { Reconciled::Keep } else { Reconciled::Update(next) }
}

/// Adds the entries of the map at `path` whose keys are not there.
fn add_entries(object: &mut Value, path: &[&str], wanted: &Value) {
    for (key, value) in at(wanted, path).and_then(Value::as_object).into_iter().flatten() {
        fields_mut(place(object, path)).entry(key).or_insert_with(|| value.clone());
    }
}

/// Adds the items of the list at `path` that are not `known` among those there.
fn add_items(
    object: &mut Value,
    path: &[&str],
    wanted: &Value,
    known: impl Fn(&[Value], &Value) -> bool,
) {
    for item in at(wanted, path).and_then(Value::as_array).into_iter().flatten() {
        let mut items = at(object, path).and_then(Value::as_array).cloned().unwrap_or_default();
        if !known(&items, item) {
            items.push(item.clone());
            *place(object, path) = Value::Array(items);
        }
    }
}

/// Rules that cannot be read grant nothing, so they cover nothing.
fn rules_of(rules: &[Value]) -> Vec<PolicyRule> {
    rules.iter().filter_map(|rule| PolicyRule::deserialize(rule).ok()).collect()
}

fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, field| value.get(field))
}

/// The value at `path`, null if there was none.
fn place<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(object, |value, field| fields_mut(value).entry(*field).or_insert(Value::Null))
}

/// The fields of `value`, which becomes an object if it was none.
fn fields_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object if it was none")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
