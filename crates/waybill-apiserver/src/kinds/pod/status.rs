//! What a node may say about a pod, given what it said before.

use waybill_api::{
    field::{ErrorList, FieldError},
    names::subdomain_faults,
};

use super::restart;
use crate::kinds::document::{Field, text};

/// What is wrong with the change of the status from `old` to `new`.
pub(super) fn check_change(new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
    let (status, before, spec) = (new.get("status"), old.get("status"), old.get("spec"));
    let node = status.get("nominatedNodeName");
    if !node.is_empty() && node.value() != before.get("nominatedNodeName").value() {
        errors.extend(node.all_invalid(subdomain_faults(node.text())));
    }
    let class = status.get("qosClass");
    if class.text() != before.get("qosClass").text() {
        errors.push(class.invalid_text("field is immutable"));
    }
    let policy = spec.get("restartPolicy").text();
    for (list, containers, policy) in [
        ("containerStatuses", "containers", policy),
        ("initContainerStatuses", "initContainers", policy),
        // Nothing starts these again.
        ("ephemeralContainerStatuses", "ephemeralContainers", "Never"),
    ] {
        let containers = spec.get(containers);
        let restarts = |name: &str, code: i64| {
            let mut all = containers.items();
            let found = all.find(|container| container.get("name").text() == name);
            found.is_some_and(|container| restart::restarts_after(container, policy, code))
        };
        check_states(before.get(list), status.get(list), policy, restarts, errors);
    }
}

/// A container that ended for good stays so.
fn check_states(
    before: Field<'_, '_>,
    now: Field<'_, '_>,
    policy: &str,
    restarts: impl Fn(&str, i64) -> bool,
    errors: &mut ErrorList,
) {
    if policy == "Always" {
        return;
    }
    for (at, old) in before.items().enumerate() {
        let (name, state) = (old.get("name").text(), old.get("state"));
        let ended = state.get("terminated");
        let code = ended.get("exitCode").number().unwrap_or_default();
        if !ended.is_set() || (code != 0 && policy == "OnFailure") || restarts(name, code) {
            continue;
        }
        let runs = |new: &Field<'_, '_>| {
            text(new.value(), "name") == name && !new.get("state").get("terminated").is_set()
        };
        if now.items().any(|new| runs(&new)) {
            let path = now.path().index(at).child("state");
            let detail = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::check_errors;

    fn pod(policy: &str, list: &str, state: &Value) -> Value {
        json!({
            "spec": {"restartPolicy": policy, "containers": [{"name": "c"}], "initContainers": [
                {"name": "sidecar", "restartPolicy": "Always"}]},
            "status": {"qosClass": "BestEffort", list: [{"name": "c", "state": state}]},
        })
    }

    #[track_caller]
    fn check(policy: &str, list: &str, code: i64, expected: &[&str]) {
        let old = pod(policy, list, &json!({"terminated": {"exitCode": code}}));
        let new = pod(policy, list, &json!({"running": {}}));
        let mut errors = ErrorList::new();
        check_change(Field::root(&new), Field::root(&old), &mut errors);
        check_errors(&errors, expected);
    }

    #[test]
    fn a_container_that_ended_for_good_stays_so() {
        let refused = "status.containerStatuses[0].state: Forbidden: may not be transitioned to";
        check("Always", "containerStatuses", 0, &[]);
        check("OnFailure", "containerStatuses", 1, &[]);
        check("OnFailure", "containerStatuses", 0, &[refused]);
        check("Never", "containerStatuses", 1, &[refused]);
        check("Never", "containerStatuses", 42, &[refused]);
        let refused = "status.ephemeralContainerStatuses[0].state: Forbidden: may not be";
        check("Always", "ephemeralContainerStatuses", 1, &[refused]);
    }

    #[test]
    fn a_container_that_a_rule_restarts_may_run_again() {
        let state = |code: i64, state: &Value| {
            let mut pod = pod("Never", "containerStatuses", state);
            let codes = json!({"operator": "In", "values": [code]});
            pod["spec"]["containers"] = json!([{"name": "c", "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": codes}]}]);
            pod
        };
        let check = |code: i64, expected: &[&str]| {
            let old = state(42, &json!({"terminated": {"exitCode": code}}));
            let mut errors = ErrorList::new();
            let new = state(42, &json!({"running": {}}));
            check_change(Field::root(&new), Field::root(&old), &mut errors);
            check_errors(&errors, expected);
        };
        check(42, &[]);
        check(1, &["status.containerStatuses[0].state: Forbidden: may not be transitioned to"]);
    }
}
