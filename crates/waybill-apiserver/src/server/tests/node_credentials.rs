//! What whoever has the credentials of one node cannot do with them: the `NodeRestriction` plugin of
//! Kubernetes, through the front door and with a real certificate.

use serde_json::{Value, json};

use super::{
    TestServer,
    client::{JSON, Reply},
};
use crate::document::at_mut;

const MERGE: &str = "application/merge-patch+json";
const NODE: &str = "/api/v1/nodes/n1";
const POD: &str = "/api/v1/namespaces/default/pods/p";
const POD_STATUS: &str = "/api/v1/namespaces/default/pods/p/status";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// Where, what, to which value; then the refusal, or nothing if the node may.
type Attempt = (&'static str, &'static str, Value, Option<&'static str>);

/// Everything that a node may try on objects of its own. Each is tried by `update` and by `patch`.
fn attempts() -> Vec<Attempt> {
    let labels = Some("is not allowed to modify labels: ");
    let taints = Some("node \"n1\" is not allowed to modify taints");
    let owners = Some("node \"n1\" is not allowed to modify ownerReferences");
    let finalizers = Some("node \"n1\" is not allowed to modify finalizers");
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}]);
    let mut attempts: Vec<Attempt> = Vec::new();
    for path in [NODE, "/api/v1/nodes/n1/status"] {
        attempts.extend([
            (path, "/metadata/labels/node-restriction.kubernetes.io~1tier", json!("x"), labels),
            (path, "/metadata/labels/a.node-restriction.kubernetes.io~1tier", json!("x"), labels),
            (path, "/metadata/labels/node-role.kubernetes.io~1control-plane", json!(""), labels),
            (path, "/metadata/labels/node-role.kubernetes.io~1worker", Value::Null, labels),
            (path, "/metadata/labels/pool.k8s.io~1secure", json!("yes"), labels),
            (path, "/metadata/labels", Value::Null, labels),
            (path, "/spec/taints", json!([]), taints),
            (path, "/spec/taints", Value::Null, taints),
            (path, "/spec/taints", json!([{"key": "b", "effect": "NoSchedule"}]), taints),
            (path, "/metadata/ownerReferences", owner.clone(), owners),
            (path, "/metadata/finalizers", json!(["a/b"]), finalizers),
            (path, "/metadata/labels/kubernetes.io~1hostname", json!("h"), None),
            (path, "/metadata/labels/topology.kubernetes.io~1zone", json!("z"), None),
            (path, "/metadata/labels/node.kubernetes.io~1type", json!("t"), None),
            (path, "/metadata/labels/example.com~1pool", json!("p"), None),
            (path, "/metadata/annotations/example.com~1note", json!("n"), None),
        ]);
    }
    let through = |what| {
        Some(match what {
            "labels" => "node \"n1\" cannot update labels through pod status",
            "annotations" => "node \"n1\" cannot update annotations through pod status",
            "finalizers" => "node \"n1\" cannot update finalizers through pod status",
            "ownerReferences" => "node \"n1\" cannot update ownerReferences through pod status",
            _ => "node \"n1\" cannot update resource claim statuses",
        })
    };
    attempts.extend([
        (POD_STATUS, "/metadata/labels/app", json!("other"), through("labels")),
        (POD_STATUS, "/metadata/labels/new", json!("x"), through("labels")),
        (POD_STATUS, "/metadata/labels", Value::Null, through("labels")),
        (POD_STATUS, "/metadata/annotations/x", json!("y"), through("annotations")),
        (POD_STATUS, "/metadata/finalizers", json!([]), through("finalizers")),
        (POD_STATUS, "/metadata/finalizers", json!(["a/b", "c/d"]), through("finalizers")),
        (POD_STATUS, "/metadata/ownerReferences", owner, through("ownerReferences")),
        (
            POD_STATUS,
            "/status/resourceClaimStatuses",
            json!([{"name": "c", "resourceClaimName": "other"}]),
            through("claims"),
        ),
        (POD_STATUS, "/status/message", json!("it runs"), None),
        (POD, "/metadata/labels/app", json!("other"), Some("cannot")),
        (POD, "/spec/activeDeadlineSeconds", json!(5), Some("cannot")),
    ]);
    attempts
}

/// Node n1 with a taint and a role, its pod p, and pod q of another node; every request without a
/// token comes from n1.
async fn start() -> TestServer {
    let mut server = TestServer::start_with_account().await;
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    server.send("admin", "POST", "/api/v1/nodes", &node.to_string()).await.created();
    for (name, node) in [("p", "n1"), ("q", "n2")] {
        let audience = json!({"serviceAccountToken": {"path": "vault", "audience": "vault"}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}, "finalizers": ["a/b"]},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "projected": {"sources": [audience]}}]}});
        let pods = "/api/v1/namespaces/default/pods";
        server.send("admin", "POST", pods, &pod.to_string()).await.created();
    }
    server.show_certificate("system:node:n1", &["system:nodes"]);
    server
}

impl TestServer {
    async fn read(&self, path: &str) -> Value {
        let reply = self.send("admin", "GET", path, "").await;
        assert_eq!(reply.code, 200, "{path}: {reply:?}");
        reply.json()
    }

    /// Tries it as the node by this method; nothing may have changed if it is refused.
    async fn attempt(&self, method: &str, attempt: &Attempt) {
        let (path, pointer, value, refusal) = attempt;
        let before = self.read(path).await;
        let (body, content_type) = match method {
            "PUT" => (with(before.clone(), pointer, value), JSON),
            _ => (merge_patch(pointer, value), MERGE),
        };
        let reply = self.send_as("", method, path, content_type, body.to_string()).await;
        let after = self.read(path).await;
        let told = format!("{method} {path} {pointer} {value}: {reply:?}");
        match refusal {
            Some(words) => {
                assert_eq!(reply.code, 403, "{told}");
                assert!(reply.json()["message"].as_str().unwrap().contains(words), "{told}");
                assert_eq!(after, before, "{told}");
            }
            None => {
                assert_eq!(reply.code, 200, "{told}");
                assert_eq!(after.pointer(pointer), Some(value), "{told}");
            }
        }
    }

    /// A role with these rules, and a further node n3 and its lease to try them on.
    async fn grant_nodes(&self, rules: &Value) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": "nodes"}, "rules": rules});
        let binding = json!({"metadata": {"name": "nodes"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodes"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]});
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let n3 = json!({"metadata": {"name": "n3"}});
        for (path, mut object, (version, kind)) in [
            (format!("{rbac}/clusterroles"), role, ("rbac.authorization.k8s.io/v1", "ClusterRole")),
            (
                format!("{rbac}/clusterrolebindings"),
                binding,
                ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
            ),
            (lease.to_owned(), n3.clone(), ("coordination.k8s.io/v1", "Lease")),
            ("/api/v1/nodes".to_owned(), n3, ("v1", "Node")),
        ] {
            object["apiVersion"] = version.into();
            object["kind"] = kind.into();
            self.send("admin", "POST", &path, &object.to_string()).await.created();
        }
    }

    async fn ask_token(&self, audiences: &Value, bound: &Value) -> Reply {
        let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": audiences, "expirationSeconds": 3600, "boundObjectRef": bound}});
        self.send("", "POST", TOKEN, &question.to_string()).await
    }
}

/// `object` with `value` at `pointer`; null takes away.
fn with(mut object: Value, pointer: &str, value: &Value) -> Value {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let parent = at_mut(&mut object, parent);
    match parent.as_object_mut() {
        Some(fields) if value.is_null() => drop(fields.remove(&unescaped(last))),
        Some(fields) => drop(fields.insert(unescaped(last), value.clone())),
        None => *parent = json!({unescaped(last): value}),
    }
    object
}

/// The merge patch that sets `value` at `pointer`.
fn merge_patch(pointer: &str, value: &Value) -> Value {
    let parts = pointer.rsplit('/').filter(|part| !part.is_empty());
    parts.fold(value.clone(), |inner, part| json!({unescaped(part): inner}))
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/")
}

/// Hole: labels and taints of its Node and the metadata of its pods were the node's to rewrite.
#[tokio::test]
async fn a_node_changes_only_what_a_kubelet_may_change() {
    let server = start().await;
    for attempt in attempts() {
        for method in ["PUT", "PATCH"] {
            server.attempt(method, &attempt).await;
        }
    }
}

/// Hole: a node got a token of any account of its pods, bound to nothing, for any audience, that was
/// good for a day whatever became of the pod.
#[tokio::test]
async fn a_node_gets_tokens_of_its_own_pods_only_and_for_their_audiences() {
    let server = start().await;
    let pod = server.read(POD).await["metadata"]["uid"].clone();
    let other = "/api/v1/namespaces/default/pods/q";
    let other = server.read(other).await["metadata"]["uid"].clone();
    let to = |name: &str, uid: &Value| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    let (own, none) = (to("p", &pod), json!([]));
    let not_bound = Some("node requested token not bound to a pod");
    let no_audience = Some("not found in pod spec volume");
    for (audiences, bound, refusal) in [
        (&none, Value::Null, not_bound),
        (&none, json!({"apiVersion": "v1", "kind": "Node", "name": "n1"}), not_bound),
        (&none, json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u"}), not_bound),
        (&none, json!({"kind": "Pod", "name": "p", "uid": pod}), not_bound),
        (&none, json!({"apiVersion": "v1", "kind": "Pod", "name": "p"}), Some("without a uid")),
        (&none, to("p", &json!("u")), Some("does not match the UID in record")),
        (&none, to("q", &other), Some("a pod scheduled on a different node")),
        (&none, to("gone", &pod), Some("pods \"gone\" not found")),
        (&json!(["a", "b"]), own.clone(), Some("node may only request 0 or 1 audiences")),
        (&json!(["payments"]), own.clone(), no_audience),
        (&json!(["vault"]), own.clone(), None),
        (&none, own.clone(), None),
        (&json!([super::super::ISSUER]), own, None),
    ] {
        let reply = server.ask_token(audiences, &bound).await;
        let told = format!("{audiences} {bound}: {reply:?}");
        match refusal {
            Some(words) => {
                assert!(matches!(reply.code, 403 | 404), "{told}");
                assert!(reply.json()["message"].as_str().unwrap().contains(words), "{told}");
            }
            None => assert_eq!(reply.code, 201, "{told}"),
        }
    }
}

/// The audience that a pod does not use can be granted, with upstream's verb.
#[tokio::test]
async fn a_role_grants_nodes_further_audiences() {
    let server = start().await;
    let rules = json!([{"apiGroups": [""], "resources": ["payments"],
        "verbs": ["request-serviceaccounts-token-audience"]}]);
    server.grant_nodes(&rules).await;
    let pod = server.read(POD).await["metadata"]["uid"].clone();
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod});
    let granted = server.ask_token(&json!(["payments"]), &bound).await;
    assert_eq!(granted.code, 201, "{granted:?}");
    assert_eq!(server.ask_token(&json!(["other"]), &bound).await.code, 403);
}

/// What roles grant to nodes does not lift the restrictions, as upstream.
#[tokio::test]
async fn a_node_with_every_right_still_writes_only_what_is_its_own() {
    let server = start().await;
    server.grant_nodes(&json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await;
    let pods = "/api/v1/namespaces/default/pods";
    let unbound = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "u"},
        "spec": {"nodeSelector": {"nowhere": "x"}, "containers": [{"name": "c", "image": "i"}]}});
    server.send("admin", "POST", pods, &unbound.to_string()).await.created();
    let leases = "/apis/coordination.k8s.io/v1/namespaces";
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "u"},
        "target": {"kind": "Node", "name": "n1"}});
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}});
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let status = json!({"status": {"message": "m"}});
    for (method, path, body, refusal) in [
        ("POST", pods.to_owned(), pod, "can only create mirror pods"),
        (
            "PATCH",
            POD.to_owned(),
            json!({"metadata": {"labels": {"a": "b"}}}),
            "can only create and delete mirror pods",
        ),
        (
            "DELETE",
            format!("{pods}/q"),
            Value::Null,
            "can only delete pods with spec.nodeName set to itself",
        ),
        (
            "DELETE",
            pods.to_owned(),
            Value::Null,
            "can only delete pods with spec.nodeName set to itself",
        ),
        ("POST", format!("{pods}/q/eviction"), eviction, "with spec.nodeName set to itself"),
        ("POST", format!("{pods}/u/binding"), binding, "unexpected pod subresource \"binding\""),
        ("PATCH", format!("{POD}/ephemeralcontainers"), json!({}), "unexpected pod subresource"),
        ("PATCH", format!("{POD}/resize"), json!({}), "unexpected pod subresource"),
        (
            "PATCH",
            format!("{pods}/q/status"),
            status.clone(),
            "for pods with spec.nodeName set to itself",
        ),
        ("POST", "/api/v1/nodes".to_owned(), node, "is not allowed to modify node \"n2\""),
        (
            "PATCH",
            "/api/v1/nodes/n3".to_owned(),
            status.clone(),
            "is not allowed to modify node \"n3\"",
        ),
        (
            "PATCH",
            "/api/v1/nodes/n3/status".to_owned(),
            status,
            "is not allowed to modify node \"n3\"",
        ),
        (
            "DELETE",
            "/api/v1/nodes/n3".to_owned(),
            Value::Null,
            "is not allowed to modify node \"n3\"",
        ),
        (
            "POST",
            format!("{leases}/default/leases"),
            lease("n1"),
            "\"kube-node-lease\" system namespace",
        ),
        (
            "POST",
            format!("{leases}/kube-node-lease/leases"),
            lease("n2"),
            "the same name as the requesting node",
        ),
        (
            "PATCH",
            format!("{leases}/kube-node-lease/leases/n3"),
            json!({}),
            "the same name as the requesting node",
        ),
        (
            "DELETE",
            format!("{leases}/kube-node-lease/leases/n3"),
            Value::Null,
            "the same name as the requesting node",
        ),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let content_type = if method == "PATCH" { MERGE } else { JSON };
        let reply = server.send_as("", method, &path, content_type, body).await;
        assert_eq!(reply.code, 403, "{method} {path}: {reply:?}");
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(refusal), "{method} {path}: {message}");
    }
}

/// A node makes itself known with the labels of a kubelet, taints included, and with no others.
#[tokio::test]
async fn a_node_registers_with_the_labels_of_a_kubelet_only() {
    let server = start().await;
    assert_eq!(server.send("admin", "DELETE", NODE, "").await.code, 200);
    let node = |label: &str| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "labels": {label: "x"}},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
        .to_string()
    };
    for label in
        ["node-role.kubernetes.io/master", "node-restriction.kubernetes.io/a", "x.k8s.io/y"]
    {
        let reply = server.send("", "POST", "/api/v1/nodes", &node(label)).await;
        assert_eq!(reply.code, 403, "{label}: {reply:?}");
        let words = format!("node \"n1\" is not allowed to set the following labels: {label}");
        assert!(reply.json()["message"].as_str().unwrap().contains(&words), "{reply:?}");
    }
    server.send("", "POST", "/api/v1/nodes", &node("kubernetes.io/os")).await.created();
}

/// A mirror belongs to the node that there is, not to one that was.
#[tokio::test]
async fn a_mirror_names_the_uid_of_its_node() {
    let server = start().await;
    let uid = server.read(NODE).await["metadata"]["uid"].clone();
    let mirror = |uid: &Value| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid,
                    "controller": true}]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
        .to_string()
    };
    let pods = "/api/v1/namespaces/default/pods";
    let reply = server.send("", "POST", pods, &mirror(&json!("other"))).await;
    assert_eq!(reply.code, 403, "{reply:?}");
    assert!(reply.json()["message"].as_str().unwrap().contains("UID mismatch"), "{reply:?}");
    server.send("", "POST", pods, &mirror(&uid)).await.created();
}

/// Own pods may be evicted, others not.
#[tokio::test]
async fn a_node_evicts_its_own_pods() {
    let server = start().await;
    let eviction = |name: &str| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
            .to_string()
    };
    let path = |name: &str| format!("/api/v1/namespaces/default/pods/{name}/eviction");
    assert_eq!(server.send("", "POST", &path("q"), &eviction("q")).await.code, 403);
    server.send("", "POST", &path("p"), &eviction("p")).await.created();
}

/// The path says who is evicted, and a body that names another pod was taken all the same.
#[tokio::test]
async fn an_eviction_names_the_pod_of_its_path() {
    let server = start().await;
    let eviction = |metadata: Value| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}).to_string()
    };
    let path = "/api/v1/namespaces/default/pods/p/eviction";
    for (metadata, told) in [
        (json!({"name": "q"}), "name in URL does not match name in Eviction object"),
        (json!({}), "name in URL does not match name in Eviction object"),
        (
            json!({"name": "p", "namespace": "other"}),
            "the namespace of the provided object does not match",
        ),
    ] {
        let reply = server.send("", "POST", path, &eviction(metadata)).await;
        assert_eq!(reply.code, 400, "{reply:?}");
        assert!(reply.json()["message"].as_str().unwrap().starts_with(told), "{reply:?}");
    }
    let right = json!({"name": "p", "namespace": "default"});
    server.send("", "POST", path, &eviction(right)).await.created();
}
