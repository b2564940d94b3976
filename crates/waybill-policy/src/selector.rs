//! Label selectors of webhooks, policies and bindings.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;

/// Requirements on labels, all of which must hold; without any, everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with their values.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements with operators.
    #[serde(default)]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LabelRequirement {
    /// Its key.
    #[serde(default)]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(default)]
    pub operator: String,
    /// The values that `In` and `NotIn` speak of.
    #[serde(default)]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether an object with these labels matches; `Null` has none.
    pub fn matches(&self, labels: &Json) -> bool {
        let label = |key: &str| labels.get(key).and_then(Json::as_str);
        self.match_labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let found = label(&requirement.key);
                let among = found.is_some_and(|own| requirement.values.iter().any(|v| v == own));
                match requirement.operator.as_str() {
                    "In" => among,
                    "NotIn" => !among,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    // Validation lets no other in.
                    _ => false,
                }
            })
    }
}

/// The labels of an object.
pub(crate) fn labels(object: &Json) -> &Json {
    object.pointer("/metadata/labels").unwrap_or(&Json::Null)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "literals of JSON read better without references"
    )]
    fn check(selector: Json, labels: Json, expected: bool) {
        let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
        assert_eq!(parsed.matches(&labels), expected, "{selector} on {labels}");
    }

    #[test]
    fn selectors_match_as_in_kubernetes() {
        check(json!({}), Json::Null, true);
        check(json!({"matchLabels": {"a": "b"}}), json!({"a": "b", "c": "d"}), true);
        check(json!({"matchLabels": {"a": "b"}}), json!({"a": "c"}), false);
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        check(expression("In", &["x", "y"]), json!({"a": "y"}), true);
        check(expression("In", &["x"]), json!({}), false);
        check(expression("NotIn", &["x"]), json!({}), true);
        check(expression("NotIn", &["x"]), json!({"a": "x"}), false);
        check(expression("Exists", &[]), json!({"a": ""}), true);
        check(expression("DoesNotExist", &[]), json!({"a": ""}), false);
        check(expression("Other", &[]), json!({"a": ""}), false);
    }
}
