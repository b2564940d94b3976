//! ValidatingAdmissionPolicies, through the front door.

use serde_json::{Value, json};
use waybill_api::gates::FeatureGates;

use super::{TestServer, client::Reply};

const PODS: &str = "/api/v1/namespaces/default/pods";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

const STRICT_NAMES: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/strict-env-names.yaml"));
const NO_PRELOAD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/deny-exec-preload.yaml"));

impl TestServer {
    /// Creates the policy and binding of an example, as `kubectl apply` sends them.
    async fn apply_example(&self, text: &str) {
        for (path, document) in [POLICIES, BINDINGS].into_iter().zip(text.split("---\n")) {
            let reply =
                self.send_as("admin", "POST", path, "application/yaml", document.to_owned()).await;
            reply.created();
        }
    }

    async fn policy(&self, name: &str, spec: Value) -> Reply {
        let mut whole = json!({"matchConstraints": {"resourceRules": [
            {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
        ]}});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": whole,
        });
        self.send("admin", "POST", POLICIES, &policy.to_string()).await
    }

    async fn bind_policy(&self, policy: &str, spec: Value) {
        let mut whole = json!({"policyName": policy, "validationActions": ["Deny"]});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": format!("{policy}-binding")}, "spec": whole,
        });
        self.send("admin", "POST", BINDINGS, &binding.to_string()).await.created();
    }

    async fn config_map(&self, name: &str, data: Value) -> Reply {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        self.send("admin", "POST", "/api/v1/namespaces/default/configmaps", &map.to_string()).await
    }
}

fn pod(name: &str, variable: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": variable, "value": "x"}]}]},
    })
    .to_string()
}

fn message(reply: &Reply) -> String {
    reply.json()["message"].as_str().unwrap_or_default().to_owned()
}

/// KEP-4369: a policy makes names as strict as they were before, where a namespace wants it.
#[tokio::test]
async fn the_example_makes_names_strict_again_kep_4369() {
    let server = TestServer::start_with_account().await;
    server.apply_example(STRICT_NAMES).await;
    server.send("admin", "POST", PODS, &pod("before", "a b")).await.created();
    let label = json!({"metadata": {"labels": {"env-names": "strict"}}}).to_string();
    let namespace = "/api/v1/namespaces/default";
    let labelled =
        server.send_as("admin", "PATCH", namespace, "application/merge-patch+json", label).await;
    assert_eq!(labelled.code, 200);
    let refused = server.send("admin", "POST", PODS, &pod("after", "a b")).await;
    assert_eq!(refused.code, 422);
    let status = refused.json();
    assert_eq!(status["reason"], "Invalid");
    assert_eq!(
        status["message"],
        "pods \"after\" is forbidden: ValidatingAdmissionPolicy 'strict-env-names' with binding 'strict-env-names' \
         denied request: names of variables: letters, digits, '_', '-' and '.', not starting with a digit or '..'"
    );
    assert_eq!(status["details"]["kind"], "pods");
    assert!(
        status["details"]["causes"][0]["message"]
            .as_str()
            .unwrap()
            .starts_with("ValidatingAdmissionPolicy")
    );
    server.send("admin", "POST", PODS, &pod("fine", "a-b.c")).await.created();
    // It goes as it came.
    server.send("admin", "DELETE", &format!("{BINDINGS}/strict-env-names"), "").await;
    server.send("admin", "POST", PODS, &pod("again", "a b")).await.created();
}

/// KEP-6035: a policy keeps `LD_PRELOAD` out of sessions.
#[tokio::test]
async fn the_example_denies_preloaded_libraries_in_sessions_kep_6035() {
    let server = TestServer::start_with(|config| config.gates = FeatureGates::all_on()).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts?watch=1";
    assert!(server.watch(accounts).await.next().await.is_some());
    server.send("admin", "POST", PODS, &pod("web", "A")).await.created();
    server.apply_example(NO_PRELOAD).await;
    let exec = |query: &str| format!("{PODS}/web/exec?command=id&stdout=true{query}");
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"] {
        let refused =
            server.send("admin", "POST", &exec(&format!("&env=A%3D1&env={name}%3Dx")), "").await;
        assert_eq!(refused.code, 403, "{refused:?}");
        let text = message(&refused);
        assert!(text.contains("ValidatingAdmissionPolicy 'deny-exec-preload' with binding 'deny-exec-preload' denied request: "), "{text}");
        assert!(text.contains(name), "{text}");
    }
    for query in ["", "&env=LEVEL%3Ddebug"] {
        let admitted = server.send("admin", "POST", &exec(query), "").await;
        assert!(message(&admitted).contains("does not have a host assigned"), "{admitted:?}");
    }
}

#[tokio::test]
async fn expressions_that_do_not_compile_are_refused_with_their_place() {
    let server = TestServer::start().await;
    let refused =
        server.policy("p", json!({"validations": [{"expression": "object.data.x =="}]})).await;
    assert_eq!(refused.code, 422);
    let status = refused.json();
    assert_eq!(status["details"]["causes"][0]["field"], "spec.validations[0].expression");
    let text = status["message"].as_str().unwrap();
    assert!(text.contains("compilation failed: ERROR: <input>:1:17: Syntax error"), "{text}");
    let unknown =
        server.policy("p", json!({"validations": [{"expression": "objekt.data == 1"}]})).await;
    assert!(message(&unknown).contains("undeclared reference to 'objekt'"), "{unknown:?}");
}

#[tokio::test]
async fn a_change_of_a_policy_counts_for_the_next_request() {
    let server = TestServer::start().await;
    server
        .policy("p", json!({"validations": [{"expression": "!('a' in object.data)"}]}))
        .await
        .created();
    server.config_map("unbound", json!({"a": ""})).await.created();
    server.bind_policy("p", json!({})).await;
    assert_eq!(server.config_map("first", json!({"a": ""})).await.code, 422);
    let patch =
        json!({"spec": {"validations": [{"expression": "!('b' in object.data)"}]}}).to_string();
    let changed = server
        .send_as("admin", "PATCH", &format!("{POLICIES}/p"), "application/merge-patch+json", patch)
        .await;
    assert_eq!(changed.code, 200, "{changed:?}");
    server.config_map("second", json!({"a": ""})).await.created();
    assert_eq!(server.config_map("third", json!({"b": ""})).await.code, 422);
    // Rules outlive the server.
    let server = server.restart().await;
    assert_eq!(server.config_map("third", json!({"b": ""})).await.code, 422);
}

#[tokio::test]
async fn parameters_are_objects_of_the_cluster_and_rights_can_be_asked_for() {
    let server = TestServer::start().await;
    server.config_map("limits", json!({"most": "3"})).await.created();
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "others", "expression": "request.name != 'limits'"}],
        "validations": [
            {"expression": "size(object.data) <= int(params.data.most)", "messageExpression": "'at most ' + params.data.most + ' keys'"},
            {"expression": "authorizer.group('').resource('secrets').namespace(request.namespace).check('list').allowed()"},
            {"expression": "namespaceObject.metadata.name == 'default' && request.userInfo.username == 'admin'"},
        ],
    });
    server.policy("p", spec).await.created();
    server.bind_policy("p", json!({"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}})).await;
    server.config_map("few", json!({"a": "", "b": ""})).await.created();
    let refused = server.config_map("many", json!({"a": "", "b": "", "c": "", "d": ""})).await;
    assert!(message(&refused).ends_with("denied request: at most 3 keys"), "{refused:?}");
}

#[tokio::test]
async fn warnings_reach_the_client_and_let_the_request_pass() {
    let server = TestServer::start().await;
    server
        .policy("p", json!({"validations": [{"expression": "false", "message": "better not"}]}))
        .await
        .created();
    server.bind_policy("p", json!({"validationActions": ["Warn", "Audit"]})).await;
    let reply = server.config_map("a", json!({})).await;
    reply.created();
    let warning = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': better not\"";
    assert_eq!(reply.warnings, [warning]);
}

/// A policy about everything that is always false cannot lock its own removal out, nor the server.
#[tokio::test]
async fn a_policy_that_denies_everything_can_be_taken_back() {
    let server = TestServer::start().await;
    let all = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    server
        .policy("p", json!({"matchConstraints": all, "validations": [{"expression": "false"}]}))
        .await
        .created();
    server.bind_policy("p", json!({})).await;
    let server = server.restart().await;
    assert_eq!(server.config_map("a", json!({})).await.code, 422);
    assert_eq!(
        server.send("admin", "DELETE", &format!("{BINDINGS}/p-binding"), "").await.code,
        200
    );
    server.config_map("a", json!({})).await.created();
}

#[tokio::test]
async fn a_rule_about_one_form_of_an_object_holds_for_the_others_unless_it_is_exact() {
    let server = TestServer::start().await;
    let rule = |group: &str, version: &str, resource: &str| {
        json!([{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": [version],
            "resources": [resource]}])
    };
    let classes = |exact: &str| {
        json!({"matchConstraints": {"resourceRules": rule("storage.k8s.io", "v1", "providerclasses"),
            "matchPolicy": exact},
            "validations": [{"expression": "object.apiVersion != 'storage.k8s.io/v1'"}]})
    };
    let create = async |name: &str| {
        let class = json!({"apiVersion": "storage.k8s.io/v1alpha1", "kind": "ProviderClass",
            "metadata": {"name": name}, "spec": {"driver": "d.example.com"}});
        let path = "/apis/storage.k8s.io/v1alpha1/providerclasses";
        server.send("admin", "POST", path, &class.to_string()).await.code
    };
    server.policy("exact", classes("Exact")).await.created();
    server.bind_policy("exact", json!({})).await;
    assert_eq!(create("a").await, 201);
    server.policy("equivalent", classes("Equivalent")).await.created();
    server.bind_policy("equivalent", json!({})).await;
    assert_eq!(create("b").await, 422);

    let notes = json!({"matchConstraints": {"resourceRules": rule("events.k8s.io", "v1", "events")},
        "validations": [{"expression": "object.note != 'hush'"}]});
    server.policy("notes", notes).await.created();
    server.bind_policy("notes", json!({})).await;
    for (name, message, code) in [("e1", "hush", 422), ("e2", "hello", 201)] {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            "message": message, "reason": "R", "type": "Normal"});
        let path = "/api/v1/namespaces/default/events";
        assert_eq!(server.send("admin", "POST", path, &event.to_string()).await.code, code);
    }
}

/// Somebody who may write policies, and read no Secret, had a policy tell the values of one.
#[tokio::test]
async fn who_writes_a_policy_may_read_its_parameters() {
    let server = TestServer::start().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "author"}, "rules": [
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "author"}, "subjects": [{"kind": "User", "name": "alice",
            "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author"}});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        server
            .send("admin", "POST", &format!("{rbac}/{plural}"), &object.to_string())
            .await
            .created();
    }
    let policy = |name: &str, kind: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": {
                "paramKind": {"apiVersion": "v1", "kind": kind},
                "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
                    "apiVersions": ["v1"], "resources": ["pods"]}]},
                "validations": [{"expression": "false", "messageExpression": "params.data.pw"}]}})
        .to_string()
    };
    let bound = |policy: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": policy},
            "spec": {"policyName": policy, "validationActions": ["Deny"], "paramRef": {"name": "s",
                "namespace": "kube-system", "parameterNotFoundAction": "Deny"}}})
        .to_string()
    };
    let send =
        async |path: &str, body: String| server.send("alice", "POST", path, &body).await.code;
    assert_eq!(send(POLICIES, policy("steal", "Secret")).await, 403);
    assert_eq!(send(POLICIES, policy("limits", "ConfigMap")).await, 201);
    assert_eq!(send(BINDINGS, bound("limits")).await, 201);
    // Nor with a policy of somebody else, or one that comes later.
    let admins = server.send("admin", "POST", POLICIES, &policy("secrets", "Secret")).await;
    admins.created();
    assert_eq!(send(BINDINGS, bound("secrets")).await, 403);
    assert_eq!(send(BINDINGS, bound("later")).await, 403);
}

#[tokio::test]
async fn the_status_tells_which_expressions_do_not_fit() {
    let server = TestServer::start().await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = |name: &str, expression: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name}, "spec": {
                "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
                    "apiVersions": ["v1"], "resources": ["pods"]}]},
                "validations": [{"expression": expression}]}})
        .to_string()
    };
    let right = "object.spec.containers.all(c, c.image != '') && object.spec.hostNetwork";
    let wrong = "object.spec.terminationGracePeriodSeconds > '1'";
    for (name, expression) in [("right", right), ("wrong", wrong)] {
        server.send("admin", "POST", policies, &policy(name, expression)).await.created();
    }
    let mut watch = server.watch(&format!("{policies}?watch=1")).await;
    let mut found = std::collections::BTreeMap::new();
    while found.len() < 2 {
        let object = watch.next().await.unwrap()["object"].take();
        if object.pointer("/status/typeChecking").is_some() {
            assert_eq!(object["status"]["observedGeneration"], 1);
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            found.insert(name, object["status"]["typeChecking"].clone());
        }
    }
    assert_eq!(found["right"], json!({}));
    let warning = found["wrong"].pointer("/expressionWarnings/0").unwrap();
    assert_eq!(warning["fieldRef"], "spec.validations[0].expression");
    let text = warning["warning"].as_str().unwrap();
    assert!(text.starts_with("/v1, Kind=Pod: ERROR: <input>:1:"), "{text}");
    assert!(
        text.contains("found no matching overload for '_>_' applied to '(int, string)'"),
        "{text}"
    );
}
