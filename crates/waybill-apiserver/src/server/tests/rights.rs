//! What people with narrow rights, nodes, service accounts and strangers try, through the front door.
//!
//! Each attempt is one line: who, what, and the answer. Most are refused; the others show that the same users may do
//! what they were given, so that a server which refuses everything fails too.

use std::fs;

use serde_json::{Value, json};

use super::TestServer;

/// Everybody but the administrator: token, name, uid, groups.
const PEOPLE: &str = "admin-token,admin,1,\"system:masters\"
viewer-token,viewer,2,\"\"
editor-token,editor,3,\"\"
reader-token,reader,4,\"\"
granter-token,granter,5,\"\"
actor-token,actor,6,\"\"
proxy-token,proxy,7,\"\"
node-token,system:node:n1,8,\"system:nodes\"
imposter-token,system:node:n1,9,\"\"
master-token,system:masters,10,\"\"
";

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const A: &str = "/api/v1/namespaces/a";
const B: &str = "/api/v1/namespaces/b";

/// Who, method, path, body, code; `ns/` and `rbac/` at the start of a path stand for the long forms.
type Attempt = (&'static str, &'static str, &'static str, &'static str, u16);

const EMPTY: &str = "";
const MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}"#;
const REVIEW: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"x","nonResourceAttributes":{"path":"/","verb":"get"}}}"#;
const TOKEN: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#;
const MORE: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"more"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}"#;
const ALL: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"all"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#;
const SAME: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"same"},"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["create"]}]}"#;
const BIND_ADMIN: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"up"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"granter"}]}"#;
const NODE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n3"}}"#;
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"},"spec":{"serviceAccountName":"robot","nodeName":"n2","containers":[{"name":"c","image":"i"}]}}"#;

/// A role for everything in one namespace leads nowhere else, and neither up.
const PEOPLE_TRY: &[Attempt] = &[
    ("viewer", "GET", "ns/a/configmaps/c", EMPTY, 200),
    ("viewer", "GET", "ns/a/pods", EMPTY, 200),
    ("viewer", "GET", "ns/a/secrets/s", EMPTY, 403),
    ("viewer", "GET", "ns/a/secrets", EMPTY, 403),
    ("viewer", "GET", "ns/a/secrets?watch=1", EMPTY, 403),
    ("viewer", "GET", "ns/a//secrets", EMPTY, 403),
    ("viewer", "GET", "ns/a/%73ecrets/s", EMPTY, 403),
    ("viewer", "GET", "ns/a/configmaps/..%2fsecrets%2fs", EMPTY, 404),
    ("viewer", "GET", "ns/a/configmaps/../secrets/s", EMPTY, 403),
    ("viewer", "GET", "ns/b/configmaps/c", EMPTY, 403),
    ("viewer", "GET", "/api/v1/configmaps", EMPTY, 403),
    ("viewer", "GET", "/api/v1/configmaps?fieldSelector=metadata.namespace%3Da", EMPTY, 403),
    ("viewer", "GET", "/api/v1/watch/namespaces/a/secrets", EMPTY, 403),
    ("viewer", "POST", "ns/a/configmaps", MAP, 403),
    ("viewer", "POST", "ns/a/configmaps?dryRun=All", MAP, 403),
    ("viewer", "PUT", "ns/a/configmaps/c", MAP, 403),
    ("viewer", "PATCH", "ns/a/configmaps/c", "{}", 403),
    ("viewer", "DELETE", "ns/a/configmaps/c", EMPTY, 403),
    ("viewer", "DELETE", "ns/a/configmaps", EMPTY, 403),
    ("viewer", "GET", "ns/a/pods/p/exec?command=id", EMPTY, 403),
    ("viewer", "POST", "ns/a/pods/p/exec?command=id", EMPTY, 403),
    ("viewer", "POST", "ns/a/pods/p/attach", EMPTY, 403),
    ("viewer", "POST", "ns/a/pods/p/portforward", EMPTY, 403),
    ("viewer", "POST", "ns/a/serviceaccounts/robot/token", TOKEN, 403),
    ("viewer", "GET", "rbac/namespaces/a/roles", EMPTY, 403),
    ("viewer", "GET", "/api/v1/nodes", EMPTY, 403),
    ("viewer", "GET", "/metrics", EMPTY, 403),
    ("viewer", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", REVIEW, 403),
    ("editor", "GET", "ns/a/secrets/s", EMPTY, 200),
    ("editor", "POST", "ns/a/configmaps", MAP, 201),
    ("editor", "GET", "ns/b/secrets/s", EMPTY, 403),
    ("editor", "POST", "ns/b/configmaps", MAP, 403),
    ("editor", "PATCH", "ns/a/pods/p/status", "{}", 403),
    ("editor", "POST", "ns/a/pods/p/binding", "{}", 403),
    ("editor", "PATCH", "ns/a/pods/p/ephemeralcontainers", "{}", 403),
    ("editor", "DELETE", "ns/a", EMPTY, 403),
    ("editor", "POST", "rbac/namespaces/a/roles", SAME, 403),
    ("editor", "GET", "/api/v1/nodes/n1/proxy/metrics", EMPTY, 403),
    // One object by its name.
    ("reader", "GET", "ns/a/configmaps/c", EMPTY, 200),
    ("reader", "GET", "ns/a/configmaps/other", EMPTY, 403),
    ("reader", "GET", "ns/a/configmaps", EMPTY, 403),
    ("reader", "GET", "ns/a/configmaps?watch=1", EMPTY, 403),
    ("reader", "GET", "ns/b/configmaps/c", EMPTY, 403),
    ("reader", "PATCH", "ns/a/configmaps/c", "{}", 403),
    // Who gives rights gives only what they have.
    ("granter", "POST", "rbac/namespaces/a/roles", SAME, 201),
    ("granter", "POST", "rbac/namespaces/a/roles", MORE, 403),
    ("granter", "POST", "rbac/namespaces/a/roles", ALL, 403),
    ("granter", "POST", "rbac/namespaces/a/rolebindings", BIND_ADMIN, 403),
    ("granter", "POST", "rbac/namespaces/b/roles", SAME, 403),
    ("granter", "PATCH", "rbac/clusterroles/view", "{}", 403),
    ("granter", "DELETE", "rbac/clusterrolebindings/cluster-admin", EMPTY, 403),
    // A right to a part is none to the whole, and the other way round.
    ("proxy", "GET", "/api/v1/nodes/n1", EMPTY, 403),
    ("proxy", "GET", "ns/a/pods/p", EMPTY, 403),
    ("proxy", "DELETE", "/api/v1/nodes/n1", EMPTY, 403),
    // The name of a group is no group.
    ("master", "GET", "ns/a/secrets/s", EMPTY, 403),
];

const NODES_TRY: &[Attempt] = &[
    ("node", "GET", "/api/v1/nodes/n1", EMPTY, 200),
    ("node", "GET", "ns/a/secrets/s", EMPTY, 200),
    ("node", "GET", "ns/a/secrets", EMPTY, 403),
    ("node", "GET", "ns/a/secrets/other", EMPTY, 403),
    ("node", "GET", "ns/b/secrets/s", EMPTY, 403),
    ("node", "GET", "/api/v1/secrets", EMPTY, 403),
    ("node", "GET", "/api/v1/nodes/n2", EMPTY, 403),
    ("node", "DELETE", "/api/v1/nodes/n2", EMPTY, 403),
    ("node", "PATCH", "/api/v1/nodes/n2/status", "{}", 403),
    ("node", "POST", "/api/v1/nodes", NODE, 403),
    ("node", "POST", "ns/a/pods", POD, 403),
    ("node", "DELETE", "ns/a/pods/q", EMPTY, 403),
    ("node", "PATCH", "ns/a/pods/q/status", "{}", 403),
    ("node", "POST", "ns/a/serviceaccounts/other/token", TOKEN, 403),
    ("node", "POST", "ns/a/pods/p/exec?command=id", EMPTY, 403),
    ("node", "GET", "rbac/clusterroles", EMPTY, 403),
    // The name of a node without its group.
    ("imposter", "GET", "/api/v1/nodes/n1", EMPTY, 403),
    ("imposter", "GET", "ns/a/secrets/s", EMPTY, 403),
];

/// `robot` has a real token; the others show what they have in its place.
const OTHERS_TRY: &[Attempt] = &[
    ("robot", "GET", "ns/a/pods", EMPTY, 200),
    ("robot", "GET", "ns/b/pods", EMPTY, 403),
    ("robot", "GET", "ns/a/secrets/s", EMPTY, 403),
    ("robot", "POST", "ns/a/serviceaccounts/robot/token", TOKEN, 403),
    ("robot", "GET", "/apis", EMPTY, 200),
    ("cut", "GET", "ns/a/pods", EMPTY, 401),
    ("unsigned", "GET", "ns/a/pods", EMPTY, 401),
    ("stranger", "GET", "ns/a/pods", EMPTY, 401),
    ("nobody", "GET", "/healthz", EMPTY, 200),
    ("nobody", "GET", "/api", EMPTY, 401),
    ("nobody", "GET", "ns/a/pods", EMPTY, 401),
    ("nobody", "POST", "ns/a/configmaps", MAP, 401),
    ("nobody", "GET", "/metrics", EMPTY, 401),
    ("nobody", "POST", "/healthz", EMPTY, 403),
];

/// Acting as somebody: the headers, and the answer to a list of pods in `a`, with `actor`'s token.
const ACTING: &[(&[(&str, &str)], u16)] = &[
    (&[("Impersonate-User", "viewer")], 200),
    (&[("Impersonate-User", "admin")], 403),
    (&[("Impersonate-User", "viewer"), ("Impersonate-Group", "system:masters")], 403),
    (&[("Impersonate-Group", "system:masters")], 400),
    (&[("Impersonate-User", "viewer"), ("Impersonate-Uid", "1")], 403),
    (&[("Impersonate-User", "viewer"), ("Impersonate-Extra-x", "y")], 403),
    (&[("Impersonate-User", "system:serviceaccount:a:robot")], 403),
    (&[("Impersonate-User", "")], 400),
    (&[("Impersonate-User", "viewer"), ("Impersonate-User", "admin")], 400),
];

/// Headers that proxies set, sent by somebody who is none: they give nothing to whom has nothing.
const FORGED: &[(&str, &str)] = &[
    ("X-Remote-User", "admin"),
    ("X-Remote-Group", "system:masters"),
    ("X-Remote-Extra-scopes", "all"),
    ("X-Remote-Uid", "1"),
    ("X-Forwarded-User", "admin"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("X-Forwarded-Client-Cert", "Subject=\"O=system:masters,CN=admin\""),
    ("X-Forwarded-Host", "localhost"),
    ("X-Original-URL", "/healthz"),
    ("X-Rewrite-URL", "/healthz"),
    ("X-HTTP-Method-Override", "GET"),
    ("X-Client-Cert", "admin"),
    ("X-SSL-Client-CN", "admin"),
    ("X-User", "admin"),
    ("Forwarded", "for=127.0.0.1;by=admin"),
    ("Cookie", "token=admin-token"),
    ("Proxy-Authorization", "Bearer admin-token"),
    ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4x"),
    ("Audit-ID", "admin"),
];

fn full(path: &str) -> String {
    match path.split_once('/') {
        Some(("ns", rest)) => format!("/api/v1/namespaces/{rest}"),
        Some(("rbac", rest)) => format!("{RBAC}/{rest}"),
        _ => path.to_owned(),
    }
}

async fn start() -> TestServer {
    let server = TestServer::start_with(|config| {
        fs::write(config.token_file.as_ref().unwrap(), PEOPLE).unwrap();
    })
    .await;
    for namespace in ["a", "b"] {
        server.make("/api/v1/namespaces", &named("Namespace", namespace)).await;
    }
    for place in [A, B] {
        server.make(&format!("{place}/configmaps"), &named("ConfigMap", "c")).await;
        server.make(&format!("{place}/secrets"), &named("Secret", "s")).await;
    }
    server.make(&format!("{A}/secrets"), &named("Secret", "other")).await;
    for account in ["robot", "other"] {
        server.make(&format!("{A}/serviceaccounts"), &named("ServiceAccount", account)).await;
    }
    for (node, pod, secret) in [("n1", "p", "s"), ("n2", "q", "other")] {
        server.make("/api/v1/nodes", &named("Node", node)).await;
        server.make(&format!("{A}/pods"), &json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
            "spec": {"nodeName": node, "serviceAccountName": "robot",
                "containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": secret}}]}]},
        })).await;
    }
    let rule = |group: &str, resources: &[&str], verbs: &[&str], names: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs, "resourceNames": names});
    let rbac = "rbac.authorization.k8s.io";
    server.grant("reader", Some("a"), rule("", &["configmaps"], &["get", "list"], &["c"])).await;
    server
        .grant("granter", Some("a"), rule(rbac, &["roles", "rolebindings"], &["create"], &[]))
        .await;
    server.grant("actor", None, rule("", &["users"], &["impersonate"], &["viewer"])).await;
    server.grant("proxy", None, rule("", &["nodes/proxy", "pods/log"], &["get"], &[])).await;
    server.bind("viewer", Some("a"), "ClusterRole/view", &user("viewer")).await;
    server.bind("editor", Some("a"), "ClusterRole/edit", &user("editor")).await;
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "a"});
    server.grant("robots", Some("a"), rule("", &["pods"], &["list"], &[])).await;
    server.bind("robot", Some("a"), "Role/robots", &robot).await;
    server
}

fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

impl TestServer {
    pub(super) async fn make(&self, path: &str, object: &Value) -> Value {
        self.send("admin", "POST", path, &object.to_string()).await.created()
    }

    /// A role of this name with one rule, bound to the user of this name.
    async fn grant(&self, name: &str, namespace: Option<&str>, mut rule: Value) {
        if rule["resourceNames"] == json!([]) {
            rule.as_object_mut().unwrap().remove("resourceNames");
        }
        let (kind, place) = match namespace {
            Some(namespace) => ("Role", format!("{RBAC}/namespaces/{namespace}/roles")),
            None => ("ClusterRole", format!("{RBAC}/clusterroles")),
        };
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "rules": [rule]});
        self.make(&place, &role).await;
        self.bind(name, namespace, &format!("{kind}/{name}"), &user(name)).await;
    }

    async fn bind(&self, name: &str, namespace: Option<&str>, role: &str, subject: &Value) {
        let (role_kind, role) = role.split_once('/').unwrap();
        let (kind, place) = match namespace {
            Some(namespace) => {
                ("RoleBinding", format!("{RBAC}/namespaces/{namespace}/rolebindings"))
            }
            None => ("ClusterRoleBinding", format!("{RBAC}/clusterrolebindings")),
        };
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}});
        self.make(&place, &binding).await;
    }

    /// A real token of a service account in `a`.
    async fn token(&self, account: &str) -> String {
        let path = format!("{A}/serviceaccounts/{account}/token");
        let request: Value = serde_json::from_str(TOKEN).unwrap();
        self.make(&path, &request).await["status"]["token"].as_str().unwrap().to_owned()
    }

    async fn try_all(&self, attempts: &[Attempt]) -> Vec<String> {
        let token = self.token("robot").await;
        let mut wrong = Vec::new();
        for (who, method, path, body, expected) in attempts {
            let bearer = match *who {
                "nobody" => String::new(),
                "robot" => token.clone(),
                "cut" => token[..token.len() - 2].to_owned(),
                "unsigned" => format!("{}.", token.rsplit_once('.').unwrap().0),
                who => format!("{who}-token"),
            };
            let patch = "application/merge-patch+json";
            let kind = if *method == "PATCH" { patch } else { "application/json" };
            let mut headers = vec![("Content-Type", kind.to_owned())];
            if !bearer.is_empty() {
                headers.push(("Authorization", format!("Bearer {bearer}")));
            }
            let code = self.send_with(&headers, method, &full(path), body).await.code;
            if code != *expected {
                wrong.push(format!("{who} {method} {path}: {code} instead of {expected}"));
            }
        }
        wrong
    }
}

#[tokio::test]
async fn nobody_does_more_than_their_roles_say() {
    let server = start().await;
    let mut wrong = Vec::new();
    for attempts in [PEOPLE_TRY, NODES_TRY, OTHERS_TRY] {
        wrong.extend(server.try_all(attempts).await);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(PEOPLE_TRY.len() + NODES_TRY.len() + OTHERS_TRY.len() >= 75);
}

#[tokio::test]
async fn nobody_acts_as_somebody_they_may_not_be() {
    let server = start().await;
    let path = format!("{A}/pods");
    for (headers, expected) in ACTING {
        let mut all = vec![("Authorization", "Bearer actor-token".to_owned())];
        all.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let reply = server.send_with(&all, "GET", &path, "").await;
        assert_eq!(reply.code, *expected, "{headers:?}: {reply:?}");
    }
}

/// Requirement OP-11: only a trusted proxy speaks for others.
#[tokio::test]
async fn forged_headers_of_proxies_change_nothing() {
    let server = start().await;
    let path = format!("{A}/secrets/s");
    let all: Vec<_> = FORGED.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let one_by_one = all.iter().map(|header| vec![header.clone()]);
    for headers in one_by_one.chain([all.clone()]) {
        let reply = server.send_with(&headers, "GET", &path, "").await;
        assert_eq!(reply.code, 401, "{headers:?}: {reply:?}");
        let mut with_token = vec![("Authorization", "Bearer viewer-token".to_owned())];
        with_token.extend(headers.clone());
        let reply = server.send_with(&with_token, "GET", &path, "").await;
        assert_eq!(reply.code, 403, "{headers:?}: {reply:?}");
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("User \"viewer\""), "{headers:?}: {message}");
    }
    assert_eq!(server.send("editor", "GET", &path, "").await.code, 200, "who may, may");
}
