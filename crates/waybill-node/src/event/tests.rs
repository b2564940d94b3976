//! Events as the API server gets them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    fake_api::{Call, FakeApi, Reply},
    pod::PodOrigin,
};

fn pod() -> Pod {
    let object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "containers": [{"name": "a"}],
            "initContainers": [{"name": "i"}],
            "ephemeralContainers": [{"name": "e"}],
        },
    });
    Pod::from_value(object, PodOrigin::ApiServer).unwrap()
}

fn recorder(api: &FakeApi) -> Recorder {
    let clock: Clock = Arc::new(|| Timestamp::from_second(60).unwrap());
    Recorder::start(Some(api.client.clone()), "n", clock, &api.tasks, &api.stop)
}

fn echo(call: &Call) -> Reply {
    Reply::Json(201, call.body.clone())
}

#[tokio::test]
async fn an_event_says_what_happened_to_whom() {
    let mut api = FakeApi::start(echo).await;
    recorder(&api).container(&pod(), "a", Kind::Warning, "Unhealthy", "why");
    let call = api.next().await;
    assert_eq!(call.line(), "POST /api/v1/namespaces/ns/events");
    let name = call.body["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("p."), "{name}");
    let expected = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": "ns"},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u",
            "resourceVersion": "7", "fieldPath": "spec.containers{a}",
        },
        "type": "Warning", "reason": "Unhealthy", "message": "why", "count": 1,
        "firstTimestamp": "1970-01-01T00:01:00Z", "lastTimestamp": "1970-01-01T00:01:00Z",
        "source": {"component": "kubelet", "host": "n"},
        "reportingComponent": "kubelet", "reportingInstance": "n",
    });
    assert_eq!(call.body, expected);
}

#[test]
fn containers_are_found_where_they_stand() {
    let path = |name: &str| field_path(&pod(), name);
    assert_eq!(path("i").as_deref(), Some("spec.initContainers{i}"));
    assert_eq!(path("e").as_deref(), Some("spec.ephemeralContainers{e}"));
    assert_eq!(path("none"), None);
}

#[tokio::test]
async fn a_repeat_is_counted() {
    let mut api = FakeApi::start(echo).await;
    let recorder = recorder(&api);
    for _ in 0..2 {
        recorder.pod(&pod(), Kind::Normal, "Pulled", "m");
    }
    let name = api.next().await.body["metadata"]["name"].clone();
    let call = api.next().await;
    let path = format!("PATCH /api/v1/namespaces/ns/events/{}", name.as_str().unwrap());
    assert_eq!(call.line(), path);
    assert_eq!(call.content_type, "application/merge-patch+json");
    assert_eq!(call.body["count"], 2);
}

#[tokio::test]
async fn a_repeat_of_an_expired_event_is_a_new_one() {
    let mut api = FakeApi::start(|call| match call.method {
        http::Method::PATCH => Reply::refuse(404, "NotFound"),
        _ => echo(call),
    })
    .await;
    let recorder = recorder(&api);
    for _ in 0..2 {
        recorder.pod(&pod(), Kind::Normal, "Pulled", "m");
    }
    let lines = [api.next().await, api.next().await, api.next().await];
    let methods: Vec<_> = lines.iter().map(|call| call.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
    assert_eq!(lines[2].body["count"], 1);
}

#[tokio::test]
async fn a_refused_event_does_not_hold_up_the_next() {
    let mut api = FakeApi::start(|call| match call.body["reason"].as_str() {
        Some("First") => Reply::refuse(403, "Forbidden"),
        _ => echo(call),
    })
    .await;
    let recorder = recorder(&api);
    recorder.pod(&pod(), Kind::Normal, "First", "m");
    recorder.pod(&pod(), Kind::Normal, "Second", "m");
    assert_eq!(api.next().await.body["reason"], "First");
    assert_eq!(api.next().await.body["reason"], "Second");
}

#[tokio::test]
async fn events_of_the_node_stand_in_the_default_namespace() {
    let mut api = FakeApi::start(echo).await;
    recorder(&api).node(Kind::Normal, "Starting", "m");
    let call = api.next().await;
    assert_eq!(call.line(), "POST /api/v1/namespaces/default/events");
    assert_eq!(call.body["involvedObject"], json!({"kind": "Node", "name": "n", "uid": "n"}));
}

#[test]
fn long_messages_are_cut_between_characters() {
    let long = "ü".repeat(1000);
    assert_eq!(cut(&long).len(), MESSAGE_BYTES);
    assert_eq!(cut("short"), "short");
    assert_eq!(Value::from(cut(&long)).as_str().unwrap().chars().count(), 512);
}
