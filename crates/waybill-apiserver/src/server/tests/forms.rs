//! In which form a client gets what it asks for.

use serde_json::json;

use super::{TestServer, client::Reply};
use crate::protobuf;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-public/leases";

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl TestServer {
    async fn accepting(&self, accept: &str, method: &str, path: &str, body: &str) -> Reply {
        let headers = [
            ("accept", accept.to_owned()),
            ("authorization", "Bearer admin-token".to_owned()),
            ("content-type", "application/json".to_owned()),
        ];
        self.send_with(&headers, method, path, body).await
    }
}

fn lease(name: &str) -> String {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name}, "spec": {"holderIdentity": "me"}});
    lease.to_string()
}

#[tokio::test]
async fn a_client_that_takes_protobuf_alone_gets_protobuf() {
    let server = TestServer::start().await;
    let created = server.accepting(PROTOBUF, "POST", LEASES, &lease("a")).await;
    assert_eq!(created.code, 201, "{created:?}");
    let created = protobuf::decode(&created.body).unwrap();
    assert_eq!(created["spec"]["holderIdentity"], "me");
    let read = server.accepting(PROTOBUF, "GET", &format!("{LEASES}/a"), "").await;
    assert_eq!(protobuf::decode(&read.body).unwrap(), created);
    let list = server.accepting(PROTOBUF, "GET", LEASES, "").await;
    let item = protobuf::list_item(&created).unwrap();
    assert!(list.body.starts_with(b"k8s\0") && list.body.ends_with(&item), "{list:?}");
    // The watch ends by itself, after what there is.
    let path = format!("{LEASES}?watch=1&timeoutSeconds=1");
    let watch = server.accepting(&format!("{PROTOBUF};stream=watch"), "GET", &path, "").await;
    assert_eq!(watch.body, protobuf::encode_event("ADDED", &created).unwrap());
}

#[tokio::test]
async fn what_has_no_form_in_protobuf_is_not_acceptable() {
    let server = TestServer::start().await;
    let path = "/apis/storage.k8s.io/v1/providerclasses";
    let refused = server.accepting(PROTOBUF, "GET", path, "").await;
    assert_eq!(refused.code, 406, "{refused:?}");
    let both = server.accepting(&format!("{PROTOBUF}, application/json"), "GET", path, "").await;
    assert_eq!(both.json()["kind"], "ProviderClassList");
}

#[tokio::test]
async fn old_clients_get_the_table_of_their_version() {
    let server = TestServer::start().await;
    server.send("admin", "POST", LEASES, &lease("a")).await.created();
    for version in ["v1", "v1beta1"] {
        let accept = format!("application/json;as=Table;v={version};g=meta.k8s.io");
        let table = server.accepting(&accept, "GET", LEASES, "").await.json();
        assert_eq!(table["apiVersion"], format!("meta.k8s.io/{version}"));
        assert_eq!(table["rows"][0]["object"]["apiVersion"], format!("meta.k8s.io/{version}"));
    }
}

#[tokio::test]
async fn a_question_has_no_table() {
    let server = TestServer::start().await;
    let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(server.accepting(accept, "POST", path, &question.to_string()).await.code, 406);
    let answered = server.accepting("*/*", "POST", path, &question.to_string()).await;
    assert_eq!(answered.created()["status"]["allowed"], true);
}

/// Clients tell the two apart by the type of the answer.
#[tokio::test]
async fn discovery_comes_in_two_documents_to_those_who_take_them() {
    let server = TestServer::start().await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let both = format!("{aggregated},application/json");
    for path in ["/api", "/apis"] {
        let found = server.accepting(&both, "GET", path, "").await;
        assert_eq!(found.content_type.as_deref(), Some(aggregated), "{path}");
        assert_eq!(found.json()["kind"], "APIGroupDiscoveryList", "{path}");
        let found = server.accepting("application/json", "GET", path, "").await;
        assert_eq!(found.content_type.as_deref(), Some("application/json"), "{path}");
        assert_ne!(found.json()["kind"], "APIGroupDiscoveryList", "{path}");
    }
    let below = server.accepting(&both, "GET", "/api/v1", "").await;
    assert_eq!(below.json()["kind"], "APIResourceList");
}
