//! Other resources for pods that run, through the front door.

use serde_json::{Value, json};

use super::{TestServer, client::Reply};

const POD: &str = "/api/v1/namespaces/default/pods/p";

async fn patch(server: &TestServer, path: &str, patch: &Value) -> Reply {
    let merge = "application/strategic-merge-patch+json";
    server.send_as("admin", "PATCH", path, merge, patch.to_string()).await
}

fn resources(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "other",
        "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}]}})
}

#[tokio::test]
async fn resources_change_by_their_own_subresource_only() {
    let server = TestServer::start_with_account().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}}]}});
    let pods = "/api/v1/namespaces/default/pods";
    server.send("admin", "POST", pods, &pod.to_string()).await.created();
    let refused = patch(&server, POD, &resources("2")).await;
    assert_eq!(refused.code, 422, "{refused:?}");

    let resize = format!("{POD}/resize");
    let resized = patch(&server, &resize, &resources("2")).await;
    assert_eq!(resized.code, 200, "{resized:?}");
    let pod = resized.json();
    assert_eq!(pod["metadata"]["generation"], 2);
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"], json!({"cpu": "2", "memory": "1Gi"}));
    assert_eq!(container["image"], "i", "all else of the patch is left alone");
    let managed = pod["metadata"]["managedFields"].as_array().unwrap();
    assert!(managed.iter().any(|entry| entry["subresource"] == "resize"), "{managed:?}");

    let read = server.send("admin", "GET", &resize, "").await.json();
    assert_eq!(read["metadata"]["resourceVersion"], pod["metadata"]["resourceVersion"]);
    let mut whole = read.clone();
    whole["spec"]["containers"][0]["resources"]["limits"]["memory"] = "2Gi".into();
    whole["metadata"]["labels"] = json!({"a": "b"});
    let put = server.send("admin", "PUT", &resize, &whole.to_string()).await;
    assert_eq!(put.code, 200, "{put:?}");
    assert_eq!(put.json()["metadata"]["generation"], 3);
    assert_eq!(put.json()["metadata"]["labels"], Value::Null);

    // Without limits nothing is guaranteed, and what has a limit keeps one.
    let removed = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": null}}]}});
    let refused = patch(&server, &resize, &removed).await;
    assert_eq!(refused.code, 422, "{refused:?}");
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("resource limits cannot be removed"), "{message}");
}
