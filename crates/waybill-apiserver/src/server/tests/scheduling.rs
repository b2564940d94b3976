//! What the scheduler tells about pods that fit nowhere.

use std::time::Duration;

use serde_json::{Value, json};

use super::TestServer;

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";

impl TestServer {
    /// Creates a pod, for which there is no node, and waits for the event about it.
    async fn waiting_pod(&self, name: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        // Pods are refused until their namespace has its service account.
        while self.send("admin", "POST", PODS, &pod.to_string()).await.code == 403 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let query = format!("watch=1&fieldSelector=involvedObject.name%3D{name}");
        let event = self.watch(&format!("{EVENTS}?{query}")).await.next().await.unwrap();
        assert_eq!(event["object"]["reason"], "FailedScheduling", "{event}");
    }
}

#[tokio::test]
async fn a_pod_that_waits_says_which_generation_of_it_does() {
    let server = TestServer::start().await;
    server.waiting_pod("first").await;
    let pod = server.send("admin", "GET", &format!("{PODS}/first"), "").await.json();
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "{conditions:?}");
    assert_eq!(conditions[0]["type"], "PodScheduled");
    assert_eq!(conditions[0]["observedGeneration"], 1);
}

#[tokio::test]
async fn a_pod_that_waits_is_told_of_once_however_often_the_scheduler_starts() {
    let server = TestServer::start().await;
    server.waiting_pod("first").await;
    let server = server.restart().await;
    // Older pods come first, so when this one has been told of, the other has been looked at.
    server.waiting_pod("second").await;
    let events = server.send("admin", "GET", EVENTS, "").await.json();
    let about = |event: &Value| event["involvedObject"]["name"] == "first";
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.iter().filter(|event| about(event)).count(), 1, "{events:?}");
}
