//! Pods from all sources.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::fake_api::{Call, FakeApi, Reply};

fn pod(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "resourceVersion": version, "managedFields": [{"manager": "m"}],
        },
        "spec": {"nodeName": "n", "containers": [{"name": "a"}]},
    })
}

fn list(pods: &[Value]) -> Reply {
    Reply::ok(json!({
        "apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods,
    }))
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

/// Answers of lists and watches, in their order; others are accepted.
struct Script {
    replies: Mutex<VecDeque<Reply>>,
}

impl Script {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self { replies: Mutex::new(replies.into_iter().collect()) }
    }

    fn answer(&self, call: &Call) -> Reply {
        if call.line() != "GET /api/v1/pods" {
            return Reply::Json(201, call.body.clone());
        }
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.pop_front().unwrap_or(Reply::Cut)
    }
}

async fn api(replies: impl IntoIterator<Item = Reply>) -> FakeApi {
    let script = Script::new(replies);
    FakeApi::start(move |call| script.answer(call)).await
}

fn watching(api: Option<&FakeApi>, files: Option<&Path>) -> mpsc::Receiver<Change> {
    let (tasks, stop) = match api {
        Some(api) => (api.tasks.clone(), api.stop.clone()),
        None => (TaskTracker::new(), CancellationToken::new()),
    };
    let client = api.map(|api| api.client.clone());
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let recorder = Recorder::start(client.clone(), "n", Arc::clone(&clock), &tasks, &stop);
    let writer = Writer::new(client.clone(), &tasks, &stop);
    let options = Options {
        node: "n".to_owned(),
        client,
        static_pods: files.map(Path::to_owned),
        gates: FeatureGates::all_on(),
        recorder,
        writer,
        clock,
    };
    start(options, &tasks, &stop)
}

/// `+name`, `-uid` or `synced`.
async fn next(changes: &mut mpsc::Receiver<Change>) -> String {
    match changes.recv().await.unwrap() {
        Change::Set(pod) => format!("+{}", pod.name()),
        Change::Gone(uid) => format!("-{uid}"),
        Change::Synced => "synced".to_owned(),
    }
}

async fn several(changes: &mut mpsc::Receiver<Change>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(next(changes).await);
    }
    all
}

#[tokio::test]
async fn pods_of_the_node_are_listed_and_watched() {
    let (events, watch) = mpsc::unbounded_channel();
    let mut api = api([list(&[pod("a", "1"), pod("b", "1")]), Reply::Watch(watch)]).await;
    let mut changes = watching(Some(&api), None);
    assert_eq!(several(&mut changes, 3).await, ["+a", "+b", "synced"]);
    assert!(api.next().await.query.contains("fieldSelector=spec.nodeName%3Dn"));
    events.send(event("ADDED", &pod("c", "2"))).unwrap();
    events.send(event("MODIFIED", &pod("c", "3"))).unwrap();
    events.send(event("DELETED", &pod("a", "4"))).unwrap();
    assert_eq!(several(&mut changes, 3).await, ["+c", "+c", "-uid-a"]);
}

#[tokio::test]
async fn what_a_new_list_lacks_is_gone_and_synced_is_said_once() {
    let (events, watch) = mpsc::unbounded_channel();
    let (_later, later_watch) = mpsc::unbounded_channel();
    let replies = [
        list(&[pod("a", "1"), pod("b", "1")]),
        Reply::Watch(watch),
        list(&[pod("b", "9"), pod("c", "9")]),
        Reply::Watch(later_watch),
    ];
    let api = api(replies).await;
    let mut changes = watching(Some(&api), None);
    assert_eq!(several(&mut changes, 3).await, ["+a", "+b", "synced"]);
    let expired = json!({
        "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old",
    });
    events.send(event("ERROR", &expired)).unwrap();
    assert_eq!(several(&mut changes, 3).await, ["+b", "+c", "-uid-a"]);
}

#[tokio::test]
async fn a_lost_api_server_is_found_again() {
    let (_events, watch) = mpsc::unbounded_channel();
    let refused = Reply::refuse(503, "ServiceUnavailable");
    let api = api([Reply::Cut, refused, list(&[pod("a", "1")]), Reply::Watch(watch)]).await;
    let mut changes = watching(Some(&api), None);
    assert_eq!(several(&mut changes, 2).await, ["+a", "synced"]);
}

#[tokio::test]
async fn a_pod_that_cannot_be_read_is_told_of() {
    let (_events, watch) = mpsc::unbounded_channel();
    let mut broken = pod("broken", "1");
    broken["spec"]["containers"] = "none".into();
    let mut api = api([list(&[broken, pod("a", "1")]), Reply::Watch(watch)]).await;
    let mut changes = watching(Some(&api), None);
    assert_eq!(several(&mut changes, 2).await, ["+a", "synced"]);
    loop {
        let call = api.next().await;
        if call.line() == "POST /api/v1/namespaces/ns/events" {
            assert_eq!(call.body["involvedObject"]["name"], "broken");
            assert_eq!(call.body["type"], "Warning");
            break;
        }
    }
}

#[tokio::test]
async fn nobody_keeps_managed_fields_and_unknown_fields_survive() {
    let (_events, watch) = mpsc::unbounded_channel();
    let api = api([list(&[pod("a", "1")]), Reply::Watch(watch)]).await;
    let mut changes = watching(Some(&api), None);
    let Some(Change::Set(pod)) = changes.recv().await else { panic!("no pod") };
    assert!(pod.object().metadata.managed_fields.is_none());
    assert_eq!(pod.object().metadata.resource_version.as_deref(), Some("1"));
}

const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: a, image: img}\n";

#[tokio::test]
async fn files_are_pods() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("web.yaml");
    std::fs::write(&file, MANIFEST).unwrap();
    std::fs::write(directory.path().join(".web.yaml.swp"), MANIFEST).unwrap();
    std::fs::write(directory.path().join("notes.txt"), "not a pod").unwrap();
    let mut changes = watching(None, Some(directory.path()));
    let Some(Change::Set(first)) = changes.recv().await else { panic!("no pod") };
    assert_eq!((first.name(), first.namespace()), ("web-n", "default"));
    assert_eq!(next(&mut changes).await, "synced");
    // Another content is another pod.
    std::fs::write(&file, MANIFEST.replace("img", "other")).unwrap();
    assert_eq!(next(&mut changes).await, format!("-{}", first.uid()));
    let Some(Change::Set(second)) = changes.recv().await else { panic!("no pod") };
    assert_ne!(second.uid(), first.uid());
    // What cannot be read changes nothing.
    std::fs::write(&file, "kind: [").unwrap();
    std::fs::write(directory.path().join("b.yaml"), MANIFEST.replace("web", "b")).unwrap();
    assert_eq!(next(&mut changes).await, "+b-n");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(next(&mut changes).await, format!("-{}", second.uid()));
}

#[tokio::test]
async fn two_files_cannot_be_one_pod() {
    let directory = TempDir::new().unwrap();
    for name in ["1.yaml", "2.yaml"] {
        std::fs::write(directory.path().join(name), MANIFEST).unwrap();
    }
    let mut changes = watching(None, Some(directory.path()));
    assert_eq!(several(&mut changes, 2).await, ["+web-n", "synced"]);
}

#[tokio::test]
async fn synced_waits_for_every_source() {
    let (_events, watch) = mpsc::unbounded_channel();
    let api = api([Reply::Cut, list(&[pod("a", "1")]), Reply::Watch(watch)]).await;
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("web.yaml"), MANIFEST).unwrap();
    let mut changes = watching(Some(&api), Some(directory.path()));
    let mut all = several(&mut changes, 3).await;
    assert_eq!(all.pop().as_deref(), Some("synced"));
    all.sort();
    assert_eq!(all, ["+a", "+web-n"]);
}

#[tokio::test]
async fn without_sources_all_is_known() {
    assert_eq!(next(&mut watching(None, None)).await, "synced");
}

#[tokio::test]
async fn a_static_pod_gets_a_mirror() {
    let (_events, watch) = mpsc::unbounded_channel();
    let script = Script::new([list(&[]), Reply::Watch(watch)]);
    let mut api = FakeApi::start(move |call| match call.line().as_str() {
        "GET /api/v1/nodes/n" => Reply::ok(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "n", "uid": "node-uid"},
        })),
        _ => script.answer(call),
    })
    .await;
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("web.yaml"), MANIFEST).unwrap();
    let mut changes = watching(Some(&api), Some(directory.path()));
    let Some(Change::Set(pod)) = changes.recv().await else { panic!("no pod") };
    let mirror = loop {
        let call = api.next().await;
        if call.line() == "POST /api/v1/namespaces/default/pods" {
            break call.body;
        }
    };
    let metadata = &mirror["metadata"];
    assert_eq!(metadata["name"], "web-n");
    assert!(metadata.get("uid").is_none());
    assert_eq!(metadata["annotations"]["kubernetes.io/config.mirror"], pod.uid().as_str());
    assert_eq!(metadata["annotations"]["kubernetes.io/config.source"], "file");
    assert_eq!(metadata["ownerReferences"][0]["uid"], "node-uid");
    assert_eq!(mirror["spec"]["nodeName"], "n");
}
