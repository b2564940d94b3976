//! Taints keep pods away; tolerations let them come all the same.

use serde::Deserialize;

/// One taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Taint {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) effect: String,
}

impl Taint {
    /// Whether it forbids, rather than discourages.
    pub(super) fn forbids(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }

    /// Whether it only discourages.
    pub(super) fn discourages(&self) -> bool {
        self.effect == "PreferNoSchedule"
    }
}

/// One toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Toleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

impl Toleration {
    /// Without an effect it is for all effects, and without a key for all keys.
    pub(super) fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(toleration: &Value, expected: bool) {
        let taint = Taint { key: "k".into(), value: "v".into(), effect: "NoSchedule".into() };
        let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
        assert_eq!(parsed.tolerates(&taint), expected, "{toleration}");
    }

    #[test]
    fn keys_values_and_effects_must_agree_or_be_absent() {
        check(&json!({"key": "k", "value": "v"}), true);
        check(
            &json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
            true,
        );
        check(&json!({"key": "k", "value": "w"}), false);
        check(&json!({"key": "k"}), false);
        check(&json!({"key": "k", "operator": "Exists"}), true);
        check(&json!({"key": "l", "operator": "Exists"}), false);
        check(&json!({"operator": "Exists"}), true);
        check(&json!({"operator": "Exists", "effect": "NoExecute"}), false);
        check(&json!({"key": "k", "operator": "Near", "value": "v"}), false);
    }
}
