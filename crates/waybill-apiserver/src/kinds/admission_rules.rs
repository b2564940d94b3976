//! What webhooks and policies have in common: which writes they are about.

use serde_json::Value;

use super::document::fill_text;

/// Fills in the scope of the rules in the list `field` of `object`.
pub(super) fn default_rules(object: &mut Value, field: &str) {
    let rules = object.get_mut(field).and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        fill_text(rule, "scope", "*");
    }
}
