//! Kubernetes' own controller manager and scheduler find what they need when they start.

use serde_json::{Value, json};

use super::TestServer;

const INFO: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const WATCH: &str = "/api/v1/namespaces/kube-system/configmaps?watch=1\
    &fieldSelector=metadata.name%3Dextension-apiserver-authentication";

/// They were refused it, and did not start.
#[tokio::test]
async fn components_learn_whom_the_server_believes() {
    let mut server = TestServer::start().await;
    let told = server.seen(WATCH, |_| true).await;
    let data = |key: &str| told["data"][key].as_str().unwrap().to_owned();
    assert_eq!(data("client-ca-file"), server.server.ca_certificate());
    assert!(data("requestheader-client-ca-file").contains("BEGIN CERTIFICATE"));
    assert_ne!(data("requestheader-client-ca-file"), data("client-ca-file"));
    for user in ["system:kube-controller-manager", "system:kube-scheduler"] {
        server.show_certificate(user, &[]);
        assert_eq!(server.send("", "GET", INFO, "").await.code, 200, "{user}");
        // They read it by a watch of that one object.
        let list = WATCH.replace("watch=1&", "");
        assert_eq!(server.send("", "GET", &list, "").await.code, 200, "{user}");
        let other = "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt";
        let secrets = "/api/v1/namespaces/kube-system/secrets/x";
        if user == "system:kube-scheduler" {
            assert_eq!(server.send("", "GET", other, "").await.code, 403);
            assert_eq!(server.send("", "GET", secrets, "").await.code, 403);
        }
        assert_eq!(server.send("", "DELETE", INFO, "").await.code, 403, "{user}");
    }
    assert_eq!(server.send("alice", "GET", INFO, "").await.code, 403);
}

#[tokio::test]
async fn whom_the_server_believes_is_told_truly_again() {
    let server = TestServer::start().await;
    let first = server.seen(WATCH, |_| true).await;
    let patch = json!({"data": {"client-ca-file": "mine"}}).to_string();
    let kind = "application/merge-patch+json";
    assert_eq!(server.send_as("admin", "PATCH", INFO, kind, patch).await.code, 200);
    server.seen(WATCH, |found: &Value| found["data"] == first["data"]).await;
}

/// With `--use-service-account-credentials` each controller is an account that the controller manager makes.
#[tokio::test]
async fn a_controller_acts_with_the_token_of_its_account() {
    let mut server = TestServer::start().await;
    server.show_certificate("system:kube-controller-manager", &[]);
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "ttl-controller"}});
    server.send("", "POST", accounts, &account.to_string()).await.created();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600}});
    let path = format!("{accounts}/ttl-controller/token");
    server.send("", "POST", &path, &request.to_string()).await.created();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager"}, "spec": {"holderIdentity": "me"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    server.send("", "POST", leases, &lease.to_string()).await.created();

    server.show_certificate("system:serviceaccount:kube-system:ttl-controller", &[]);
    assert_eq!(server.send("", "GET", "/api/v1/nodes", "").await.code, 200);
    assert_eq!(server.send("", "GET", "/api/v1/pods", "").await.code, 403);
}
