//! What is read from YAML, and what is refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::{DecodeError, FieldValidation, KindSchema, lookup};

fn pod() -> &'static KindSchema {
    lookup("", "v1", "Pod").unwrap()
}

fn config_map() -> &'static KindSchema {
    lookup("", "v1", "ConfigMap").unwrap()
}

/// The object, without the names that decoding adds, and what to warn of.
fn decoded(schema: &KindSchema, yaml: &str) -> (Value, Vec<String>) {
    let decoded = schema.decode_yaml(yaml.as_bytes(), FieldValidation::Warn);
    let decoded = decoded.unwrap_or_else(|error| panic!("{yaml}: {}", schema.refusal(&error)));
    let mut object = decoded.object;
    object.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
    (object, decoded.warnings)
}

#[track_caller]
fn reads(schema: &KindSchema, yaml: &str, expected: Value) {
    assert_eq!(decoded(schema, yaml), (expected, Vec::new()), "{yaml}");
}

#[track_caller]
fn refuses(yaml: &[u8], words: &str) {
    let error = config_map().decode_yaml(yaml, FieldValidation::Ignore).unwrap_err();
    let text = config_map().refusal(&error);
    assert!(text.contains(words), "{text}");
}

#[test]
fn documents_are_read_as_go_reads_them() {
    reads(
        pod(),
        "---\nmetadata: {name: web}\nspec:\n  containers:\n  - name: c # one\n    image: \"i\"\n",
        json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    );
    reads(
        pod(),
        "spec: {hostNetwork: yes, volumes: [{name: v, secret: {defaultMode: 0644}}]}",
        json!({"spec": {"hostNetwork": true,
            "volumes": [{"name": "v", "secret": {"defaultMode": 420}}]}}),
    );
    reads(
        config_map(),
        "data:\n  1: one\n  text: |\n    a\n    b\n  empty: ''\n  none: ~",
        json!({"data": {"1": "one", "text": "a\nb\n", "empty": "", "none": ""}}),
    );
    reads(
        config_map(),
        "metadata: {creationTimestamp: 2024-01-01T00:00:00Z}",
        json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}}),
    );
    reads(config_map(), r#"{"data": {"json": "is yaml"}}"#, json!({"data": {"json": "is yaml"}}));
}

#[test]
fn anchors_and_merges_are_followed() {
    reads(
        config_map(),
        "metadata:\n  labels: &l {a: '1', b: '2'}\n  annotations: *l\n",
        json!({"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"a": "1", "b": "2"}}}),
    );
    reads(
        config_map(),
        "metadata:\n  labels: &l {a: '1', b: '2'}\n  annotations:\n    <<: *l\n    b: '3'\n",
        json!({"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"a": "1", "b": "3"}}}),
    );
}

#[test]
fn unknown_and_duplicate_fields_are_found() {
    let cases = [
        ("data: {a: b}\nnothing: 1\n", "unknown field \"nothing\""),
        ("data: {a: b}\ndata: {a: c}\n", "duplicate field \"data\""),
        ("data: {a: b, a: c}\n", "duplicate field \"data.a\""),
        ("data:\n  1: b\n  1: c\n", "line 3: key already set in map"),
    ];
    for (yaml, finding) in cases {
        let (object, warnings) = decoded(config_map(), yaml);
        assert_eq!(warnings, [finding], "{yaml}");
        assert!(object["data"].as_object().unwrap().values().all(|value| value != "x"));
        let strict = config_map().decode_yaml(yaml.as_bytes(), FieldValidation::Strict);
        let strict = strict.unwrap_err().to_string();
        assert_eq!(strict, format!("strict decoding error: {finding}"));
        let ignored = config_map().decode_yaml(yaml.as_bytes(), FieldValidation::Ignore).unwrap();
        assert!(ignored.warnings.is_empty());
    }
    assert_eq!(decoded(config_map(), "data: {a: b, a: c}").0, json!({"data": {"a": "c"}}));
}

#[test]
fn what_is_no_object_is_refused() {
    for bad in ["", "~", "text", "- a", "{", "a: b: c", "\tx", "data: &a {b: *a}", "data: *none"] {
        refuses(bad.as_bytes(), "");
    }
    refuses(b"data: {a: [1]}", "data.a: expected a string, found a list");
    refuses(b"data: {a: 1}", "data.a: expected a string, found a number");
    refuses(b"data: {a: yes}", "data.a: expected a string, found a boolean");
    refuses(b"data: {}\n---\ndata: {}\n", "yaml: line 3: more than one document");
    refuses(b"data:\n  a: \xff\n", "yaml: line 2: not UTF-8");
    refuses(b"data:\n  a: 'x\n", "error converting YAML to JSON: yaml: line ");
}

#[test]
fn depth_aliases_and_their_expansion_are_bounded() {
    refuses(format!("metadata: {}", "[".repeat(100_000)).as_bytes(), "");
    let open = "{a: ".repeat(MAX_DEPTH + 10);
    refuses(format!("unknown: {open}{}", "}".repeat(MAX_DEPTH + 10)).as_bytes(), "too deep");
    let indented: String = (0..10_000).map(|depth| format!("{}- \n", " ".repeat(depth))).collect();
    refuses(indented.get(..3_000_000).unwrap_or(&indented).as_bytes(), "");

    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    refuses(bomb.as_bytes(), "too ");
    let large = "x".repeat(1_000_000);
    refuses(format!("data: {{a: &a {large}, b: *a, c: *a, d: *a}}").as_bytes(), "too ");
    let many: String = (0..=MAX_ALIASES).map(|at| format!("  k{at}: *a\n")).collect();
    refuses(format!("data:\n  a: &a x\n{many}").as_bytes(), "too ");
}

#[test]
fn no_error_shows_a_value() {
    const CANARY: &str = "canary-81c2";
    for yaml in [
        "data: {a: [canary-81c2]}",
        "data: {a: 'canary-81c2",
        "data: &canary-81c2x *canary-81c2",
        "data: {a: !!int canary-81c2}",
        "data: {a: !!binary canary-81c2}",
        "data: {? [canary-81c2] : x}",
        "canary-81c2: - x",
        "data: canary-81c2",
    ] {
        let Err(error) = config_map().decode_yaml(yaml.as_bytes(), FieldValidation::Ignore) else {
            panic!("{yaml} is good");
        };
        let text = format!("{} {error:?}", config_map().refusal(&error));
        assert!(!text.contains(CANARY), "{yaml}: {text}");
    }
}

#[test]
fn an_error_tells_its_line() {
    let error = config_map().decode_yaml(b"data:\n  a: b\n c: d\n", FieldValidation::Ignore);
    let Err(DecodeError::Yaml(error)) = error else { panic!("{error:?}") };
    assert_eq!(error.line, 3, "{error}");
}

proptest! {
    /// What is JSON is YAML, and means the same.
    #[test]
    fn json_is_read_alike(keys in proptest::collection::vec("[a-z0-9.]{1,6}", 0..5), text in "[ -~é]{0,20}") {
        let data: serde_json::Map<String, Value> =
            keys.into_iter().map(|key| (key, text.clone().into())).collect();
        let document = json!({"metadata": {"name": "n"}, "data": data}).to_string();
        let json = config_map().decode(document.as_bytes(), FieldValidation::Strict).unwrap();
        let yaml = config_map().decode_yaml(document.as_bytes(), FieldValidation::Strict).unwrap();
        prop_assert_eq!(json, yaml);
    }

    #[test]
    fn no_text_panics(text in "[-a-z0-9:{}\\[\\],&*!|>'\"#~ \n\t]{0,60}") {
        let _ = config_map().decode_yaml(text.as_bytes(), FieldValidation::Warn);
    }
}
