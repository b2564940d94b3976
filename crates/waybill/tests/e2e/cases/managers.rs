//! Server-side apply, and who manages which fields of an object.

use serde_json::{Value, json};
use waybill_testkit::{kubectl::Ran, stack::Stack};

const MAP: &str = "managers-map";

pub(super) fn server_side_apply(stack: &Stack) {
    let kubectl = stack.kubectl();
    let run = |line: &str, data: &str| -> Ran {
        let map = format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {MAP}}}\ndata: {data}\n"
        );
        let arguments: Vec<_> = line.split_whitespace().chain(["-f", "-"]).collect();
        kubectl.with_input(&arguments, &map)
    };
    let shown = || kubectl.line(&format!("get cm {MAP} -o json --show-managed-fields")).json();

    run("apply --server-side --dry-run=server", "{k: v}")
        .prints(&format!("configmap/{MAP} serverside-applied (server dry run)"));
    run("diff --server-side", "{k: v}").differs(&["+ k: v"]);
    run("apply --server-side", "{k: v, l: v}")
        .prints(&format!("configmap/{MAP} serverside-applied"));
    run("diff --server-side", "{k: v, l: v}").prints("");
    assert_eq!(
        managers(&shown()),
        [("kubectl", "Apply", json!({"f:data": {"f:k": {}, "f:l": {}}}))].map(named)
    );

    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let before = version(&shown());
    run("apply --server-side", "{k: v, l: v}").succeeds();
    assert_eq!(version(&shown()), before, "what changes nothing is not written");

    let refused = run("apply --server-side --field-manager=other", "{k: w}");
    refused.fails_with(1, "Apply failed with 1 conflict: conflict with \"kubectl\": .data.k");
    run("diff --server-side --force-conflicts --field-manager=other", "{k: w}")
        .differs(&["- k: v", "+ k: w"]);
    run("apply --server-side --field-manager=other --force-conflicts", "{k: w}").succeeds();
    assert_eq!(
        managers(&shown()),
        [
            ("kubectl", "Apply", json!({"f:data": {"f:l": {}}})),
            ("other", "Apply", json!({"f:data": {"f:k": {}}})),
        ]
        .map(named)
    );

    // Other writes are noted beside them, and take nothing else.
    kubectl.line(&format!("label cm {MAP} a=b")).succeeds();
    kubectl.run(&["patch", "cm", MAP, "-p", r#"{"data":{"m":"v"}}"#]).succeeds();
    let found = managers(&shown());
    let expected = [
        ("kubectl", "Apply", json!({"f:data": {"f:l": {}}})),
        ("other", "Apply", json!({"f:data": {"f:k": {}}})),
        ("kubectl-label", "Update", json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}})),
        ("kubectl-patch", "Update", json!({"f:data": {"f:m": {}}})),
    ];
    for manager in expected.map(named) {
        assert!(found.contains(&manager), "{manager:?} is not in {found:#?}");
    }
    // What is no longer applied goes; what others manage stays.
    run("apply --server-side", "{}").succeeds();
    assert_eq!(shown()["data"], json!({"k": "w", "m": "v"}));
    kubectl.line(&format!("get cm {MAP} -o yaml")).succeeds();
    kubectl.line(&format!("delete cm {MAP}")).succeeds();

    // From `kubectl apply` to the server's and back.
    run("apply", "{k: v, l: v}").prints(&format!("configmap/{MAP} created"));
    run("apply --server-side", "{k: w}").succeeds();
    assert_eq!(shown()["data"], json!({"k": "w"}));
    let names: Vec<_> = managers(&shown()).into_iter().map(|(name, ..)| name).collect();
    assert!(!names.contains(&"kubectl-client-side-apply".to_owned()), "{names:?}");
    run("apply", "{k: x}").succeeds();
    assert_eq!(shown()["data"], json!({"k": "x"}));
    kubectl.line(&format!("delete cm {MAP}")).succeeds();
}

fn named((name, operation, fields): (&str, &str, Value)) -> (String, String, Value) {
    (name.to_owned(), operation.to_owned(), fields)
}

fn managers(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let named = entries
        .iter()
        .map(|entry| (text(entry, "manager"), text(entry, "operation"), entry["fieldsV1"].clone()));
    named.collect()
}
