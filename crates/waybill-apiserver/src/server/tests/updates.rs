//! What a version in an update means, and what its absence means.

use serde_json::{Value, json};

use super::TestServer;

const MAP: &str = "/api/v1/namespaces/default/configmaps/c";

fn map(data: &str, version: Option<&Value>) -> String {
    let mut map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": data},
    });
    if let Some(version) = version {
        map["metadata"]["resourceVersion"] = version.clone();
    }
    map.to_string()
}

#[tokio::test]
async fn an_update_without_a_version_means_the_newest_object() {
    let server = TestServer::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let created = server.send("admin", "POST", maps, &map("1", None)).await;
    assert_eq!(created.code, 201);
    let updated = server.send("admin", "PUT", MAP, &map("2", None)).await;
    assert_eq!((updated.code, &updated.json()["data"]["a"]), (200, &json!("2")));

    let old = &created.json()["metadata"]["resourceVersion"];
    let stale = server.send("admin", "PUT", MAP, &map("3", Some(old))).await;
    assert_eq!((stale.code, &stale.json()["reason"]), (409, &json!("Conflict")));
    let new = &updated.json()["metadata"]["resourceVersion"];
    assert_eq!(server.send("admin", "PUT", MAP, &map("3", Some(new))).await.code, 200);
}

/// Each is made again of what the others left, as long as it names no version.
#[tokio::test]
async fn patches_at_the_same_time_all_hold() {
    let server = TestServer::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(server.send("admin", "POST", maps, &map("1", None)).await.code, 201);
    let patch = async |key: String| {
        let body = json!({"data": {key: "x"}}).to_string();
        let kind = "application/merge-patch+json";
        server.send_as("admin", "PATCH", MAP, kind, body).await.code
    };
    for round in 0..5 {
        let keys = (0..6).map(|at| format!("{round}-{at}"));
        let codes = futures_util::future::join_all(keys.map(patch)).await;
        assert_eq!(codes, [200; 6]);
    }
    let found = server.send("admin", "GET", MAP, "").await.json();
    assert_eq!(found["data"].as_object().unwrap().len(), 31);
    let version = json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}}).to_string();
    let stale =
        server.send_as("admin", "PATCH", MAP, "application/merge-patch+json", version).await;
    assert_eq!(stale.code, 409);
}
