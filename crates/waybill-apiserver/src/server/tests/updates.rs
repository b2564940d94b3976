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
