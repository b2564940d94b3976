//! Every write passes admission.
//!
//! The cases come from the registry, so a new resource or subresource cannot go around it unnoticed.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;
use waybill_api::status::Status;

use super::TestServer;
use crate::{
    admission::{Admission, Attributes, DynamicAdmission, Operation},
    document::put,
    registry::{RESOURCES, Resource},
};

/// What a rule was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    operation: &'static str,
    resource: String,
    name: String,
    kind: &'static str,
    user: String,
}

/// Lets the phase of mutation pass, writes down what it is shown, and refuses everything of `admin` once it is told to.
#[derive(Default)]
struct Gate {
    shown: Mutex<Vec<Shown>>,
    objects: Mutex<Vec<Value>>,
    closed: Mutex<bool>,
}

impl Gate {
    fn take(&self) -> Vec<Shown> {
        std::mem::take(&mut *self.shown.lock().unwrap())
    }
}

impl DynamicAdmission for Gate {
    fn watches(&self, _: &Attributes<'_>) -> bool {
        true
    }

    fn mutate<'a>(
        &'a self,
        _: &'a mut Attributes<'_>,
        _: &'a Admission,
    ) -> BoxFuture<'a, Result<bool, Status>> {
        Box::pin(async { Ok(false) })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        _: &'a Admission,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let Resource { group, version, plural, .. } = attributes.resource;
        let resource = format!("{group}/{version}/{plural}/{}", attributes.part());
        let kind = attributes.kind();
        let has_object = !attributes.object.is_null();
        assert_eq!(has_object, attributes.operation != Operation::Delete, "{resource}");
        let keeps_old = matches!(attributes.operation, Operation::Update | Operation::Delete);
        assert_eq!(!attributes.old.is_null(), keeps_old, "{resource}");
        // What is shown has the version of the request.
        for object in [&attributes.object, attributes.old] {
            if !object.is_null() {
                assert_eq!(object["kind"], attributes.kind().kind, "{resource}");
                assert_eq!(
                    object["apiVersion"],
                    api_version(kind.group, kind.version),
                    "{resource}"
                );
            }
        }
        self.shown.lock().unwrap().push(Shown {
            operation: attributes.operation.name(),
            resource,
            name: attributes.name().to_owned(),
            kind: kind.kind,
            user: attributes.user.name.clone(),
        });
        self.objects.lock().unwrap().push(attributes.object.clone());
        let refused = *self.closed.lock().unwrap() && attributes.user.name == "admin";
        let answer = if refused { Err(attributes.forbidden("the gate is closed")) } else { Ok(()) };
        Box::pin(async { answer })
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn base(resource: &Resource) -> String {
    let Resource { group, version, plural, .. } = resource;
    let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
    let place = if resource.is_namespaced() { "/namespaces/default" } else { "" };
    format!("{root}/{version}{place}/{plural}")
}

/// The least that makes an object of the resource.
fn object(resource: &'static Resource) -> Value {
    let mut object = match resource.kind {
        "Pod" => json!({"spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}}),
        "PodTemplate" => {
            json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}})
        }
        "Event" if resource.group.is_empty() => {
            json!({"involvedObject": {"namespace": "default", "name": "p", "kind": "Pod"}})
        }
        "Event" => json!({
            "regarding": {"namespace": "default", "name": "p", "kind": "Pod"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "R",
            "action": "A", "reportingController": "c", "reportingInstance": "i",
        }),
        "ClusterRoleBinding" | "RoleBinding" => json!({"roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
        }}),
        "ValidatingAdmissionPolicy" => json!({"spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
            }]},
            "validations": [{"expression": "true"}],
        }}),
        "ValidatingAdmissionPolicyBinding" => {
            json!({"spec": {"policyName": "x", "validationActions": ["Deny"]}})
        }
        "RuntimeClass" => json!({"handler": "h"}),
        "PriorityClass" => json!({"value": 1}),
        "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
        "EndpointSlice" => json!({"addressType": "IPv4", "endpoints": []}),
        "CertificateSigningRequest" => json!({"spec": {
            // A PEM block that says what it is and no more.
            "request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K",
            "signerName": "example.com/s", "usages": ["client auth"],
        }}),
        "CSINode" => json!({"spec": {"drivers": []}}),
        "ProviderClass" => json!({"spec": {
            "driver": "d.example.com", "allowedNamespaces": ["default"],
        }}),
        "SubjectAccessReview" | "SelfSubjectAccessReview" => json!({"spec": {
            "user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"},
        }}),
        "LocalSubjectAccessReview" => json!({"spec": {"user": "x", "resourceAttributes": {
            "namespace": "default", "verb": "get", "resource": "pods",
        }}}),
        "SelfSubjectRulesReview" => json!({"spec": {"namespace": "default"}}),
        "TokenReview" => json!({"spec": {"token": "t"}}),
        _ => json!({}),
    };
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.into();
    object["metadata"] = json!({"name": name(resource)});
    object
}

/// Two faces of a resource are not to meet in one object.
fn name(resource: &'static Resource) -> String {
    if std::ptr::eq(resource, resource.storage()) { "x" } else { "other" }.to_owned()
}

/// A body for a write to a part of an object, which is `current` now.
fn part_body(subresource: &str, current: &Value) -> Value {
    let metadata = json!({"name": current["metadata"]["name"], "namespace": "default"});
    match subresource {
        "binding" => json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"kind": "Node", "name": "n"}}),
        "eviction" => {
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
        }
        "token" => json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}),
        _ => current.clone(),
    }
}

async fn start() -> (TestServer, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let rules: Arc<dyn DynamicAdmission> = gate.clone();
    let server = TestServer::start_gated(rules).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts?watch=1";
    assert!(server.watch(accounts).await.next().await.is_some());
    (server, gate)
}

/// One write that must be refused by the gate, and shown to it as what it is.
async fn check(server: &TestServer, gate: &Gate, method: &str, path: &str, body: &Value) -> Shown {
    gate.take();
    let content_type =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = server.send_as("admin", method, path, content_type, body).await;
    let told = reply.json();
    assert_eq!(reply.code, 403, "{method} {path} goes around admission: {told}");
    assert!(told["message"].as_str().unwrap().contains("the gate is closed"), "{path}: {told}");
    let mut shown = gate.take();
    shown.retain(|shown| shown.user == "admin");
    assert_eq!(shown.len(), 1, "{method} {path}: {shown:?}");
    shown.remove(0)
}

#[tokio::test]
async fn no_write_goes_around_admission() {
    let (server, gate) = start().await;
    let stored = || RESOURCES.iter().copied().filter(|resource| resource.is_stored());
    for resource in stored() {
        server.make(&base(resource), &object(resource)).await;
    }
    *gate.closed.lock().unwrap() = true;
    for resource in RESOURCES.iter().copied() {
        let (base, object) = (base(resource), object(resource));
        let name = name(resource);
        let one = format!("{base}/{name}");
        let full = format!("{}/{}/{}/", resource.group, resource.version, resource.plural);
        let current = match resource.is_stored() {
            true => server.send("admin", "GET", &one, "").await.json(),
            false => Value::Null,
        };
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        for verb in resource.verbs {
            let (method, path, body, operation) = match *verb {
                "create" => ("POST", &base, &object, "CREATE"),
                "update" => ("PUT", &one, &current, "UPDATE"),
                "patch" => ("PATCH", &one, &patch, "UPDATE"),
                "delete" => ("DELETE", &one, &Value::Null, "DELETE"),
                "deletecollection" => ("DELETE", &base, &Value::Null, "DELETE"),
                _ => continue,
            };
            let shown = check(&server, &gate, method, path, body).await;
            let expected = (operation, &full, resource.kind);
            assert_eq!((shown.operation, &shown.resource, shown.kind), expected, "{verb}");
            if *verb != "deletecollection" {
                assert_eq!(shown.name, name, "{verb} {full}");
            }
        }
        for part in resource.subresources {
            let path = format!("{one}/{}", part.name);
            let body = part_body(part.name, &current);
            let full = format!("{full}{}", part.name);
            let kind = if part.kind.is_empty() { resource.kind } else { part.kind };
            let connects = part.kind.ends_with("Options");
            for verb in part.verbs {
                let (method, body, operation) = match *verb {
                    "get" if connects => ("GET", &Value::Null, "CONNECT"),
                    "create" if connects => ("POST", &Value::Null, "CONNECT"),
                    "create" => ("POST", &body, "CREATE"),
                    "update" => ("PUT", &body, "UPDATE"),
                    "patch" => ("PATCH", &patch, "UPDATE"),
                    _ => continue,
                };
                let shown = check(&server, &gate, method, &path, body).await;
                let told = (shown.operation, &shown.resource, shown.kind, &shown.name);
                assert_eq!(told, (operation, &full, kind, &name), "{verb}");
            }
        }
    }
    // Nothing of all that happened.
    for resource in stored() {
        let path = format!("{}/{}", base(resource), name(resource));
        let reply = server.send("admin", "GET", &path, "").await;
        assert_eq!(reply.code, 200, "{path}");
        assert!(reply.json()["metadata"]["labels"]["a"].is_null(), "{path}");
    }
}

/// KEP-6035: whoever writes policies sees the variables of a session.
#[tokio::test]
async fn the_variables_of_a_session_are_shown() {
    let (server, gate) = start().await;
    *gate.closed.lock().unwrap() = true;
    gate.objects.lock().unwrap().clear();
    let path = "/api/v1/namespaces/default/pods/p/exec?command=id&command=-u&stdout=1&env=A=1";
    check(&server, &gate, "POST", path, &Value::Null).await;
    let objects = gate.objects.lock().unwrap();
    let options = objects.iter().find(|object| object["kind"] == "PodExecOptions").unwrap();
    assert_eq!(options["command"], json!(["id", "-u"]));
    assert_eq!(options["env"], json!([{"name": "A", "value": "1"}]));
}

/// What the server does by itself is judged like the rest, under names of its own.
#[tokio::test]
async fn our_own_writes_are_shown_with_who_makes_them() {
    let (server, gate) = start().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    server.make("/api/v1/nodes", &node).await;
    let own = gate.take();
    let by = |resource: &str, name: &str| {
        let found = own.iter().find(|it| it.resource == resource && it.name == name);
        found.map(|shown| shown.user.clone()).unwrap_or_default()
    };
    assert_eq!(by("/v1/namespaces/", "default"), "system:apiserver");
    assert_eq!(
        by("/v1/serviceaccounts/", "default"),
        "system:serviceaccount:kube-system:service-account-controller"
    );
    assert_eq!(by("rbac.authorization.k8s.io/v1/clusterroles/", "view"), "system:apiserver");
}

/// Holds every write of `admin` until it is told to go on.
#[derive(Default)]
struct Brake {
    held: Notify,
    go_on: Notify,
}

impl DynamicAdmission for Brake {
    fn watches(&self, attributes: &Attributes<'_>) -> bool {
        attributes.user.name == "admin"
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a mut Attributes<'_>,
        _: &'a Admission,
    ) -> BoxFuture<'a, Result<bool, Status>> {
        Box::pin(async {
            self.held.notify_one();
            self.go_on.notified().await;
            put(&mut attributes.object, "/metadata/labels", json!({"seen": "yes"}));
            Ok(true)
        })
    }

    fn validate<'a>(
        &'a self,
        _: &'a Attributes<'_>,
        _: &'a Admission,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_change_that_was_begun_is_carried_through_when_its_client_leaves() {
    let brake = Arc::new(Brake::default());
    let rules: Arc<dyn DynamicAdmission> = brake.clone();
    let server = TestServer::start_gated(rules).await;
    let mut seen =
        server.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Dleft").await;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "left"}});
    let body = body.to_string();
    tokio::select! {
        reply = server.send("admin", "POST", "/api/v1/namespaces", &body) => panic!("{reply:?}"),
        // The client is gone with its future, and its connection with it.
        () = brake.held.notified() => {}
    }
    brake.go_on.notify_one();
    let event = seen.next().await.unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "left");
    assert_eq!(
        event["object"]["metadata"]["labels"]["seen"], "yes",
        "and what a rule changed counts"
    );
}
