//! What is on record of a request: who may, what was sent, why not, and what the server does by itself.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use super::{TestServer, client::JSON};
use crate::{
    audit::{Lifetime, RequestFacts, ResponseStatus, mint_id},
    authz::{Decision, Reason},
    cache::ObjectKey,
    request::{Action, ResourceTarget, Target, User},
};

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

/// Hole: a debug container that was added by server-side apply was on no record, and its processes led to nobody.
#[tokio::test]
async fn debug_containers_are_on_record_however_they_are_added() {
    let server = TestServer::start_with_account().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}});
    server.send("admin", "POST", pods, &pod.to_string()).await.created();
    let part = format!("{pods}/p/ephemeralcontainers");
    let debugger = |name: &str| json!({"name": name, "image": "i"});
    let with = |names: &[&str]| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"ephemeralContainers": names.iter().map(|name| debugger(name)).collect::<Vec<_>>()}})
    };
    let current = server.send("admin", "GET", &format!("{pods}/p"), "").await.json();
    let mut whole = current.clone();
    whole["spec"]["ephemeralContainers"] = json!([debugger("by-update")]);
    let add =
        json!([{"op": "add", "path": "/spec/ephemeralContainers/-", "value": debugger("by-json")}]);
    let merge = with(&["by-update", "by-json", "by-merge"]);
    let ways = [
        ("PUT", JSON, whole.to_string(), ""),
        ("PATCH", "application/json-patch+json", add.to_string(), ""),
        ("PATCH", "application/merge-patch+json", merge.to_string(), ""),
        ("PATCH", "application/strategic-merge-patch+json", with(&["by-strategy"]).to_string(), ""),
        (
            "PATCH",
            "application/apply-patch+yaml",
            with(&["by-apply"]).to_string(),
            "?fieldManager=m&force=1",
        ),
    ];
    for (method, kind, body, query) in ways {
        let reply = server.send_as("admin", method, &format!("{part}{query}"), kind, body).await;
        assert_eq!(reply.code, 200, "{kind}: {}", reply.text());
    }
    let events = events(server).await;
    let added: Vec<_> = events
        .iter()
        .filter_map(|event| {
            event.pointer("/annotations/pods.waybill.dev~1added-ephemeral-containers")
        })
        .collect();
    assert_eq!(added, ["by-update", "by-json", "by-merge", "by-strategy", "by-apply"]);
}

#[tokio::test]
async fn deletions_are_told_and_on_record_though_one_of_them_is_refused() {
    let server = TestServer::start().await;
    let admit = |kind: &str, spec: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "keep"}, "spec": spec})
        .to_string()
    };
    let policy = admit(
        "ValidatingAdmissionPolicy",
        json!({
            "matchConstraints": {"resourceRules": [{"operations": ["DELETE"], "apiGroups": [""],
                "apiVersions": ["v1"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "oldObject.metadata.name != 'zzz'", "reason": "Forbidden"}],
        }),
    );
    let binding = admit(
        "ValidatingAdmissionPolicyBinding",
        json!({
            "policyName": "keep", "validationActions": ["Deny"],
        }),
    );
    let group = "/apis/admissionregistration.k8s.io/v1";
    server
        .send("admin", "POST", &format!("{group}/validatingadmissionpolicies"), &policy)
        .await
        .created();
    server
        .send("admin", "POST", &format!("{group}/validatingadmissionpolicybindings"), &binding)
        .await
        .created();
    for name in ["aaa", "zzz"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"mine": "yes"}}});
        server.send("admin", "POST", MAPS, &map.to_string()).await.created();
    }
    let reply = server.send("admin", "DELETE", &format!("{MAPS}?labelSelector=mine"), "").await;
    assert_eq!(reply.code, 403, "{}", reply.text());
    assert!(
        reply.text().contains("1 of 2 objects were deleted before this one"),
        "{}",
        reply.text()
    );
    let events = events(server).await;
    assert!(events.iter().any(|event| event["verb"] == "deletecollection"), "it is on no record");
}

/// Uses up what the log has for reads of a Secret that `admin` was given before, without the work of as many requests.
async fn read_often(server: &TestServer, name: &str) {
    let [verb, version, resource, namespace, name] =
        ["get", "v1", "secrets", "default", name].map(str::to_owned);
    let key = ObjectKey::new(&namespace, &name);
    let target = ResourceTarget { version, resource, namespace, name, ..ResourceTarget::default() };
    let action = Action { verb, target: Target::Resource(target) };
    let user = User { name: "admin".to_owned(), ..User::default() };
    for _ in 0..12_000 {
        let facts = RequestFacts {
            id: mint_id(),
            user: &user,
            impersonated: None,
            action: &action,
            decision: Some(&Decision::Allow { reason: Reason::None }),
            uri: "",
            source_ips: &[],
            user_agent: "",
            lifetime: Lifetime::Short,
        };
        let mut audit = server.server.api.recorder.begin(facts).await.unwrap();
        audit.gives([&key].into_iter());
        audit.complete(ResponseStatus::code(200)).await.unwrap();
    }
}

/// Hole: after some thousand reads of a Secret of their own, a user read that of another without a line in the log.
#[tokio::test]
async fn a_read_of_a_secret_is_on_record_however_often_others_were_read() {
    let server = TestServer::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["own", "got", "listed", "watched"] {
        let secret = format!(r#"{{"metadata":{{"name":"{name}"}},"stringData":{{"k":"v"}}}}"#);
        server.send("admin", "POST", secrets, &secret).await.created();
    }
    read_often(&server, "own").await;
    for path in [
        "/got",
        "?fieldSelector=metadata.name%3Dlisted",
        "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dwatched",
    ] {
        let code = server.send("admin", "GET", &format!("{secrets}{path}"), "").await.code;
        assert_eq!(code, 200, "{path}");
    }
    let events = events(server).await;
    let reads = |name: &str| {
        let is_read = |event: &&Value| {
            ["get", "list", "watch"].iter().any(|verb| event["verb"] == *verb)
                && event["objectRef"]["resource"] == "secrets"
                && event["objectRef"]["name"] == name
        };
        events.iter().filter(is_read).count()
    };
    assert!((1..12_000).contains(&reads("own")), "{}", reads("own"));
    assert_eq!(["got", "listed", "watched"].map(reads), [1, 1, 1]);
    assert!(events.iter().any(|event| event["verb"] == "notice"));
}
