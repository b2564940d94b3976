//! When a container that ended starts again: its own policy, and rules for exit codes (KEP-5307).

use waybill_api::field::{ErrorList, FieldError};

use super::spec::{check_choice, check_optional_choice};
use crate::kinds::document::Field;

/// `restartPolicy` and `restartPolicyRules` of a container.
pub(super) fn check_restarts(container: Field<'_, '_>, errors: &mut ErrorList) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if !policy.is_set() && !rules.is_empty() {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    check_optional_choice(policy, &["Always", "Never", "OnFailure"], errors);
    if rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(rules.path(), rules.len(), MOST_RULES));
    }
    for rule in rules.items() {
        let (action, codes) = (rule.get("action"), rule.get("exitCodes"));
        if action.text() != RESTART {
            // No node of ours can do the other action that upstream knows.
            errors.push(action.not_supported(&[RESTART]));
        }
        if !codes.is_set() {
            errors.push(codes.required("must be specified"));
            continue;
        }
        check_choice(codes.get("operator"), &["In", "NotIn"], errors);
        let values = codes.get("values");
        if values.len() > MOST_CODES {
            errors.push(FieldError::too_many(values.path(), values.len(), MOST_CODES));
        }
    }
}

/// Whether `container` may start again once it has ended with `code`, in a pod of this policy.
pub(super) fn restarts_after(container: Field<'_, '_>, pod_policy: &str, code: i64) -> bool {
    let own = container.get("restartPolicy");
    let rules = container.get("restartPolicyRules");
    if own.is_set() && rules.items().any(|rule| fits(rule.get("exitCodes"), code)) {
        return true;
    }
    match if own.is_set() { own.text() } else { pod_policy } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

const RESTART: &str = "Restart";
const MOST_RULES: usize = 20;
const MOST_CODES: usize = 255;

fn fits(codes: Field<'_, '_>, code: i64) -> bool {
    let values = codes.get("values");
    let named = values.items().any(|value| value.number() == Some(code));
    match codes.get("operator").text() {
        "In" => named,
        "NotIn" => !named,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{check_container, check_spec};

    fn rule(action: &str, operator: &str) -> Value {
        json!({"action": action, "exitCodes": {"operator": operator, "values": [42]}})
    }

    #[test]
    fn containers_have_policies_and_rules_of_their_own() {
        for policy in ["Always", "Never", "OnFailure"] {
            check_container(&json!({"restartPolicy": policy}), &[]);
            let rules = json!([rule("Restart", "In"), rule("Restart", "NotIn")]);
            check_container(&json!({"restartPolicy": policy, "restartPolicyRules": rules}), &[]);
        }
        let init = json!({"name": "i", "image": "i", "restartPolicy": "Never",
            "restartPolicyRules": [rule("Restart", "In")]});
        check_spec(&json!({"initContainers": [init]}), &[]);
    }

    #[test]
    fn rules_need_a_policy_and_do_what_is_known() {
        let at = "spec.containers[0]";
        check_container(
            &json!({"restartPolicyRules": [rule("RestartAllContainers", "Equals"),
                {"action": "Restart"}]}),
            &[
                &format!(
                    "{at}.restartPolicy: Required value: must specify restartPolicy when restart"
                ),
                &format!(
                    "{at}.restartPolicyRules[0].action: Unsupported value: \
                     \"RestartAllContainers\": supported values: \"Restart\""
                ),
                &format!(
                    "{at}.restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Equals\": \
                     supported values: \"In\", \"NotIn\""
                ),
                &format!("{at}.restartPolicyRules[1].exitCodes: Required value: must be specified"),
            ],
        );
    }
}
