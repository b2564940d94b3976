//! Statuses on their way to the API server.

use std::sync::{
    Mutex as StdMutex,
    atomic::{AtomicU32, Ordering},
};

use serde_json::json;

use super::*;
use crate::fake_api::{Call, FakeApi, Reply};

const STATUS: &str = "PATCH /api/v1/namespaces/ns/pods/p/status";

fn pod(version: &str, status: &Value) -> Arc<Pod> {
    let object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": version},
        "spec": {"containers": [{"name": "a"}]},
        "status": status,
    });
    Arc::new(Pod::from_value(object, PodOrigin::ApiServer).unwrap())
}

fn fresh() -> Arc<Pod> {
    pod("1", &json!({}))
}

fn phase(phase: &str) -> PodStatus {
    PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() }
}

fn writer(api: &FakeApi) -> Writer {
    Writer::new(Some(api.client.clone()), &api.tasks, &api.stop)
}

/// Takes everything, as version 5.
fn take(call: &Call) -> Reply {
    let mut object = call.body.clone();
    object["metadata"] =
        json!({"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "5"});
    Reply::ok(object)
}

#[tokio::test]
async fn a_status_is_patched_into_the_pod_that_is_meant() {
    let mut api = FakeApi::start(take).await;
    writer(&api).set(fresh(), phase("Running"));
    let call = api.next().await;
    assert_eq!(call.line(), STATUS);
    assert_eq!(call.content_type, "application/strategic-merge-patch+json");
    assert_eq!(call.body["metadata"], json!({"uid": "u"}));
    assert_eq!(call.body["status"]["phase"], "Running");
}

#[tokio::test]
async fn what_the_api_server_has_is_not_sent() {
    let mut api = FakeApi::start(take).await;
    let writer = writer(&api);
    writer.set(pod("1", &json!({"phase": "Running"})), phase("Running"));
    writer.set(fresh(), phase("Pending"));
    assert_eq!(api.next().await.body["status"]["phase"], "Pending");
    writer.flush().await;
    // Neither what it got from us, even if the object is an older one.
    writer.set(fresh(), phase("Pending"));
    writer.flush().await;
    assert!(api.seen().is_none());
}

#[tokio::test]
async fn what_somebody_else_changed_is_set_right() {
    let mut api = FakeApi::start(take).await;
    let writer = writer(&api);
    writer.set(fresh(), phase("Running"));
    writer.flush().await;
    api.next().await;
    writer.set(pod("6", &json!({"phase": "Failed"})), phase("Running"));
    assert_eq!(api.next().await.body["status"]["phase"], "Running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_newest_status_is_sent() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = StdMutex::new(gate);
    let arrived = Arc::new(Notify::new());
    let first = Arc::clone(&arrived);
    let mut api = FakeApi::start(move |call| {
        if call.body["status"]["phase"] == "A" {
            first.notify_one();
            gate.lock().unwrap().recv().unwrap();
        }
        take(call)
    })
    .await;
    let writer = writer(&api);
    writer.set(fresh(), phase("A"));
    arrived.notified().await;
    for name in ["B", "C", "D"] {
        writer.set(fresh(), phase(name));
    }
    go.send(()).unwrap();
    writer.flush().await;
    let mut sent = Vec::new();
    while let Some(call) = api.seen() {
        sent.push(call.body["status"]["phase"].as_str().unwrap().to_owned());
    }
    assert_eq!(sent, ["A", "D"]);
}

#[tokio::test]
async fn what_fails_is_tried_again() {
    let tries = AtomicU32::new(0);
    let mut api = FakeApi::start(move |call| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Cut,
        1 => Reply::refuse(500, "InternalError"),
        2 => Reply::refuse(429, "TooManyRequests"),
        _ => take(call),
    })
    .await;
    let writer = writer(&api);
    writer.set(fresh(), phase("Running"));
    for _ in 0..4 {
        assert_eq!(api.next().await.body["status"]["phase"], "Running");
    }
    writer.flush().await;
}

#[tokio::test]
async fn a_status_that_may_have_arrived_is_not_taken_back_silently() {
    let tries = AtomicU32::new(0);
    // The answer to B is lost, though B may be there.
    let mut api = FakeApi::start(move |call| match tries.fetch_add(1, Ordering::Relaxed) {
        1 => Reply::Cut,
        _ => take(call),
    })
    .await;
    let writer = writer(&api);
    writer.set(fresh(), phase("A"));
    writer.flush().await;
    writer.set(fresh(), phase("B"));
    assert_eq!(api.next().await.body["status"]["phase"], "A");
    assert_eq!(api.next().await.body["status"]["phase"], "B");
    writer.set(fresh(), phase("A"));
    writer.flush().await;
    let mut last = None;
    while let Some(call) = api.seen() {
        last = call.body["status"]["phase"].as_str().map(str::to_owned);
    }
    assert_eq!(last.as_deref(), Some("A"));
}

#[tokio::test]
async fn a_pod_that_is_gone_is_left_alone() {
    let mut api = FakeApi::start(|_| Reply::refuse(404, "NotFound")).await;
    let writer = writer(&api);
    writer.set(fresh(), phase("Running"));
    writer.flush().await;
    assert_eq!(api.next().await.line(), STATUS);
    assert!(api.seen().is_none());
    assert!(writer.shared.as_ref().unwrap().lock().is_empty());
}

#[tokio::test]
async fn another_pod_of_that_name_is_left_alone() {
    let mut api = FakeApi::start(|call| match call.method {
        http::Method::PATCH => Reply::refuse(409, "Conflict"),
        _ => Reply::ok(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "p", "namespace": "ns", "uid": "other"},
        })),
    })
    .await;
    let writer = writer(&api);
    writer.set(fresh(), phase("Running"));
    writer.flush().await;
    assert_eq!(api.next().await.line(), STATUS);
    assert_eq!(api.next().await.line(), "GET /api/v1/namespaces/ns/pods/p");
    assert!(api.seen().is_none());
}

#[tokio::test]
async fn a_conflict_with_the_same_pod_is_tried_again() {
    let tries = AtomicU32::new(0);
    let api = FakeApi::start(move |call| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::refuse(409, "Conflict"),
        _ => take(call),
    })
    .await;
    let writer = writer(&api);
    writer.set(fresh(), phase("Running"));
    writer.flush().await;
    let standing = &writer.shared.as_ref().unwrap().lock()[fresh().uid()].standing;
    assert!(matches!(standing, Standing::Written { .. }));
}

#[tokio::test]
async fn what_is_invalid_is_not_sent_twice() {
    let mut api = FakeApi::start(|_| Reply::refuse(422, "Invalid")).await;
    let writer = writer(&api);
    for name in ["A", "A", "B"] {
        writer.set(fresh(), phase(name));
        writer.flush().await;
    }
    assert_eq!(api.next().await.body["status"]["phase"], "A");
    assert_eq!(api.next().await.body["status"]["phase"], "B");
}

#[tokio::test]
async fn the_last_status_goes_before_the_deletion() {
    let mut api = FakeApi::start(take).await;
    let writer = writer(&api);
    writer.set(fresh(), phase("Succeeded"));
    writer.delete(fresh());
    writer.flush().await;
    assert_eq!(api.next().await.body["status"]["phase"], "Succeeded");
    let call = api.next().await;
    assert_eq!(call.line(), "DELETE /api/v1/namespaces/ns/pods/p");
    assert_eq!(call.body["gracePeriodSeconds"], 0);
    assert_eq!(call.body["preconditions"]["uid"], "u");
    assert!(writer.shared.as_ref().unwrap().lock().is_empty());
}

#[tokio::test]
async fn a_forgotten_pod_is_not_written() {
    let mut api = FakeApi::start(|_| Reply::refuse(500, "InternalError")).await;
    let writer = writer(&api);
    writer.set(fresh(), phase("Running"));
    api.next().await;
    writer.forget(fresh().uid());
    writer.flush().await;
    assert!(writer.shared.as_ref().unwrap().lock().is_empty());
}

#[tokio::test]
async fn a_mirror_gets_the_status_of_its_pod_when_it_is_made() {
    let tries = AtomicU32::new(0);
    let mut api = FakeApi::start(move |call| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::refuse(404, "NotFound"),
        _ => take(call),
    })
    .await;
    let object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "hash"},
        "spec": {"containers": [{"name": "a"}]},
    });
    let pod = Arc::new(Pod::from_value(object, PodOrigin::File).unwrap());
    let writer = writer(&api);
    writer.set(Arc::clone(&pod), phase("Running"));
    writer.flush().await;
    writer.mirror_made(pod.uid());
    writer.flush().await;
    for _ in 0..2 {
        let call = api.next().await;
        assert_eq!(call.body["status"]["phase"], "Running");
        assert!(call.body.get("metadata").is_none(), "a mirror has a uid of its own");
    }
}

#[tokio::test]
async fn without_a_cluster_nothing_happens() {
    let writer = Writer::new(None, &TaskTracker::new(), &CancellationToken::new());
    writer.set(fresh(), phase("Running"));
    writer.delete(fresh());
    writer.flush().await;
}
