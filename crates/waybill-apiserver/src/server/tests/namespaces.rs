//! What a namespace always has, and what it says when it cannot go.

use serde_json::{Value, json};

use super::TestServer;

const CERTIFICATE: &str = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";

impl TestServer {
    /// Waits until the object at the end of `watch` is as it should be.
    pub(super) async fn seen(&self, watch: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let mut events = self.watch(watch).await;
        loop {
            let event = events.next().await.expect("the watch goes on");
            if event["type"] != "DELETED" && is_right(&event["object"]) {
                return event["object"].clone();
            }
        }
    }
}

#[tokio::test]
async fn the_certificate_of_the_cluster_is_restored() {
    let server = TestServer::start().await;
    let watch = "/api/v1/namespaces/default/configmaps?watch=1\
        &fieldSelector=metadata.name%3Dkube-root-ca.crt";
    let first = server.seen(watch, |_| true).await;
    let patch = json!({"data": {"ca.crt": "another"}}).to_string();
    let kind = "application/merge-patch+json";
    let reply = server.send_as("admin", "PATCH", CERTIFICATE, kind, patch).await;
    assert_eq!(reply.code, 200, "{reply:?}");
    server.seen(watch, |found| found["data"] == first["data"]).await;
    assert_eq!(server.send("admin", "DELETE", CERTIFICATE, "").await.code, 200);
    let fresh = |found: &Value| found["metadata"]["uid"] != first["metadata"]["uid"];
    let restored = server.seen(watch, fresh).await;
    assert_eq!(restored["data"], first["data"]);
}

/// Whether a namespace has a condition of this kind with `text` in its message.
fn said(found: &Value, kind: &str, text: &str) -> bool {
    let conditions = found.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == kind && condition["message"].as_str().unwrap().contains(text)
    })
}

#[tokio::test]
async fn a_namespace_that_cannot_go_says_why() {
    let server = TestServer::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    server.send("admin", "POST", "/api/v1/namespaces", &namespace.to_string()).await.created();
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    let path = "/api/v1/namespaces/a/configmaps";
    server.send("admin", "POST", path, &held.to_string()).await.created();
    assert_eq!(server.send("admin", "DELETE", "/api/v1/namespaces/a", "").await.code, 200);
    let watch = "/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Da";
    let text = "finalizers remaining: example.com/hold in 1 resource instances";
    server.seen(watch, |found| said(found, "NamespaceFinalizersRemaining", text)).await;
    let patch = json!({"metadata": {"finalizers": null}}).to_string();
    let path = format!("{path}/held");
    server.send_as("admin", "PATCH", &path, "application/merge-patch+json", patch).await;
    let mut events = server.watch(watch).await;
    while events.next().await.is_some_and(|event| event["type"] != "DELETED") {}
}

#[tokio::test]
async fn nothing_of_a_namespace_goes_before_its_pods() {
    let server = TestServer::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    server.send("admin", "POST", "/api/v1/namespaces", &namespace.to_string()).await.created();
    let accounts = "/api/v1/namespaces/a/serviceaccounts?watch=1";
    assert!(server.watch(accounts).await.next().await.is_some());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "needed"}});
    let maps = "/api/v1/namespaces/a/configmaps";
    server.send("admin", "POST", maps, &map.to_string()).await.created();
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/a/pods";
    server.send("admin", "POST", pods, &pod.to_string()).await.created();

    assert_eq!(server.send("admin", "DELETE", "/api/v1/namespaces/a", "").await.code, 200);
    let watch = "/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Da";
    let text = "Some resources are remaining: pods. has 1 resource instances";
    let told = server.seen(watch, |found| said(found, "NamespaceContentRemaining", text)).await;
    let text = "All content successfully deleted, may be waiting on finalization";
    assert!(said(&told, "NamespaceDeletionContentFailure", text), "{told}");
    let pod = format!("{pods}/held");
    let found = server.send("admin", "GET", &pod, "").await.json();
    assert!(found["metadata"]["deletionTimestamp"].is_string(), "{found}");
    let map = format!("{maps}/needed");
    assert_eq!(server.send("admin", "GET", &map, "").await.code, 200);

    let patch = json!({"metadata": {"finalizers": null}}).to_string();
    let kind = "application/merge-patch+json";
    assert_eq!(server.send_as("admin", "PATCH", &pod, kind, patch).await.code, 200);
    let mut events = server.watch(watch).await;
    while events.next().await.is_some_and(|event| event["type"] != "DELETED") {}
    assert_eq!(server.send("admin", "GET", &map, "").await.code, 404);
}
