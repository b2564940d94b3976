//! A status as the strategic merge patch that brings it about.
//!
//! It names every field that is ours, so that it does not matter what the API server has, and no
//! condition that is not.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::condition::{OURS, PASSING};

/// The fields that a node writes.
const FIELDS: [&str; 13] = [
    "conditions",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "hostIP",
    "hostIPs",
    "initContainerStatuses",
    "message",
    "observedGeneration",
    "phase",
    "podIP",
    "podIPs",
    "reason",
    "startTime",
];

/// What the patch sets below `status`. Fields that are missing are set to null, which removes them.
pub(super) fn fields(status: impl Serialize) -> Result<Map<String, Value>, serde_json::Error> {
    let Value::Object(mut all) = serde_json::to_value(status)? else {
        return Ok(Map::new());
    };
    let mut fields = Map::new();
    for name in FIELDS {
        fields.insert(name.to_owned(), all.remove(name).unwrap_or(Value::Null));
    }
    // The class of a pod cannot be changed, only set where nobody did.
    fields.extend(all.remove_entry("qosClass"));
    if let Some(Value::Array(conditions)) = fields.get_mut("conditions") {
        let kind =
            |condition: &Value| condition.get("type").and_then(Value::as_str).map(str::to_owned);
        conditions.retain(|condition| kind(condition).is_some_and(|kind| OURS.contains(&&*kind)));
        conditions.iter_mut().for_each(name_all_fields);
        conditions.sort_by_key(kind);
    }
    Ok(fields)
}

/// The body of the request. With a uid the pod must be that one.
pub(super) fn body(mut fields: Map<String, Value>, uid: Option<&str>) -> Value {
    for list in ["hostIPs", "podIPs"] {
        if let Some(Value::Array(addresses)) = fields.get_mut(list) {
            // They are merged by address otherwise, and old ones would stay.
            addresses.push(json!({"$patch": "replace"}));
        }
    }
    if let Some(Value::Array(conditions)) = fields.get_mut("conditions") {
        let has = |kind: &str| {
            conditions.iter().any(|condition| condition.get("type").is_some_and(|it| it == kind))
        };
        let gone: Vec<_> = PASSING.into_iter().filter(|kind| !has(kind)).collect();
        conditions.extend(gone.into_iter().map(|kind| json!({"$patch": "delete", "type": kind})));
    }
    match uid {
        Some(uid) => json!({"metadata": {"uid": uid}, "status": fields}),
        None => json!({"status": fields}),
    }
}

/// Conditions are merged field by field, so an old message goes only if it is named.
fn name_all_fields(condition: &mut Value) {
    let Some(condition) = condition.as_object_mut() else { return };
    for name in ["lastProbeTime", "message", "reason"] {
        condition.entry(name).or_insert(Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;

    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_missing_is_removed() {
        let fields = fields(status(json!({"phase": "Running"}))).unwrap();
        assert_eq!(fields["phase"], "Running");
        assert_eq!(fields["reason"], Value::Null);
        assert!(fields.contains_key("reason"));
        assert!(!fields.contains_key("qosClass"));
    }

    #[test]
    fn conditions_of_others_are_not_touched() {
        let theirs = json!({"type": "example.com/gate", "status": "True"});
        let ours = json!({"type": "Ready", "status": "True"});
        let fields = fields(status(json!({"conditions": [theirs, ours]}))).unwrap();
        let named = json!({
            "type": "Ready", "status": "True", "lastProbeTime": null, "message": null, "reason": null,
        });
        assert_eq!(fields["conditions"], json!([named]));
    }

    #[test]
    fn conditions_that_pass_go_when_they_do_not_hold() {
        let pending = json!({"type": "PodResizePending", "status": "True"});
        let fields = fields(status(json!({"conditions": [pending]}))).unwrap();
        let conditions = body(fields, None)["status"]["conditions"].clone();
        assert_eq!(conditions[0]["status"], "True");
        assert_eq!(conditions[1], json!({"$patch": "delete", "type": "PodResizeInProgress"}));
        assert_eq!(conditions.as_array().unwrap().len(), 2);
    }

    #[test]
    fn addresses_are_replaced() {
        let fields = fields(status(json!({"podIPs": [{"ip": "10.0.0.1"}]}))).unwrap();
        let body = body(fields, Some("u"));
        assert_eq!(body["status"]["podIPs"], json!([{"ip": "10.0.0.1"}, {"$patch": "replace"}]));
        assert_eq!(body["metadata"], json!({"uid": "u"}));
    }
}
