//! What `resourceVersion` and its companions mean for get, list and watch.

use serde_json::{Value, json};

use super::{TestServer, client::Reply};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-public/leases";

impl TestServer {
    /// Creates a lease and returns its version.
    async fn lease(&self, name: &str) -> u64 {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        });
        let created = self.send("admin", "POST", LEASES, &lease.to_string()).await.created();
        version(&created)
    }

    async fn list(&self, query: &str) -> Reply {
        self.send("admin", "GET", &format!("{LEASES}?{query}"), "").await
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[track_caller]
fn too_large(status: &Value, wanted: u64) {
    assert_eq!((&status["code"], &status["reason"]), (&json!(504), &json!("Timeout")), "{status}");
    let message = status["message"].as_str().unwrap();
    let expected = format!("Timeout: Too large resource version: {wanted}, current: ");
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(
        status["details"],
        json!({
            "causes": [{
                "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
            }],
            "retryAfterSeconds": 1,
        })
    );
}

#[tokio::test]
async fn a_list_waits_for_a_version_that_is_about_to_come() {
    let server = TestServer::start().await;
    let wanted = server.lease("a").await + 30;
    let path = format!("{LEASES}?resourceVersion={wanted}");
    let listing = server.send("admin", "GET", &path, "");
    let writing = async {
        for number in 0..30 {
            server.lease(&format!("b{number}")).await;
        }
    };
    let (list, ()) = tokio::join!(listing, writing);
    assert_eq!(list.code, 200, "{list:?}");
    assert!(version(&list.json()) >= wanted, "{list:?}");
}

/// As upstream, so that clients know to wait and not to start over.
#[tokio::test]
async fn a_version_that_does_not_come_is_too_large() {
    let server = TestServer::start().await;
    let future = server.lease("a").await + 1_000;
    let list = format!("{LEASES}?resourceVersion={future}");
    let exact = format!("{list}&resourceVersionMatch=Exact");
    let get = format!("{LEASES}/a?resourceVersion={future}");
    let (list, exact, get) = tokio::join!(
        server.send("admin", "GET", &list, ""),
        server.send("admin", "GET", &exact, ""),
        server.send("admin", "GET", &get, ""),
    );
    for reply in [list, exact, get] {
        assert_eq!(reply.code, 504, "{reply:?}");
        assert_eq!(reply.retry_after.as_deref(), Some("1"));
        too_large(&reply.json(), future);
    }
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{LEASES}?{query}&resourceVersion={future}")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR", "{event}");
    too_large(&event["object"], future);
}

#[tokio::test]
async fn a_watch_from_the_future_shows_what_comes_after_it() {
    let server = TestServer::start().await;
    let mut newest = server.lease("a").await;
    let after = newest + 20;
    let mut watch = server.watch(&format!("{LEASES}?watch=1&resourceVersion={after}")).await;
    for number in 0.. {
        newest = server.lease(&format!("b{number}")).await;
        if newest > after {
            break;
        }
    }
    assert_eq!(version(&watch.next().await.unwrap()["object"]), newest);
}

#[tokio::test]
async fn an_exact_version_is_the_state_of_then() {
    let server = TestServer::start().await;
    server.lease("a").await;
    let then = server.lease("b").await;
    let patch = json!({"metadata": {"labels": {"x": "1"}}}).to_string();
    let path = format!("{LEASES}/a");
    server.send_as("admin", "PATCH", &path, "application/merge-patch+json", patch).await;
    server.send("admin", "DELETE", &format!("{LEASES}/b"), "").await;
    server.lease("c").await;
    let exact = format!("resourceVersion={then}&resourceVersionMatch=Exact");
    let list = server.list(&exact).await.json();
    assert_eq!((names(&list), version(&list)), (vec!["a", "b"], then), "{list}");
    assert_eq!(list["items"][0]["metadata"]["labels"], Value::Null, "{list}");
    let none = server.list(&format!("{exact}&labelSelector=x")).await.json();
    assert!(names(&none).is_empty(), "{none}");
    // A limit means the same, if nothing else is said; so all pages are of one moment.
    let page = server.list(&format!("resourceVersion={then}&limit=1")).await.json();
    assert_eq!((names(&page), version(&page)), (vec!["a"], then), "{page}");
    let newest = format!("resourceVersion={then}&limit=1&resourceVersionMatch=NotOlderThan");
    let page = server.list(&newest).await.json();
    assert!(version(&page) > then, "{page}");
    let server = server.restart().await;
    let gone = server.list(&exact).await;
    assert_eq!((gone.code, &gone.json()["reason"]), (410, &json!("Expired")), "{gone:?}");
}

#[tokio::test]
async fn options_that_do_not_fit_together_are_refused_in_upstreams_words() {
    let server = TestServer::start().await;
    let cases = [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
             resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for \
             resourceVersion \"0\"",
        ),
        (
            "resourceVersionMatch=Newer&resourceVersion=1",
            "resourceVersionMatch: Unsupported value: \"Newer\": supported values: \"Exact\", \
             \"NotOlderThan\", \"\"",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is \
             provided",
        ),
        (
            "sendInitialEvents=false",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            "watch=1&sendInitialEvents=false",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
             resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
             sendInitialEvents is provided",
        ),
    ];
    for (query, message) in cases {
        let reply = server.list(query).await;
        assert_eq!(reply.code, 422, "{query}: {reply:?}");
        let expected = format!("ListOptions.meta.k8s.io \"\" is invalid: {message}");
        assert_eq!(reply.json()["message"], expected, "{query}");
    }
    let both = server.list("resourceVersion=1&continue=x").await;
    assert_eq!(both.code, 400, "{both:?}");
    assert_eq!(
        both.json()["message"],
        "specifying resource version is not allowed when using continue"
    );
}

#[tokio::test]
async fn initial_events_come_only_to_those_who_want_them() {
    let server = TestServer::start().await;
    server.lease("a").await;
    let query = "watch=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{LEASES}?{query}&sendInitialEvents=false")).await;
    server.lease("b").await;
    assert_eq!(watch.next_name().await.1, "b");
    // Without bookmarks nobody is told where the initial events end.
    let query = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
    let mut watch = server.watch(&format!("{LEASES}?{query}")).await;
    for name in ["a", "b"] {
        assert_eq!(watch.next_name().await.1, name);
    }
    server.lease("c").await;
    assert_eq!(watch.next_name().await.1, "c");
}
