//! What a configuration means, and when its webhook is called.

#![expect(
    clippy::needless_pass_by_value,
    reason = "literals of JSON read better without references"
)]

use serde_json::json;

use super::*;
use crate::fixtures::{World, pod_request};

fn webhook(change: Json) -> Webhook {
    let mut written = json!({
        "name": "pods.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        "admissionReviewVersions": ["v2", "v1"],
        "sideEffects": "None",
    });
    for (key, value) in change.as_object().unwrap() {
        written[key] = value.clone();
    }
    let document = json!({"metadata": {"name": "conf"}, "webhooks": [written]});
    Webhook::load_all(&document).unwrap().pop().unwrap()
}

#[test]
fn what_is_not_said_has_upstreams_defaults() {
    let webhook = webhook(json!({}));
    assert_eq!(webhook.timeout(), Duration::from_secs(10));
    assert_eq!(webhook.failure_policy(), FailurePolicy::Fail);
    assert_eq!(webhook.version(), Some(ReviewVersion::V1));
    assert!(webhook.supports_dry_run() && !webhook.is_reinvoked());
    assert_eq!((webhook.configuration(), webhook.name()), ("conf", "pods.example.com"));
}

#[test]
fn services_have_a_port_and_a_path() {
    let service = |service: Json| webhook(json!({"clientConfig": {"service": service}})).place;
    let place = |port, path: &str| Place::Service {
        namespace: "n".to_owned(),
        name: "s".to_owned(),
        port,
        path: path.to_owned(),
    };
    assert_eq!(service(json!({"namespace": "n", "name": "s"})), place(443, "/"));
    assert_eq!(
        service(json!({"namespace": "n", "name": "s", "port": 8443, "path": "/x"})),
        place(8443, "/x")
    );
}

#[test]
fn conditions_decide_whether_it_is_called() {
    let pod = json!({"metadata": {"labels": {"a": "b"}}});
    let called = |change: Json| {
        webhook(change).called(&pod_request(&pod), &mut None, &World::default()).unwrap()
    };
    let condition = |expression: &str| json!([{"name": "c", "expression": expression}]);
    assert_eq!(called(json!({})), Called::Yes);
    assert_eq!(called(json!({"objectSelector": {"matchLabels": {"a": "c"}}})), Called::No);
    assert_eq!(called(json!({"matchConditions": condition("request.name == 'web'")})), Called::Yes);
    assert_eq!(called(json!({"matchConditions": condition("request.name != 'web'")})), Called::No);
    let unclear = condition("object.missing == 1");
    assert!(
        matches!(called(json!({ "matchConditions": unclear })), Called::Refused(why) if why.contains("no such key"))
    );
    let ignored = json!({"matchConditions": unclear, "failurePolicy": "Ignore"});
    assert_eq!(called(ignored), Called::No);
}
