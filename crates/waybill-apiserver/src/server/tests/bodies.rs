//! What bodies may be written in, and what becomes of fields that nobody knows.

use super::{TestServer, client::JSON};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const YAML: &str = "application/yaml";

const UNKNOWN: &str = r#"299 - "unknown field \"nothing\"""#;
const DUPLICATE: &str = r#"299 - "duplicate field \"data\"""#;

const JSON_BODY: &str = r#"{"metadata": {"name": "NAME"}, "nothing": 1, "data": {}, "data": {}}"#;
const YAML_BODY: &str = "metadata: {name: NAME}\nnothing: 1\ndata: {}\ndata: {}\n";

#[tokio::test]
async fn objects_are_written_in_yaml_too() {
    let server = TestServer::start().await;
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: |\n    b\n";
    let made = server.send_as("admin", "POST", MAPS, YAML, body).await;
    assert_eq!(made.created()["data"]["a"], "b\n");
    assert!(made.warnings.is_empty(), "{made:?}");
    let path = format!("{MAPS}/c");
    let body = body.replace("    b", "    c");
    let changed =
        server.send_as("admin", "PUT", &path, "application/yaml; charset=utf-8", body).await;
    assert_eq!(changed.json()["data"]["a"], "c\n");
    let review = "kind: SelfSubjectAccessReview\nspec:\n  resourceAttributes: {verb: get}\n";
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = server.send_as("admin", "POST", reviews, YAML, review).await;
    assert_eq!(answer.created()["status"]["allowed"], true);
    let options = "gracePeriodSeconds: 0\n";
    let gone = server.send_as("admin", "DELETE", &path, YAML, options).await;
    assert_eq!(gone.code, 200, "{gone:?}");
}

/// The depth that is allowed fits into the stack of a worker, whatever walks it.
#[tokio::test(flavor = "multi_thread")]
async fn deep_yaml_is_read_or_refused_and_the_server_goes_on() {
    let server = TestServer::start().await;
    let deep = |depth: usize| format!("{}x{}", "{a: ".repeat(depth), "}".repeat(depth));
    for (depth, code) in [(40, 201), (60, 400), (200_000, 400)] {
        let any = deep(depth);
        let body = format!(
            "metadata: {{name: d{depth}, managedFields: [{{manager: m, fieldsV1: {any}}}]}}\n\
             unknown: {any}\n"
        );
        let reply = server.send_as("admin", "POST", MAPS, YAML, body).await;
        assert_eq!(reply.code, code, "{depth}: {:?}", reply.json()["message"]);
    }
    assert_eq!(server.send("admin", "GET", "/readyz", "").await.code, 200);
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_warned_of_refused_or_ignored() {
    let server = TestServer::start().await;
    for (content_type, body) in [(JSON, JSON_BODY), (YAML, YAML_BODY)] {
        let name = content_type.rsplit('/').next().unwrap();
        let send = async |validation: &str, name: &str| {
            let path = format!("{MAPS}?fieldValidation={validation}");
            server.send_as("admin", "POST", &path, content_type, body.replace("NAME", name)).await
        };
        for validation in ["", "Warn"] {
            let made = send(validation, &format!("{name}{}", validation.len())).await;
            assert_eq!(made.warnings, [UNKNOWN, DUPLICATE], "{made:?}");
            assert!(made.created().get("nothing").is_none());
        }
        let made = send("Ignore", &format!("{name}-ignored")).await;
        assert!(made.warnings.is_empty(), "{made:?}");
        made.created();
        let refused = send("Strict", &format!("{name}-refused")).await;
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert_eq!(refused.code, 400, "{message}");
        let expected = "strict decoding error: unknown field \"nothing\", duplicate field \"data\"";
        assert!(message.ends_with(expected), "{message}");
    }
}

#[tokio::test]
async fn questions_that_are_not_stored_are_searched_too() {
    let server = TestServer::start().await;
    let account = "/api/v1/namespaces/default/serviceaccounts";
    server.send("admin", "POST", account, r#"{"metadata": {"name": "a"}}"#).await.created();
    let path = format!("{account}/a/token");
    let body = r#"{"nothing": 1, "spec": {"audiences": []}}"#;
    let issued = server.send("admin", "POST", &path, body).await;
    issued.created();
    assert_eq!(issued.warnings, [UNKNOWN]);
    let path = format!("{path}?fieldValidation=Strict");
    assert_eq!(server.send("admin", "POST", &path, body).await.code, 400);
}

#[tokio::test]
async fn patches_are_searched_for_unknown_and_duplicate_fields() {
    let server = TestServer::start().await;
    server.send("admin", "POST", MAPS, r#"{"metadata": {"name": "c"}}"#).await.created();
    let body = r#"{"nothing": 1, "data": {"a": "b"}, "data": {"a": "c"}}"#;
    for kind in ["merge", "strategic-merge"] {
        let content_type = format!("application/{kind}-patch+json");
        let send = async |validation: &str| {
            let path = format!("{MAPS}/c?fieldValidation={validation}");
            server.send_as("admin", "PATCH", &path, &content_type, body).await
        };
        let warned = send("Warn").await;
        assert_eq!(warned.warnings, [DUPLICATE, UNKNOWN], "{warned:?}");
        assert_eq!((warned.code, &warned.json()["data"]["a"]), (200, &"c".into()));
        assert!(send("Ignore").await.warnings.is_empty());
        let refused = send("Strict").await;
        assert_eq!((refused.code, &refused.json()["reason"]), (422, &"Invalid".into()));
    }
    let twice = r#"[{"op": "add", "path": "/nothing", "value": 1, "value": 2}]"#;
    let path = format!("{MAPS}/c");
    let json_patch = "application/json-patch+json";
    let warned = server.send_as("admin", "PATCH", &path, json_patch, twice).await;
    assert_eq!(warned.code, 200, "{warned:?}");
    assert_eq!(warned.warnings, [r#"299 - "duplicate field \"[0].value\"""#, UNKNOWN]);
}
