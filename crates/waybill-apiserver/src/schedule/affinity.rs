//! Which nodes a pod wants: its node selector and its required node affinity.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `spec.affinity`, as far as it can forbid a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Affinity {
    node_affinity: NodeAffinity,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// Terms of which one must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    node_selector_terms: Vec<Term>,
}

/// Expressions which all must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_expressions: Vec<Expression>,
    match_fields: Vec<Expression>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Affinity {
    /// Whether a node of this name and with these labels is allowed.
    pub(super) fn allows(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let required = &self.node_affinity.required_during_scheduling_ignored_during_execution;
        required.as_ref().is_none_or(|selector| {
            selector.node_selector_terms.iter().any(|term| term.matches(name, labels))
        })
    }
}

impl Term {
    /// A term without expressions matches nothing.
    fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let field = |key: &str| (key == "metadata.name").then_some(name);
        let label = |key: &str| labels.get(key).map(String::as_str);
        !(self.match_expressions.is_empty() && self.match_fields.is_empty())
            && self.match_expressions.iter().all(|one| one.matches(label(&one.key)))
            && self.match_fields.iter().all(|one| one.matches(field(&one.key)))
    }
}

impl Expression {
    fn matches(&self, found: Option<&str>) -> bool {
        let listed = || self.values.iter().any(|value| Some(value.as_str()) == found);
        match self.operator.as_str() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            "Gt" => self.numbers(found).is_some_and(|(found, bound)| found > bound),
            "Lt" => self.numbers(found).is_some_and(|(found, bound)| found < bound),
            _ => false,
        }
    }

    fn numbers(&self, found: Option<&str>) -> Option<(i64, i64)> {
        let [bound] = self.values.as_slice() else {
            return None;
        };
        Some((found?.parse().ok()?, bound.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Whether a node `n1` with the labels `zone=a` and `cores=8` is allowed by `terms`.
    #[track_caller]
    fn check(terms: &Value, expected: bool) {
        let required = json!({"nodeSelectorTerms": terms});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let affinity: Affinity = serde_json::from_value(affinity).unwrap();
        let labels = [("zone", "a"), ("cores", "8")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(affinity.allows("n1", &labels.into()), expected, "{terms}");
    }

    #[track_caller]
    fn check_expression(key: &str, operator: &str, values: &[&str], expected: bool) {
        let expression = json!({"key": key, "operator": operator, "values": values});
        check(&json!([{"matchExpressions": [expression]}]), expected);
    }

    #[test]
    fn every_operator_is_known() {
        check_expression("zone", "In", &["a", "b"], true);
        check_expression("zone", "In", &["b"], false);
        check_expression("rack", "In", &[""], false);
        check_expression("zone", "NotIn", &["a"], false);
        check_expression("rack", "NotIn", &["a"], true);
        check_expression("zone", "Exists", &[], true);
        check_expression("rack", "Exists", &[], false);
        check_expression("rack", "DoesNotExist", &[], true);
        check_expression("zone", "DoesNotExist", &[], false);
        check_expression("cores", "Gt", &["7"], true);
        check_expression("cores", "Gt", &["8"], false);
        check_expression("cores", "Lt", &["9"], true);
        check_expression("zone", "Lt", &["9"], false);
        check_expression("cores", "Gt", &["7", "6"], false);
        check_expression("zone", "Like", &["a"], false);
    }

    #[test]
    fn one_term_must_match_with_all_its_parts() {
        let zone = |zone: &str| json!({"key": "zone", "operator": "In", "values": [zone]});
        let name = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        check(&json!([{"matchExpressions": [zone("b")]}, {"matchExpressions": [zone("a")]}]), true);
        check(&json!([{"matchExpressions": [zone("a"), zone("b")]}]), false);
        check(&json!([{"matchFields": [name("n1")]}]), true);
        check(&json!([{"matchFields": [name("n2")], "matchExpressions": [zone("a")]}]), false);
        check(&json!([{}]), false);
        check(&json!([]), false);
    }

    #[test]
    fn a_pod_without_affinity_goes_anywhere() {
        let preferred =
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}});
        for affinity in [json!({}), preferred] {
            let affinity: Affinity = serde_json::from_value(affinity).unwrap();
            assert!(affinity.allows("n1", &BTreeMap::new()));
        }
    }
}
