//! Label selectors of aggregated roles.
//!
//! This is the structured form, `matchLabels` and `matchExpressions`; the text form of requests is
//! read elsewhere. A selector that cannot be understood selects nothing, so that it grants nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::objects::or_default;

/// `LabelSelector` of `meta/v1`; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelSelector {
    #[serde(deserialize_with = "or_default")]
    match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    match_expressions: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether `labels` satisfy every requirement.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

/// One entry of `matchExpressions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Requirement {
    #[serde(deserialize_with = "or_default")]
    key: String,
    #[serde(deserialize_with = "or_default")]
    operator: String,
    #[serde(deserialize_with = "or_default")]
    values: Vec<String>,
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let found = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => found.is_some_and(|value| self.values.contains(value)),
            "NotIn" => found.is_none_or(|value| !self.values.contains(value)),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(selector: Value, labels: &[(&str, &str)], matches: bool) {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        let labels =
            labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!(selector.matches(&labels), matches, "{selector:?} {labels:?}");
    }

    #[test]
    fn all_labels_must_match() {
        let selector = || json!({"matchLabels": {"a": "1", "b": "2"}});
        check(selector(), &[("a", "1"), ("b", "2"), ("c", "3")], true);
        check(selector(), &[("a", "1")], false);
        check(selector(), &[("a", "1"), ("b", "3")], false);
        check(json!({}), &[], true);
        check(json!({"matchLabels": null, "matchExpressions": null}), &[("a", "1")], true);
    }

    #[test]
    fn expressions_know_four_operators_and_unknown_ones_select_nothing() {
        for (operator, values, on_one, on_none) in [
            ("In", &["1", "2"] as &[&str], true, false),
            ("In", &["2"], false, false),
            ("NotIn", &["1"], false, true),
            ("NotIn", &["2"], true, true),
            ("Exists", &[], true, false),
            ("DoesNotExist", &[], false, true),
            ("Gt", &["0"], false, false),
            ("", &[], false, false),
        ] {
            let selector = json!({"matchExpressions": [
                {"key": "a", "operator": operator, "values": values}]});
            check(selector.clone(), &[("a", "1")], on_one);
            check(selector, &[], on_none);
        }
    }
}
