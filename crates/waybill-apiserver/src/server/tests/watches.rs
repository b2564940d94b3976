//! Watches over HTTP: where they begin, what they show, how they end.

use std::time::Duration;

use http::{Request, header::AUTHORIZATION};
use http_body_util::Full;
use serde_json::json;
use tokio::time::timeout;

use super::{TestServer, client::Lines};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-public/leases";

impl TestServer {
    /// Creates a lease and returns its resourceVersion.
    async fn create(&self, name: &str, labels: &serde_json::Value) -> String {
        let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": labels}});
        let created = self.send("admin", "POST", LEASES, &object.to_string()).await.created();
        created["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    async fn label(&self, name: &str, labels: &serde_json::Value) {
        let patch = json!({"metadata": {"labels": labels}}).to_string();
        let path = format!("{LEASES}/{name}");
        let reply =
            self.send_as("admin", "PATCH", &path, "application/merge-patch+json", patch).await;
        assert_eq!(reply.code, 200, "{reply:?}");
    }
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_goes_on_where_the_client_left_off() {
    let server = TestServer::start().await;
    let version = server.create("a", &json!({})).await;
    server.label("a", &json!({"x": "1"})).await;
    server.create("b", &json!({})).await;
    let mut watch = server.watch(&format!("{LEASES}?watch=1&resourceVersion={version}")).await;
    assert_eq!(watch.next_name().await, pair("MODIFIED", "a"));
    assert_eq!(watch.next_name().await, pair("ADDED", "b"));
    let path = format!("{LEASES}/a");
    assert_eq!(server.send("admin", "DELETE", &path, "").await.code, 200);
    assert_eq!(watch.next_name().await, pair("DELETED", "a"));
}

/// As upstream: the answer is a stream, and the error is in it. Some clients (kube-rs) would ask
/// for the same version again and again if the answer itself were a failure.
#[tokio::test]
async fn a_version_from_before_the_history_is_gone() {
    let server = TestServer::start().await;
    let version = server.create("a", &json!({})).await;
    server.create("b", &json!({})).await;
    let server = server.restart().await;
    let mut watch = server.watch(&format!("{LEASES}?watch=1&resourceVersion={version}")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR", "{event}");
    assert_eq!(event["object"]["code"], 410, "{event}");
    assert_eq!(event["object"]["reason"], "Expired", "{event}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = TestServer::start().await;
    server.create("z", &json!({"x": "1"})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true&labelSelector=x";
    let mut watch = server.watch(&format!("{LEASES}?{query}")).await;
    assert_eq!(watch.next_name().await, pair("ADDED", "z"));
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "BOOKMARK", "{event}");
    let metadata = &event["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true", "{event}");
    let version = metadata["resourceVersion"].as_str().unwrap();
    server.create("zz", &json!({"x": "1"})).await;
    assert_eq!(watch.next_name().await, pair("ADDED", "zz"));
    let mut again = server.watch(&format!("{LEASES}?watch=1&resourceVersion={version}")).await;
    assert_eq!(again.next_name().await, pair("ADDED", "zz"));
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_for_its_watcher() {
    let server = TestServer::start().await;
    let version = server.create("a", &json!({})).await;
    let path = format!("{LEASES}?watch=1&labelSelector=x%3D1&resourceVersion={version}");
    let mut watch = server.watch(&path).await;
    server.label("a", &json!({"x": "1"})).await;
    assert_eq!(watch.next_name().await, pair("ADDED", "a"));
    server.label("a", &json!({"y": "1"})).await;
    assert_eq!(watch.next_name().await, pair("MODIFIED", "a"));
    server.label("a", &json!({"x": "2"})).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED", "{event}");
    // What the watcher last saw, at the version at which it went away.
    assert_eq!(event["object"]["metadata"]["labels"]["x"], "1", "{event}");
    server.label("a", &json!({"x": "3"})).await;
    server.label("a", &json!({"x": "1"})).await;
    assert_eq!(watch.next_name().await, pair("ADDED", "a"));
}

/// Events that go in pieces are whole, at the beginning and later, and so is what follows them.
#[tokio::test]
async fn large_events_are_whole() {
    let server = TestServer::start().await;
    let large = |letter: &str| json!({"annotations": {"a": letter.repeat(100_000)}});
    let version = server.create("a", &json!({})).await;
    let patch = |letter: &str| json!({"metadata": large(letter)}).to_string();
    let path = format!("{LEASES}/a");
    let merge = "application/merge-patch+json";
    let reply = server.send_as("admin", "PATCH", &path, merge, patch("x")).await;
    assert_eq!(reply.code, 200, "{reply:?}");
    let mut first = server.watch(&format!("{LEASES}?watch=1")).await;
    let mut later = server.watch(&format!("{LEASES}?watch=1&resourceVersion={version}")).await;
    let reply = server.send_as("admin", "PATCH", &path, merge, patch("y")).await;
    assert_eq!(reply.code, 200, "{reply:?}");
    server.create("b", &json!({})).await;
    for (watch, kind) in [(&mut first, "ADDED"), (&mut later, "MODIFIED")] {
        for (kind, letter) in [(kind, "x"), ("MODIFIED", "y")] {
            let event = watch.next().await.unwrap();
            assert_eq!(event["type"], kind);
            assert_eq!(event["object"]["metadata"]["annotations"], large(letter)["annotations"]);
        }
        assert_eq!(watch.next_name().await, pair("ADDED", "b"));
    }
}

#[tokio::test]
async fn watches_end_cleanly_when_the_server_stops() {
    let server = TestServer::start().await;
    let version = server.create("a", &json!({})).await;
    let mut watch = server.watch(&format!("{LEASES}?watch=1&resourceVersion={version}")).await;
    let TestServer { server, dir: _kept, .. } = server;
    timeout(Duration::from_secs(5), server.stop()).await.expect("the server stops in time");
    assert_eq!(watch.next().await, None);
}

/// Twenty connections with as many watches as one may have, all of which see the one change.
#[tokio::test]
async fn two_thousand_watches_see_the_same_event() {
    let server = TestServer::start().await;
    let version = server.create("before", &json!({})).await;
    let path = format!("{LEASES}?watch=1&resourceVersion={version}");
    let mut watches = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..20 {
        let mut connection = server.connect_http2().await;
        for _ in 0..100 {
            let uri = format!("https://localhost{path}");
            let request = Request::get(uri).header(AUTHORIZATION, "Bearer admin-token");
            let request = request.body(Full::default()).unwrap();
            connection.ready().await.unwrap();
            let answer =
                timeout(PATIENCE, connection.send_request(request)).await.unwrap().unwrap();
            assert_eq!(answer.status(), 200);
            watches.push(Lines::of(answer));
        }
        connections.push(connection);
    }
    server.create("after", &json!({})).await;
    assert_eq!(watches.len(), 2_000);
    for watch in &mut watches {
        assert_eq!(watch.next_name().await, pair("ADDED", "after"));
    }
}
