//! Objects about drivers, which come and go with nodes.

use std::time::Duration;

use serde_json::json;
use waybill_api::node::ENV_DRIVERS;

use super::TestServer;

const NODES: &str = "/api/v1/nodes";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const CSI_DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";

impl TestServer {
    /// Waits until an object is there, or is not.
    async fn until(&self, path: &str, code: u16) {
        while self.send("admin", "GET", path, "").await.code != code {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// OP-43
#[tokio::test]
async fn a_driver_of_a_node_has_an_object_and_both_go_with_the_node_op_43() {
    let server = TestServer::start().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let node = server.send("admin", "POST", NODES, &node.to_string()).await.json();
    let csi_node = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {
            "name": "n",
            "annotations": {ENV_DRIVERS: "a.example.com,b.example.com"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": "n", "uid": node["metadata"]["uid"]}]},
        "spec": {"drivers": [
            {"name": "a.example.com", "nodeID": "n"}, {"name": "b.example.com", "nodeID": "n"},
            {"name": "volumes.example.com", "nodeID": "n"}]},
    });
    let made = server.send("admin", "POST", CSI_NODES, &csi_node.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.json());
    let path = |name: &str| format!("{CSI_DRIVERS}/{name}.example.com");
    server.until(&path("a"), 200).await;
    server.until(&path("b"), 200).await;
    assert_eq!(server.send("admin", "GET", &path("volumes"), "").await.code, 404);
    // Whoever needs more than that says so, and keeps it.
    let mut stored = server.send("admin", "GET", &path("b"), "").await.json();
    stored["spec"]["tokenRequests"] = json!([{"audience": "vault"}]);
    let put = server.send("admin", "PUT", &path("b"), &stored.to_string()).await;
    assert_eq!(put.code, 200, "{}", put.json());

    server.send("admin", "DELETE", &format!("{NODES}/n"), "").await;
    server.until(&format!("{CSI_NODES}/n"), 404).await;
    server.until(&path("a"), 404).await;
    assert_eq!(server.send("admin", "GET", &path("b"), "").await.code, 200);
}
