//! What monitors and people ask.

use http::Method;
use serde_json::{Value, json};

use super::Fixture;

#[tokio::test]
async fn pods_are_shown_with_their_spec() {
    let fixture = Fixture::new().await;
    let said = fixture.client().get("/pods").await;
    let list: Value = serde_json::from_str(&said.text).unwrap();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    assert_eq!(list["items"][0]["metadata"]["name"], "web");
    assert_eq!(list["items"][0]["spec"]["containers"][1]["name"], "shell");
}

#[tokio::test]
async fn running_pods_are_those_of_the_runtime() {
    let fixture = Fixture::new().await;
    let said = fixture.client().get("/runningpods/").await;
    let list: Value = serde_json::from_str(&said.text).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["metadata"]["uid"], "u-1");
    assert_eq!(list["items"][0]["spec"]["containers"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_origin_of_variables_is_shown() {
    let fixture = Fixture::new().await;
    let said = fixture.client().get("/waybill/v1/environment/default/web/main").await;
    let found: Value = serde_json::from_str(&said.text).unwrap();
    assert_eq!(found, json!({ "pod": "web", "container": "main" }));
    let said = fixture.client().get("/waybill/v1/environment/default/web/nope").await;
    assert_eq!(said.summary(), (404, "container not found (\"nope\")"));
    let said = fixture.client().get("/waybill/v1/environment/default/web/shell").await;
    let (code, text) = said.summary();
    assert!(code == 404 && text.contains("nothing is known of the variables"), "{text}");
}

#[tokio::test]
async fn metrics_count_requests_by_route() {
    let fixture = Fixture::new().await;
    let client = fixture.client();
    client.get("/healthz").await;
    client.get("/no/such/path").await;
    assert_eq!(client.send(Method::POST, "/pods").await.code, 405);
    let said = client.get("/metrics").await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(said.headers["content-type"], kind);
    for line in [
        "kubelet_http_requests_total{code=\"200\",method=\"GET\",path=\"healthz\"} 1",
        "kubelet_http_requests_total{code=\"404\",method=\"GET\",path=\"other\"} 1",
        "kubelet_http_requests_total{code=\"405\",method=\"POST\",path=\"other\"} 1",
        "kubelet_desired_pods 1",
    ] {
        assert!(said.text.lines().any(|found| found == line), "{line}\n{}", said.text);
    }
}

#[tokio::test]
async fn a_summary_names_the_node() {
    let fixture = Fixture::new().await;
    let said = fixture.client().get("/stats/summary").await;
    let summary: Value = serde_json::from_str(&said.text).unwrap();
    assert_eq!(summary["node"]["nodeName"], "node-1");
}
