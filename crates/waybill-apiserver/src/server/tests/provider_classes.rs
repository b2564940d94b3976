//! Pods that may not have variables of a driver, and what the audit log says of them.

use std::fs;

use serde_json::{Value, json};
use waybill_api::gates::FeatureGates;

use super::TestServer;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLASSES: &str = "/apis/storage.k8s.io/v1/providerclasses";

fn pod(name: &str, class: &str, key: &str) -> String {
    let reference = json!({"driver": "d.example.com", "providerClassName": class, "key": key});
    let env = json!([{"name": "A", "valueFrom": {"csiSecretRef": reference}},
        {"name": "B", "value": "s3cr3t-canary"}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "app", "image": "app", "env": env}]}})
    .to_string()
}

fn class(name: &str, namespaces: &str) -> String {
    let parameters = json!({"allowedNamespaces": namespaces, "allowedFields": "app/*"});
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass", "metadata": {"name": name},
        "spec": {"driver": "d.example.com", "parameters": parameters}})
    .to_string()
}

/// CSI-63: whoever reads the audit log learns why, at any level.
#[tokio::test]
async fn the_audit_log_says_why_variables_are_denied_csi_63() {
    let server = TestServer::start_with(|config| config.gates = FeatureGates::all_on()).await;
    for class in [class("ours", "default"), class("theirs", "other")] {
        server.send("admin", "POST", CLASSES, &class).await.created();
    }
    let long = format!("db/{}", "x".repeat(3_000));
    for (name, class, key) in [
        ("absent", "none", "app/x"),
        ("elsewhere", "theirs", "app/x"),
        ("pattern", "ours", "db/x"),
        ("trick", "ours", "app/../db"),
        ("unentitled", "ours", "app/x"),
        ("long", "ours", &*long),
    ] {
        let refused = server.send("admin", "POST", PODS, &pod(name, class, key)).await;
        assert_eq!(refused.code, 403, "{name}: {}", refused.json());
    }
    let TestServer { dir, server, .. } = server;
    server.stop().await;

    let log = fs::read_to_string(dir.path().join("audit/audit.log")).unwrap();
    assert!(!log.contains("s3cr3t-canary"));
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    fn denied(event: &Value) -> Option<&str> {
        event["annotations"]["csi.waybill.dev/denied"].as_str()
    }
    let reasons: Vec<_> = events.iter().filter_map(denied).collect();
    let account = "service account default/default needs the verb \"use\" on \
                   providerclasses.storage.k8s.io";
    let (last, others) = reasons.split_last().unwrap();
    assert_eq!(
        others,
        [
            "ProviderClass 'none' not found",
            "Unauthorized: namespace not in allowedNamespaces",
            "Key 'db/x' not in allowedFields pattern 'app/*'",
            "Key 'app/../db' not in allowedFields pattern 'app/*'",
            &format!("access denied to ProviderClass \"ours\": {account}"),
        ]
    );
    assert!(last.len() < 1_100 && last.ends_with("...TRUNCATED"), "{last}");
}
