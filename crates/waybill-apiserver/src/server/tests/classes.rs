//! Classes that pods name: of priority, and of runtimes.

use serde_json::{Value, json};

use super::TestServer;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, fields: &Value) -> String {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    for (key, value) in fields.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

#[tokio::test]
async fn a_pod_has_the_priority_of_its_class_and_no_other() {
    let server = TestServer::start_with_account().await;
    let class = |name: &str, value: i64, default: bool| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "globalDefault": default})
    };
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let made = server.send("admin", "POST", PODS, &pod("a", &json!({}))).await.created();
    assert_eq!(made["spec"]["priority"], 0);
    let critical = json!({"priorityClassName": "system-node-critical"});
    let made = server.send("admin", "POST", PODS, &pod("b", &critical)).await.created();
    assert_eq!(made["spec"]["priority"], 2_000_001_000);
    server.make(classes, &class("usual", 7, true)).await;
    let made = server.send("admin", "POST", PODS, &pod("c", &json!({}))).await.created();
    assert_eq!(
        (&made["spec"]["priority"], &made["spec"]["priorityClassName"]),
        (&json!(7), &json!("usual"))
    );
    for refused in [json!({"priorityClassName": "none"}), json!({"priority": 9})] {
        let reply = server.send("admin", "POST", PODS, &pod("d", &refused)).await;
        assert_eq!(reply.code, 403, "{refused}: {reply:?}");
    }
    let second = server.send("admin", "POST", classes, &class("other", 8, true).to_string()).await;
    assert_eq!(second.code, 403, "{second:?}");
}

#[tokio::test]
async fn a_pod_of_an_unknown_runtime_class_is_refused() {
    let server = TestServer::start_with_account().await;
    let wanted = json!({"runtimeClassName": "vm"});
    let reply = server.send("admin", "POST", PODS, &pod("a", &wanted)).await;
    assert_eq!(reply.code, 403);
    let told = reply.json();
    let told = told["message"].as_str().unwrap();
    assert_eq!(told, "pods \"a\" is forbidden: pod rejected: RuntimeClass \"vm\" not found");
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"memory": "64Mi"}}});
    server.make("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    let made = server.send("admin", "POST", PODS, &pod("a", &wanted)).await.created();
    assert_eq!(made["spec"]["overhead"], json!({"memory": "64Mi"}));
}

/// A request says who made it, and only those who may approve for the signer do.
#[tokio::test]
async fn certificate_requests_are_made_by_whom_they_say() {
    let server = TestServer::start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"}, "spec": {
            "request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K", "username": "mallory",
            "signerName": "example.com/s", "usages": ["client auth"]}});
    let made = server.make(requests, &request).await;
    assert_eq!(made["spec"]["username"], "admin");
    let mut approved = made.clone();
    approved["status"] = json!({"conditions": [{"type": "Approved", "reason": "R", "message": "m"}],
        "certificate": "LS0tLS0="});
    let path = format!("{requests}/r/approval");
    let reply = server.send("admin", "PUT", &path, &approved.to_string()).await;
    assert_eq!(reply.code, 200, "{reply:?}");
    let stored = reply.json();
    assert_eq!(stored["status"]["conditions"][0]["type"], "Approved");
    assert!(stored["status"]["certificate"].is_null(), "approval signs nothing: {stored}");
    // The right to the subresource is not the right to the signer.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "approver"}, "rules": [{"apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "approver"}, "subjects": [{"kind": "User", "name": "alice",
            "apiGroup": "rbac.authorization.k8s.io"}], "roleRef": {"kind": "ClusterRole",
            "name": "approver", "apiGroup": "rbac.authorization.k8s.io"}});
    server.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    server.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let reply = server.send("alice", "PUT", &path, &stored.to_string()).await;
    assert_eq!(reply.code, 403, "{reply:?}");
    assert!(reply.json()["message"].as_str().unwrap().contains("not permitted to approve"));
}
