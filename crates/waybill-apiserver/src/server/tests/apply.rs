//! Server-side apply over HTTP, as `kubectl apply --server-side` and controllers use it.

use serde_json::{Value, json};

use super::{TestServer, client::Reply};

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

impl TestServer {
    async fn apply(&self, user: &str, path: &str, query: &str, config: &str) -> Reply {
        self.send_as(user, "PATCH", &format!("{path}?{query}"), APPLY, config.to_owned()).await
    }

    async fn apply_map(&self, manager: &str, data: &str) -> Reply {
        let config =
            format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {data}}}");
        self.apply("admin", &format!("{MAPS}/a"), &format!("fieldManager={manager}"), &config).await
    }

    async fn shown(&self, path: &str) -> Value {
        self.send("admin", "GET", path, "").await.json()
    }
}

/// Who manages what, as `manager/operation/subresource` and fields.
fn managers(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let named = entries.iter().map(|entry| {
        let parts = [text(entry, "manager"), text(entry, "operation"), text(entry, "subresource")];
        (parts.join("/"), entry["fieldsV1"].clone())
    });
    named.collect()
}

#[tokio::test]
async fn an_object_is_applied_before_it_exists_and_after() {
    let server = TestServer::start().await;
    let created = server.apply_map("m", "{k: v}").await;
    assert_eq!(created.code, 201, "{created:?}");
    let created = created.json();
    assert_eq!(created["data"], json!({"k": "v"}));
    assert_eq!(managers(&created), [("m/Apply/".to_owned(), json!({"f:data": {"f:k": {}}}))]);
    assert_eq!(created["metadata"]["managedFields"][0]["apiVersion"], "v1");
    assert_eq!(
        created["metadata"]["managedFields"][0]["time"],
        created["metadata"]["creationTimestamp"]
    );

    let same = server.apply_map("m", "{k: v}").await;
    assert_eq!(same.code, 200);
    assert_eq!(same.json(), created, "nothing is written that changes nothing");

    let changed = server.apply_map("m", "{other: v}").await.json();
    assert_eq!(changed["data"], json!({"other": "v"}));
    assert_ne!(changed["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(server.shown(&format!("{MAPS}/a")).await, changed);
}

#[tokio::test]
async fn conflicts_are_told_and_can_be_forced() {
    let server = TestServer::start().await;
    server.apply_map("one", "{k: v, l: v}").await;
    let refused = server.apply_map("two", "{k: w}").await;
    assert_eq!(refused.code, 409);
    let status = refused.json();
    assert_eq!(status["reason"], "Conflict");
    assert_eq!(status["message"], "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"",
            "field": ".data.k"}])
    );
    let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: w}}";
    let path = format!("{MAPS}/a");
    let dry = server.apply("admin", &path, "fieldManager=two&force=true&dryRun=All", config).await;
    assert_eq!((dry.code, dry.json()["data"]["k"].clone()), (200, json!("w")));
    assert_eq!(server.shown(&path).await["data"]["k"], "v");
    let forced = server.apply("admin", &path, "fieldManager=two&force=true", config).await.json();
    assert_eq!(forced["data"], json!({"k": "w", "l": "v"}));
    let fields = |field: &str| json!({"f:data": {field: {}}});
    assert_eq!(
        managers(&forced),
        [("one/Apply/".to_owned(), fields("f:l")), ("two/Apply/".to_owned(), fields("f:k"))]
    );
}

#[tokio::test]
async fn every_other_write_is_tracked_and_takes_fields_over() {
    let server = TestServer::start().await;
    let map = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
        "data": {"k": "v", "l": "v"}}"#;
    let path = format!("{MAPS}/a");
    let headers = |agent: &str, kind: &str| {
        vec![
            ("authorization", "Bearer admin-token".to_owned()),
            ("content-type", kind.to_owned()),
            ("user-agent", agent.to_owned()),
        ]
    };
    let json = "application/json";
    let created = server.send_with(&headers("curl/8.0", json), "POST", MAPS, map).await;
    assert_eq!(created.code, 201);
    let data = |fields: Value| json!({"f:data": fields});
    assert_eq!(
        managers(&created.json()),
        [("curl/Update/".to_owned(), data(json!({".": {}, "f:k": {}, "f:l": {}})))]
    );
    let patch = r#"{"data": {"k": "w"}}"#;
    let patched = server.send_with(&headers("edit/1", MERGE), "PATCH", &path, patch).await.json();
    assert_eq!(
        managers(&patched),
        [
            ("curl/Update/".to_owned(), data(json!({".": {}, "f:l": {}}))),
            ("edit/Update/".to_owned(), data(json!({"f:k": {}}))),
        ]
    );
    // Who replaces the object without its managers does not make it forget them.
    let replaced = map.replace(r#""l": "v""#, r#""l": "w""#);
    let replaced =
        server.send("admin", "PUT", &format!("{path}?fieldManager=put"), &replaced).await.json();
    assert_eq!(
        managers(&replaced),
        [
            ("curl/Update/".to_owned(), data(json!({}))),
            ("put/Update/".to_owned(), data(json!({"f:k": {}, "f:l": {}}))),
        ]
    );
    let refused = server.apply_map("two", "{k: x}").await.json();
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"put\" using v1: .data.k"
    );
    let forget = r#"{"metadata": {"managedFields": [{}]}}"#;
    let forgotten = server.send_as("admin", "PATCH", &path, MERGE, forget).await.json();
    assert_eq!(managers(&forgotten), []);
    let applied = server.apply_map("two", "{l: w}").await.json();
    let names: Vec<_> = managers(&applied).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["two/Apply/", "before-first-apply/Update/"]);
}

#[tokio::test]
async fn what_admission_and_the_server_add_is_nobodys() {
    let server = TestServer::start_with_account().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"schedulerName": "nobody",
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}"#;
    let applied = server.apply("admin", &format!("{pods}/p"), "fieldManager=m", pod).await;
    assert_eq!(applied.code, 201, "{applied:?}");
    let applied = applied.json();
    assert_eq!(applied["spec"]["serviceAccountName"], "default");
    let port = r#"k:{"containerPort":80,"protocol":"TCP"}"#;
    let fields = json!({"f:spec": {"f:schedulerName": {}, "f:containers": {r#"k:{"name":"c"}"#: {
        ".": {}, "f:name": {}, "f:image": {}, "f:ports": {port: {".": {}, "f:containerPort": {}}},
    }}}});
    assert_eq!(managers(&applied), [("m/Apply/".to_owned(), fields)]);
    let again = server.apply("admin", &format!("{pods}/p"), "fieldManager=m", pod).await.json();
    assert_eq!(again["metadata"]["resourceVersion"], applied["metadata"]["resourceVersion"]);

    // The status is managed by who reports it, under its own name.
    let status = r#"{"status": {"phase": "Running", "conditions":
        [{"type": "Ready", "status": "True"}]}}"#;
    let path = format!("{pods}/p/status?fieldManager=kubelet");
    let reported = server.send_as("admin", "PATCH", &path, MERGE, status).await.json();
    let ready = r#"k:{"type":"Ready"}"#;
    let expected = json!({"f:status": {"f:phase": {}, "f:conditions": {".": {}, ready: {
        ".": {}, "f:type": {}, "f:status": {},
    }}}});
    let found = managers(&reported);
    assert_eq!(found[1], ("kubelet/Update/status".to_owned(), expected));
    let config = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "status": {"conditions": [{"type": "Mine", "status": "True"}]}}"#;
    let path = format!("{pods}/p/status");
    let applied = server.apply("admin", &path, "fieldManager=gate", config).await;
    assert_eq!(applied.code, 200, "{applied:?}");
    let applied = applied.json();
    assert_eq!(applied["status"]["conditions"][1]["type"], "Mine");
    assert!(managers(&applied).iter().any(|(name, _)| name == "gate/Apply/status"));
    let path = format!("{pods}/x/status");
    let config = config.replace("\"p\"", "\"x\"");
    let absent = server.apply("admin", &path, "fieldManager=gate", &config).await;
    assert_eq!(absent.code, 404, "a status makes no object");
}

#[tokio::test]
async fn requests_that_are_no_application_are_refused() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
    let long = "x".repeat(129);
    for (query, config, code, message) in [
        (
            "",
            config,
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: \
            is required for apply patch",
        ),
        (
            &*format!("fieldManager={long}"),
            config,
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: \
            fieldManager: Too long: may not be more than 128 bytes",
        ),
        (
            "fieldManager=a%07",
            config,
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: \
            Invalid value: \"a\\a\": invalid character U+0007 (at position 1)",
        ),
        ("fieldManager=m", "{apiVersion: v1, kind: Pod, metadata: {name: a}}", 400, ""),
        ("fieldManager=m", "{metadata: {name: a}}", 400, "invalid object type: /, Kind="),
        (
            "fieldManager=m",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}",
            400,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            "fieldManager=m",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: \
            [{manager: x}]}}",
            400,
            "metadata.managedFields must be nil",
        ),
        (
            "fieldManager=m",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: x}}",
            409,
            "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object \
             specified uid x, and no existing object was found",
        ),
        (
            "fieldManager=m",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, colour: red}",
            400,
            "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .colour: field not \
             declared in schema",
        ),
        (
            "fieldManager=m",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: 1}",
            400,
            "",
        ),
        (
            "fieldManager=m&fieldValidation=Strict",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, \
            name: a}}",
            400,
            "",
        ),
        ("fieldManager=m", "[", 400, ""),
        ("fieldManager=m", "", 400, ""),
    ] {
        let reply = server.apply("admin", &path, query, config).await;
        assert_eq!(reply.code, code, "{query} {config}: {reply:?}");
        if !message.is_empty() {
            assert_eq!(reply.json()["message"], message);
        }
    }
    let forced = server.send_as("admin", "PATCH", &format!("{path}?force=true"), MERGE, "{}").await;
    assert_eq!(
        (forced.code, forced.json()["message"].as_str().unwrap_or_default().to_owned()),
        (
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for \
            non-apply patch"
                .to_owned()
        )
    );
}

#[tokio::test]
async fn who_may_patch_may_not_for_that_create() {
    let server = TestServer::start().await;
    let role = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "patchers"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]}"#;
    let binding = r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "patchers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "patchers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]}"#;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (path, body) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        assert_eq!(server.send("admin", "POST", &format!("{rbac}/{path}"), body).await.code, 201);
    }
    let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: v}}";
    let path = format!("{MAPS}/a");
    let refused = server.apply("alice", &path, "fieldManager=m", config).await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert!(refused.json()["message"].as_str().unwrap().contains("cannot create"));
    server.apply_map("admin", "{k: v}").await;
    assert_eq!(server.apply("alice", &path, "fieldManager=m", config).await.code, 200);
}

#[tokio::test]
async fn lists_are_merged_and_configurations_withdrawn() {
    let server = TestServer::start_with_account().await;
    let path = "/api/v1/namespaces/default/podtemplates/t";
    let template = |containers: &str| {
        format!(
            "{{apiVersion: v1, kind: PodTemplate, metadata: {{name: t}}, template: {{spec: \
             {{containers: [{containers}]}}}}}}"
        )
    };
    let one = template("{name: c, image: i, env: [{name: A, value: x}]}, {name: d, image: i}");
    let two = template("{name: c, env: [{name: B, value: z}]}");
    let created = server.apply("admin", path, "fieldManager=one", &one).await;
    assert_eq!(created.code, 201, "{created:?}");
    let both = server.apply("admin", path, "fieldManager=two", &two).await.json();
    let env = |object: &Value| {
        let env = object["template"]["spec"]["containers"][0]["env"].as_array().cloned();
        let names = env.unwrap_or_default();
        names.iter().map(|env| env["name"].as_str().unwrap().to_owned()).collect::<String>()
    };
    assert_eq!(env(&both), "AB");
    let less = template("{name: c, image: i}");
    let less = server.apply("admin", path, "fieldManager=one", &less).await.json();
    assert_eq!(env(&less), "B");
    assert_eq!(less["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn versions_of_a_kind_share_their_managers() {
    let server = TestServer::start().await;
    let (v1, alpha) = (
        "/apis/storage.k8s.io/v1/providerclasses/c",
        "/apis/storage.k8s.io/v1alpha1/providerclasses/c",
    );
    let class = |version: &str, driver: &str| {
        format!(
            "{{apiVersion: storage.k8s.io/{version}, kind: ProviderClass, metadata: {{name: c, labels: {{a: \
             {driver}}}}}, spec: {{driver: d.example.com, parameters: {{allowedNamespaces: '*'}}}}}}"
        )
    };
    let created = server.apply("admin", alpha, "fieldManager=m", &class("v1alpha1", "x")).await;
    assert_eq!(created.code, 201, "{created:?}");
    let refused = server.apply("admin", v1, "fieldManager=n", &class("v1", "z")).await.json();
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"m\": .metadata.labels.a"
    );
    let changed = server.apply("admin", v1, "fieldManager=m", &class("v1", "z")).await.json();
    assert_eq!(changed["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert_eq!(changed["metadata"]["managedFields"][0]["apiVersion"], "storage.k8s.io/v1");
}
