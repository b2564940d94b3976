//! What is on record of a request: who may, what was sent, why not, and what the server does by itself.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use super::{TestServer, client::JSON};

/// Whole requests.
const RECORD_BODIES: &str =
    "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Request}]}";

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start_with_bodies() -> TestServer {
    let policy = |config: &mut super::Config| {
        let path = config.audit_policy.as_ref().unwrap();
        fs::write(path, RECORD_BODIES).unwrap();
    };
    TestServer::start_with(policy).await
}

/// The events of a server that ended.
pub(super) async fn events(server: TestServer) -> Vec<Value> {
    let TestServer { server, dir, .. } = server;
    server.stop().await;
    let mut events = Vec::new();
    for name in ["audit.log", "anonymous.log"] {
        let log = fs::read_to_string(dir.path().join("audit").join(name)).unwrap_or_default();
        events.extend(log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    events.retain(|event| event["stage"] == "ResponseComplete");
    events
}

#[tokio::test]
async fn the_body_of_every_verb_is_on_record_at_level_request() {
    let server = start_with_bodies().await;
    let map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": value}})
            .to_string()
    };
    let object = format!("{MAPS}/m");
    let options = r#"{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}"#;
    let review = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/x","verb":"get"}}}"#;
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    server.send("admin", "POST", MAPS, &map("created")).await.created();
    assert_eq!(server.send("admin", "PUT", &object, &map("updated")).await.code, 200);
    let merge = "application/merge-patch+json";
    let patch = r#"{"data":{"k":"patched"}}"#;
    assert_eq!(server.send_as("admin", "PATCH", &object, merge, patch).await.code, 200);
    assert_eq!(server.send("admin", "DELETE", &object, options).await.code, 200);
    assert_eq!(server.send("admin", "DELETE", MAPS, options).await.code, 200);
    server.send("admin", "POST", reviews, review).await.created();
    let exec = "/api/v1/namespaces/default/pods/absent/exec?command=ls&container=c";
    assert_eq!(server.send("admin", "POST", exec, "").await.code, 404);

    let events = events(server).await;
    let body = |verb: &str, resource: &str, pointer: &str| {
        let found = events.iter().find(|event| {
            event["verb"] == verb
                && event["objectRef"]["resource"] == resource
                && event["user"]["username"] == "admin"
        });
        let event = found.unwrap_or_else(|| panic!("{verb} of {resource} is not on record"));
        let pointer = format!("/requestObject{pointer}");
        event.pointer(&pointer).cloned().unwrap_or_else(|| panic!("{pointer} in {event}"))
    };
    assert_eq!(body("create", "configmaps", "/data/k"), "created");
    assert_eq!(body("update", "configmaps", "/data/k"), "updated");
    assert_eq!(body("patch", "configmaps", "/data/k"), "patched");
    assert_eq!(body("delete", "configmaps", "/gracePeriodSeconds"), 0);
    assert_eq!(body("deletecollection", "configmaps", "/gracePeriodSeconds"), 0);
    assert_eq!(
        body("create", "selfsubjectaccessreviews", "/spec/nonResourceAttributes/path"),
        "/x"
    );
    assert_eq!(body("create", "pods", "/command/0"), "ls");
}

#[tokio::test]
async fn the_value_of_a_secret_is_on_record_at_no_level() {
    let server = start_with_bodies().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":"hunter2"}}"#;
    server.send("admin", "POST", secrets, secret).await.created();
    let patch = r#"{"stringData":{"k":"hunter2"}}"#;
    let (object, merge) = (format!("{secrets}/s"), "application/merge-patch+json");
    assert_eq!(server.send_as("admin", "PATCH", &object, merge, patch).await.code, 200);
    let events = events(server).await;
    assert!(events.iter().any(|event| event["objectRef"]["resource"] == "secrets"));
    let log = Value::Array(events).to_string();
    assert!(!log.contains("hunter2") && !log.contains("aHVudGVyMg"), "{log}");
}

#[tokio::test]
async fn the_answer_of_every_verb_about_one_object_is_on_record_at_level_request_response() {
    let server = TestServer::start_with(|config| {
        let all = RECORD_BODIES.replace("level: Request", "level: RequestResponse");
        fs::write(config.audit_policy.as_ref().unwrap(), all).unwrap();
    })
    .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}});
    let object = format!("{MAPS}/m");
    server.send("admin", "POST", MAPS, &map.to_string()).await.created();
    assert_eq!(server.send("admin", "GET", &object, "").await.code, 200);
    assert_eq!(server.send("alice", "GET", &object, "").await.code, 403);
    assert_eq!(server.send("admin", "DELETE", &object, "").await.code, 200);
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = r#"{"metadata":{"name":"s"},"stringData":{"k":"hunter2"}}"#;
    server.send("admin", "POST", secrets, secret).await.created();
    assert_eq!(server.send("admin", "GET", &format!("{secrets}/s"), "").await.code, 200);

    let events = events(server).await;
    let answered = |user: &str, verb: &str, pointer: &str| {
        let is_it = |event: &&Value| {
            event["verb"] == verb
                && event["user"]["username"] == user
                && event["objectRef"]["resource"] == "configmaps"
        };
        let event = events.iter().find(is_it).unwrap();
        event.pointer(&format!("/responseObject{pointer}")).cloned().unwrap_or_default()
    };
    assert_eq!(answered("admin", "create", "/data/k"), "v");
    assert_eq!(answered("admin", "get", "/data/k"), "v");
    assert_eq!(answered("admin", "delete", "/status"), "Success");
    assert_eq!(answered("alice", "get", "/reason"), "Forbidden");
    let log = Value::Array(events).to_string();
    assert!(!log.contains("hunter2") && !log.contains("aHVudGVyMg"), "{log}");
}

#[tokio::test]
async fn every_record_says_who_may_and_why() {
    let server = TestServer::start().await;
    assert_eq!(server.send("admin", "GET", MAPS, "").await.code, 200);
    assert_eq!(server.send("alice", "GET", MAPS, "").await.code, 403);
    let own = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    server.send("alice", "POST", own, review).await.created();
    let events = events(server).await;
    let note = |event: &Value, name: &str| {
        event["annotations"][format!("authorization.k8s.io/{name}")].as_str().map(str::to_owned)
    };
    for event in &events {
        let judged = event["user"]["username"] != "" && event["verb"] != "notice";
        let is_login = event["requestURI"] == "/login";
        if judged && !is_login {
            assert!(
                note(event, "decision").is_some() && note(event, "reason").is_some(),
                "{event}"
            );
        }
    }
    let of = |user: &str, code: u16| {
        let found = events.iter().find(|event| {
            event["user"]["username"] == user && event["responseStatus"]["code"] == code
        });
        found.unwrap_or_else(|| panic!("{user} {code}"))
    };
    let refused = of("alice", 403);
    assert_eq!(note(refused, "decision").unwrap(), "forbid");
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    let message = refused["responseStatus"]["message"].as_str().unwrap();
    assert!(message.contains("User \"alice\" cannot list resource \"configmaps\""), "{message}");
    let allowed = of("alice", 201);
    assert_eq!(note(allowed, "decision").unwrap(), "allow");
    let reason = note(allowed, "reason").unwrap();
    assert!(reason.starts_with("RBAC: allowed by ClusterRoleBinding"), "{reason}");
}

#[tokio::test]
async fn what_the_server_writes_by_itself_is_on_record() {
    let server = TestServer::start_with_account().await;
    let events = events(server).await;
    let users: BTreeSet<_> = events
        .iter()
        .filter(|event| event["responseStatus"]["code"] == 201)
        .filter_map(|event| event["user"]["username"].as_str())
        .collect();
    for user in ["system:apiserver", "system:serviceaccount:kube-system:service-account-controller"]
    {
        assert!(users.contains(user), "{user} is not among {users:?}");
    }
    let created = events.iter().find(|event| event["objectRef"]["resource"] == "serviceaccounts");
    let created = created.unwrap();
    assert_eq!(
        created["requestURI"],
        format!(
            "/api/v1/namespaces/{}/serviceaccounts",
            created["objectRef"]["namespace"].as_str().unwrap()
        )
    );
}

#[tokio::test]
async fn every_answer_says_by_what_name_it_is_on_record() {
    let server = TestServer::start().await;
    for (user, method, path) in [
        ("admin", "GET", "/readyz"),
        ("", "GET", "/healthz"),
        ("", "GET", MAPS),
        ("nobody", "GET", MAPS),
        ("alice", "GET", MAPS),
        ("admin", "GET", "/api/v1/namespaces/default/configmaps/absent"),
        ("admin", "GET", "/absent"),
        ("admin", "POST", MAPS),
        ("admin", "TRACE", MAPS),
    ] {
        let reply = server.send_as(user, method, path, JSON, "").await;
        let id = reply.audit_id.as_deref().unwrap_or_default();
        assert_eq!(id.len(), 36, "{method} {path} as {user:?}: {}", reply.code);
    }
}
