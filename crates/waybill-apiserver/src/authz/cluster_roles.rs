//! The cluster roles and what they come to once aggregated.
//!
//! The rules of an aggregated role are those of the roles that its selectors find, which may be
//! aggregated in turn; what its own `rules` field holds is a copy for readers and grants nothing.
//! Kubernetes has a controller that writes the copy; here it is computed at each change.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use super::{objects::ClusterRole, rule::PolicyRule};

/// All cluster roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterRoles {
    /// Ordered, since aggregation gives the rules in the order of the roles' names.
    roles: BTreeMap<String, ClusterRole>,
    effective: HashMap<String, Arc<[PolicyRule]>>,
}

impl ClusterRoles {
    /// Adds `role`, or puts it in the place of the one of its name. Aggregated roles show the change
    /// after [`ClusterRoles::refresh`].
    pub(super) fn put(&mut self, role: ClusterRole) {
        let name = role.metadata.name.clone();
        self.effective.insert(name.clone(), Arc::from(role.rules.as_slice()));
        self.roles.insert(name, role);
    }

    /// Removes the role `name`. Aggregated roles show the change after [`ClusterRoles::refresh`].
    pub(super) fn remove(&mut self, name: &str) {
        self.roles.remove(name);
        self.effective.remove(name);
    }

    /// Computes the rules of every aggregated role.
    pub(super) fn refresh(&mut self) {
        for (name, role) in &self.roles {
            if role.is_aggregated() {
                let mut gathered = Gathered::default();
                gathered.seen.insert(name);
                gathered.add_selected(&self.roles, role);
                self.effective.insert(name.clone(), gathered.rules.into());
            }
        }
    }

    /// The rules of the role `name`.
    pub(super) fn rules(&self, name: &str) -> Option<&Arc<[PolicyRule]>> {
        self.effective.get(name)
    }

    /// The rules of the role `name`, if it is aggregated.
    pub(super) fn aggregated_rules(&self, name: &str) -> Option<&Arc<[PolicyRule]>> {
        self.roles.get(name).filter(|role| role.is_aggregated()).and_then(|_| self.rules(name))
    }
}

/// The rules found so far, each once, and the roles that gave them.
#[derive(Default)]
struct Gathered<'a> {
    rules: Vec<PolicyRule>,
    known: HashSet<&'a PolicyRule>,
    /// Roles may select each other in circles.
    seen: HashSet<&'a str>,
}

impl<'a> Gathered<'a> {
    fn add_selected(&mut self, roles: &'a BTreeMap<String, ClusterRole>, role: &ClusterRole) {
        for selector in role.aggregation_rule.cluster_role_selectors.iter().flatten() {
            for (name, selected) in roles {
                let label = |key: &str| selected.metadata.labels.get(key).map(String::as_str);
                if !selector.matches(label) || !self.seen.insert(name) {
                    continue;
                }
                if selected.is_aggregated() {
                    self.add_selected(roles, selected);
                } else {
                    self.add_rules(&selected.rules);
                }
            }
        }
    }

    fn add_rules(&mut self, rules: &'a [PolicyRule]) {
        for rule in rules {
            if self.known.insert(rule) {
                self.rules.push(rule.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn role(name: &str, label: &str, verbs: &[&str]) -> ClusterRole {
        let rules: Vec<_> =
            verbs.iter().map(|verb| PolicyRule::resources(&[""], &["pods"], &[verb])).collect();
        let object = json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": rules});
        serde_json::from_value(object).unwrap()
    }

    fn aggregated(name: &str, label: &str, selects: &[&str]) -> ClusterRole {
        let selectors: Vec<Value> =
            selects.iter().map(|to| json!({"matchLabels": {"to": to}})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"to": label}},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            "aggregationRule": {"clusterRoleSelectors": selectors},
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(roles: &ClusterRoles, name: &str, verbs: &[&str]) {
        let rules = roles.aggregated_rules(name).unwrap();
        let found: Vec<_> = rules.iter().flat_map(|rule| &rule.verbs).collect();
        assert_eq!(found, verbs);
    }

    fn roles(list: impl IntoIterator<Item = ClusterRole>) -> ClusterRoles {
        let mut roles = ClusterRoles::default();
        list.into_iter().for_each(|role| roles.put(role));
        roles.refresh();
        roles
    }

    #[test]
    fn the_rules_are_the_union_by_name_each_once_and_never_the_roles_own() {
        let roles = roles([
            aggregated("all", "", &["x", "y"]),
            role("b", "x", &["get", "list"]),
            role("a", "x", &["list"]),
            role("c", "y", &["watch"]),
            role("d", "z", &["delete"]),
        ]);
        check(&roles, "all", &["list", "get", "watch"]);
        assert_eq!(roles.aggregated_rules("a"), None);
        assert_eq!(roles.aggregated_rules("missing"), None);
    }

    /// Null reads as empty, and an empty selector selects everything, as upstream.
    #[test]
    fn a_selector_that_cannot_be_understood_selects_nothing() {
        for (selector, verbs) in [
            (json!({}), &["get"] as &[&str]),
            (json!({"matchLabels": null, "matchExpressions": null}), &["get"]),
            (json!({"matchExpressions": [{"key": "to", "operator": "Exists"}]}), &["get"]),
            (json!({"matchExpressions": [{"key": "to", "operator": "Gt", "values": ["0"]}]}), &[]),
            (json!({"matchExpressions": [{"key": "to", "operator": "In", "values": []}]}), &[]),
            (json!({"matchLabels": {"to": 5}}), &[]),
            (json!("to"), &[]),
            (json!(null), &[]),
        ] {
            let mut all = aggregated("all", "", &[]);
            all.aggregation_rule = serde_json::from_value(json!({
                "clusterRoleSelectors": [selector]}))
            .unwrap();
            check(&roles([all, role("a", "x", &["get"])]), "all", verbs);
        }
    }

    #[test]
    fn aggregation_nests_and_ends_in_circles() {
        let roles = roles([
            aggregated("one", "b", &["a"]),
            aggregated("two", "a", &["b", "c"]),
            role("leaf-a", "a", &["get"]),
            role("leaf-c", "c", &["list"]),
        ]);
        check(&roles, "one", &["get", "list"]);
        check(&roles, "two", &["get", "list"]);
    }

    #[test]
    fn a_role_that_comes_goes_or_changes_shows_after_refresh() {
        let mut roles = roles([aggregated("all", "", &["x"])]);
        check(&roles, "all", &[]);
        roles.put(role("a", "x", &["get"]));
        roles.refresh();
        check(&roles, "all", &["get"]);
        roles.put(role("a", "x", &["list"]));
        roles.refresh();
        check(&roles, "all", &["list"]);
        roles.put(role("a", "other", &["list"]));
        roles.refresh();
        check(&roles, "all", &[]);
        roles.put(role("a", "x", &["get"]));
        roles.remove("a");
        roles.refresh();
        check(&roles, "all", &[]);
    }
}
