//! Whatever a client sends, the answer is a `Status`, and the server goes on.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{TestServer, client::JSON};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GOOD: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}"#;

impl TestServer {
    /// Expects a failure with this code and reason, and these words in its message.
    async fn refuses(&self, request: (&str, &str, &str), body: &str, expected: (u16, &str, &str)) {
        let (method, path, content_type) = request;
        let reply = self.send_as("admin", method, path, content_type, body.to_owned()).await;
        let shown = &body[..body.len().min(80)];
        let status = reply.json();
        let (code, reason, words) = expected;
        assert_eq!(reply.code, code, "{method} {path} {shown}: {status}");
        assert_eq!(status["kind"], "Status", "{method} {path} {shown}: {status}");
        assert_eq!(status["reason"], reason, "{method} {path} {shown}: {status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(words), "{method} {path} {shown}: {message}");
    }
}

#[tokio::test]
async fn bad_bodies_are_refused() {
    let server = TestServer::start().await;
    let post = ("POST", MAPS, JSON);
    let nested = format!(r#"{{"data":{}"#, r#"{"a":"#.repeat(100_000));
    let lists = "[".repeat(100_000);
    let bad = (400, "BadRequest", "");
    for body in ["", "{", "[]", "null", "\"x\"", "{\"a\":1}garbage", "\u{0}", &nested, &lists] {
        server.refuses(post, body, bad).await;
    }
    let kind = GOOD.replace("ConfigMap", "Secret");
    server.refuses(post, &kind, bad).await;
    server.refuses(post, &GOOD.replace("v1", "v2"), bad).await;
    server.refuses(post, &GOOD.replace("\"c\"", "7"), bad).await;
    server
        .refuses(post, &GOOD.replace("\"c\"", "\"\""), (422, "Invalid", "name or generateName"))
        .await;
    let large = GOOD.replace("\"c\"", &format!("\"{}\"", "c".repeat(4 << 20)));
    let too_large = (413, "RequestEntityTooLarge", "larger than");
    server.refuses(post, &large, too_large).await;
    for content_type in ["text/plain", "application/cbor", "application/x-yaml"] {
        let request = ("POST", MAPS, content_type);
        server.refuses(request, GOOD, (415, "UnsupportedMediaType", content_type)).await;
    }
    assert_eq!(server.send("admin", "POST", MAPS, GOOD).await.code, 201);
}

#[tokio::test]
async fn bad_patches_are_refused() {
    let server = TestServer::start().await;
    server.send("admin", "POST", MAPS, GOOD).await.created();
    let path = &format!("{MAPS}/c");
    let merge = ("PATCH", path.as_str(), "application/merge-patch+json");
    let json_patch = ("PATCH", path.as_str(), "application/json-patch+json");
    let strategic = ("PATCH", path.as_str(), "application/strategic-merge-patch+json");
    let bad = (400, "BadRequest", "");
    let nested = r#"{"a":"#.repeat(100_000);
    for request in [merge, json_patch, strategic] {
        for body in ["", "{", "7", &nested] {
            server.refuses(request, body, bad).await;
        }
    }
    server.refuses(json_patch, r#"{"op":"add"}"#, bad).await;
    server.refuses(json_patch, r#"[{"op":"jump","path":"/data"}]"#, bad).await;
    let absent = r#"[{"op":"remove","path":"/data/none"}]"#;
    let rejected = "the server rejected our request due to an error in our request";
    server.refuses(json_patch, absent, (422, "Invalid", rejected)).await;
    let other = r#"[{"op":"test","path":"/metadata/name","value":"other"}]"#;
    server.refuses(json_patch, other, (422, "Invalid", rejected)).await;
    server.refuses(merge, r#"{"data":[1]}"#, (422, "Invalid", "patch: Invalid value")).await;
    server.refuses(strategic, r#"{"metadata":{"$patch":"jump"}}"#, bad).await;
    server.refuses(merge, r#"{"metadata":{"name":"other"}}"#, bad).await;
    server.refuses(("PATCH", path, JSON), "{}", (415, "UnsupportedMediaType", "")).await;
    let apply = ("PATCH", path.as_str(), "application/apply-patch+yaml");
    server.refuses(apply, "{}", (422, "Invalid", "fieldManager: Required value")).await;
    let apply = ("PATCH", path.as_str(), "application/apply-patch+cbor");
    server.refuses(apply, "{}", (415, "UnsupportedMediaType", "")).await;
    let many = json!(vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 20_000]);
    server.refuses(json_patch, &many.to_string(), (413, "RequestEntityTooLarge", "")).await;
}

#[tokio::test]
async fn bad_queries_are_refused() {
    let server = TestServer::start().await;
    for query in [
        "labelSelector=a%3D%3D%3Db",
        "labelSelector=a+in+(",
        "labelSelector=-a",
        "fieldSelector=x",
        "fieldSelector=spec.nothing%3D1",
        "limit=x",
        "limit=-1",
        "continue=nonsense",
        "resourceVersion=x",
        "resourceVersion=-1",
        "watch=1&timeoutSeconds=x",
        "watch=1&resourceVersion=x",
    ] {
        let path = format!("{MAPS}?{query}");
        server.refuses(("GET", &path, JSON), "", (400, "BadRequest", "")).await;
    }
    for query in ["dryRun=Some", "fieldValidation=Maybe"] {
        let path = format!("{MAPS}?{query}");
        server.refuses(("POST", &path, JSON), GOOD, (400, "BadRequest", "")).await;
    }
    let path = format!("{MAPS}?resourceVersion=99999999");
    server.refuses(("GET", &path, JSON), "", (504, "Timeout", "Too large resource version")).await;
}

/// Who may list one thing must not get the rest of another list with its token.
#[tokio::test]
async fn the_token_of_a_list_is_good_for_that_list_only() {
    let server = TestServer::start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let page = server.send("admin", "GET", &format!("{roles}?limit=1"), "").await.json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    for path in [format!("{MAPS}?"), format!("{roles}?labelSelector=x&")] {
        let path = format!("{path}limit=1&continue={token}");
        server.refuses(("GET", &path, JSON), "", (400, "BadRequest", "continue key")).await;
    }
    let next = server.send("admin", "GET", &format!("{roles}?limit=1&continue={token}"), "").await;
    assert_eq!(next.code, 200, "{next:?}");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let server = TestServer::start().await;
    let gone = (404, "NotFound", "the server could not find the requested resource");
    for path in ["/nothing", "/api/v9/pods", "/api/v1/podz", "/api/v1/namespaces/%ff/pods"] {
        server.refuses(("GET", path, JSON), "", gone).await;
    }
    let no_part = "/api/v1/namespaces/default/pods/p/nothing";
    server.refuses(("GET", no_part, JSON), "", gone).await;
    let wrong = (405, "MethodNotAllowed", "");
    for (method, path) in [
        ("POST", "/api/v1/nodes/n"),
        ("PUT", "/api/v1/nodes"),
        ("PATCH", "/api/v1/nodes"),
        ("DELETE", "/api/v1/namespaces"),
        ("OPTIONS", "/api/v1/nodes"),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ("DELETE", "/api/v1/namespaces/default/pods/p/log"),
    ] {
        server.refuses((method, path, JSON), GOOD, wrong).await;
    }
}

#[tokio::test]
async fn what_is_no_http_ends_the_connection_only() {
    let server = TestServer::start().await;
    for noise in [&b"\x00\x01\x02\x03\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        let mut connection = server.connect().await;
        connection.write_all(noise).await.unwrap();
        let mut answer = Vec::new();
        // The other end may close without a goodbye; it must close.
        let ended = timeout(Duration::from_secs(10), connection.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{noise:?}");
    }
    let mut half = tokio::net::TcpStream::connect(server.server.address()).await.unwrap();
    half.write_all(b"\x16\x03\x01\x02\x00").await.unwrap();
    assert_eq!(server.send("admin", "GET", "/readyz", "").await.code, 200);
}
