//! What is read, pruned, warned of and refused.

use proptest::prelude::*;
use serde_json::json;

use super::{super::lookup, *};

fn kind(group: &str, version: &str, kind: &str) -> &'static KindSchema {
    lookup(group, version, kind).unwrap()
}

fn pod() -> &'static KindSchema {
    kind("", "v1", "Pod")
}

/// The findings and the pruned object, without the names that decoding adds.
fn decoded(schema: &KindSchema, document: &str) -> (Vec<String>, Value) {
    let decoded = schema.decode(document.as_bytes(), FieldValidation::Warn).unwrap();
    let Value::Object(mut fields) = decoded.object else { panic!("not an object") };
    fields.remove("apiVersion");
    fields.remove("kind");
    (decoded.warnings, Value::Object(fields))
}

/// Checks that `document` is kept as it is, without a finding.
#[track_caller]
fn keeps(schema: &KindSchema, document: Value) {
    assert_eq!(decoded(schema, &document.to_string()), (Vec::new(), document));
}

#[track_caller]
fn finds(schema: &KindSchema, document: &str, findings: &[&str], pruned: Value) {
    let findings = findings.iter().map(|finding| (*finding).to_owned()).collect();
    assert_eq!(decoded(schema, document), (findings, pruned));
}

#[track_caller]
fn refuses(schema: &KindSchema, document: &str, message: &str) {
    let error = schema.decode(document.as_bytes(), FieldValidation::Ignore).unwrap_err();
    assert_eq!(error.to_string(), message, "{document}");
}

#[test]
fn known_fields_of_every_group_are_kept() {
    keeps(
        pod(),
        json!({
            "metadata": {
                "name": "web",
                "labels": {"any.key/at-all": "x"},
                "creationTimestamp": "2024-01-01T00:00:00Z",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {".": {}, "a": null}}}],
                "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}],
            },
            "spec": {
                "containers": [{
                    "name": "c",
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"csiSecretRef": {
                            "driver": "d", "providerClassName": "p", "key": "k",
                            "parameters": {"x": "y"}, "optional": true,
                        }}},
                        {"name": "C", "valueFrom": {"fileKeyRef": {
                            "volumeName": "v", "path": "p", "key": "k", "optional": false,
                        }}},
                    ],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "resources": {"limits": {"cpu": "500m", "example.com/gpu": "1"}},
                    "livenessProbe": {"httpGet": {"port": "http"}},
                    "readinessProbe": {"tcpSocket": {"port": 80}},
                }],
                "terminationGracePeriodSeconds": 30,
                "hostNetwork": false,
            },
            "status": {"phase": "Running", "conditions": []},
        }),
    );
    keeps(kind("", "v1", "ConfigMap"), json!({"data": {"a": "b"}, "binaryData": {"a": "YQ=="}}));
    keeps(kind("", "v1", "Secret"), json!({"data": {"a": "YWI="}, "stringData": {"b": "c"}}));
    keeps(kind("", "v1", "Event"), json!({"count": 3, "eventTime": "2024-01-01T00:00:00.000001Z"}));
    keeps(kind("events.k8s.io", "v1", "Event"), json!({"note": "n", "series": {"count": 2}}));
    keeps(
        kind("coordination.k8s.io", "v1", "Lease"),
        json!({"spec": {"renewTime": "2024-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}}),
    );
    keeps(
        kind("rbac.authorization.k8s.io", "v1", "ClusterRole"),
        json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    );
    keeps(kind("storage.k8s.io", "v1", "CSIDriver"), json!({"spec": {"attachRequired": false}}));
    keeps(
        kind("storage.k8s.io", "v1", "CSINode"),
        json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 3}}]}}),
    );
    for version in ["v1", "v1alpha1"] {
        keeps(
            kind("storage.k8s.io", version, "ProviderClass"),
            json!({"metadata": {"name": "p"}, "spec": {"driver": "d", "parameters": {"a": "b"}}}),
        );
    }
    keeps(kind("", "v1", "PodList"), json!({"items": [{"spec": {"containers": []}}]}));
    keeps(
        kind("", "v1", "DeleteOptions"),
        json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}),
    );
}

#[test]
fn unknown_fields_are_found_and_dropped() {
    finds(
        pod(),
        r#"{"spec": {"foo": {"deep": [1]}, "containers": [{"name": "c", "bar": 1}]}, "x": null}"#,
        &[
            r#"unknown field "spec.foo""#,
            r#"unknown field "spec.containers[0].bar""#,
            r#"unknown field "x""#,
        ],
        json!({"spec": {"containers": [{"name": "c"}]}}),
    );
    finds(
        kind("storage.k8s.io", "v1", "ProviderClass"),
        r#"{"spec": {"driver": "d", "params": {}}}"#,
        &[r#"unknown field "spec.params""#],
        json!({"spec": {"driver": "d"}}),
    );
    // The API is sensitive to case.
    finds(pod(), r#"{"Spec": {}}"#, &[r#"unknown field "Spec""#], json!({}));
}

#[test]
fn duplicate_fields_are_found_and_the_last_one_counts() {
    finds(
        pod(),
        r#"{"spec": {"nodeName": "a", "nodeName": "b"}, "metadata": {"labels": {"x": "1", "x": "2"}}}"#,
        &[r#"duplicate field "spec.nodeName""#, r#"duplicate field "metadata.labels.x""#],
        json!({"spec": {"nodeName": "b"}, "metadata": {"labels": {"x": "2"}}}),
    );
}

#[test]
fn field_validation_decides_about_findings() {
    let document = br#"{"spec": {"foo": 1, "containers": [{"bar": 1}], "foo": 2}}"#;
    let error = pod().decode(document, FieldValidation::Strict).unwrap_err();
    let text = r#"strict decoding error: unknown field "spec.foo", unknown field "spec.containers[0].bar""#;
    assert_eq!(error.to_string(), text);
    let refusal = format!("Pod in version \"v1\" cannot be handled as a Pod: {text}");
    assert_eq!(pod().refusal(&error), refusal);

    let warned = pod().decode(document, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings.len(), 2);
    let ignored = pod().decode(document, FieldValidation::Ignore).unwrap();
    assert!(ignored.warnings.is_empty());
    assert_eq!(warned.object, ignored.object);

    assert_eq!(FieldValidation::parse(""), Some(FieldValidation::Warn));
    assert_eq!(FieldValidation::parse("strict"), None);
}

#[test]
fn null_is_nothing_in_fields_and_zero_in_lists_and_maps() {
    finds(
        pod(),
        r#"{
            "metadata": {"creationTimestamp": null, "labels": {"a": null}},
            "spec": {"nodeName": null, "containers": [null, {"args": [null],
                "resources": {"limits": {"cpu": null}}}]}
        }"#,
        &[],
        json!({
            "metadata": {"labels": {"a": ""}},
            "spec": {"containers": [{}, {"args": [""], "resources": {"limits": {"cpu": "0"}}}]},
        }),
    );
}

#[test]
fn numbers_become_quantities_and_base64_loses_its_line_ends() {
    finds(
        pod(),
        r#"{"spec": {"overhead": {"cpu": 1, "memory": 0.5}}}"#,
        &[],
        json!({"spec": {"overhead": {"cpu": "1", "memory": "0.5"}}}),
    );
    let secret = kind("", "v1", "Secret");
    finds(secret, r#"{"data": {"a": "YW\nI=\r\n"}}"#, &[], json!({"data": {"a": "YWI="}}));
}

#[test]
fn wrong_types_are_refused_without_showing_the_value() {
    refuses(pod(), r#""hunter2""#, "document: expected an object, found a string");
    refuses(pod(), "null", "document: expected an object, found null");
    refuses(
        pod(),
        r#"{"spec": {"containers": "hunter2"}}"#,
        "spec.containers: expected a list, found a string",
    );
    refuses(
        pod(),
        r#"{"spec": {"containers": [{"env": {}}]}}"#,
        "spec.containers[0].env: expected a list, found an object",
    );
    refuses(
        pod(),
        r#"{"metadata": {"labels": {"a": 1}}}"#,
        "metadata.labels.a: expected a string, found a number",
    );
    refuses(
        pod(),
        r#"{"spec": {"hostNetwork": "true"}}"#,
        "spec.hostNetwork: expected a boolean, found a string",
    );
    refuses(
        pod(),
        r#"{"spec": {"priority": 2147483648}}"#,
        "spec.priority: expected a 32-bit integer, found a larger number",
    );
    refuses(
        pod(),
        r#"{"spec": {"terminationGracePeriodSeconds": 1.5}}"#,
        "spec.terminationGracePeriodSeconds: expected an integer, found a number that is no \
         integer or too large",
    );
    refuses(
        pod(),
        r#"{"spec": {"overhead": {"cpu": "lots"}}}"#,
        "spec.overhead.cpu: expected a quantity, found other text",
    );
    refuses(
        pod(),
        r#"{"metadata": {"creationTimestamp": "yesterday"}}"#,
        "metadata.creationTimestamp: expected a time as in RFC 3339, found other text",
    );
    refuses(
        kind("coordination.k8s.io", "v1", "Lease"),
        r#"{"spec": {"renewTime": "2024-01-01T00:00:00Z"}}"#,
        "spec.renewTime: expected a time as in RFC 3339 with six decimals, found other text",
    );
    refuses(
        kind("", "v1", "Secret"),
        r#"{"data": {"a": "hunter2"}}"#,
        "data.a: expected a string in base64, found other text",
    );
}

#[test]
fn malformed_documents_are_refused() {
    for body in ["", "{", "{}x", r#"{"spec": }"#, "\u{feff}{}", r#"{"kind": "\ud800"}"#] {
        let error = pod().decode(body.as_bytes(), FieldValidation::Ignore).unwrap_err();
        assert!(matches!(error, DecodeError::Malformed(_)), "{body:?}: {error}");
    }
    let error = pod().decode(b"{\"metadata\": {\"name\": \"\xff\"}}", FieldValidation::Ignore);
    assert!(matches!(error, Err(DecodeError::Malformed(_))));
    let error = pod().decode(b"{", FieldValidation::Ignore).unwrap_err();
    assert_eq!(
        pod().refusal(&error),
        "the object provided is unrecognized (must be of type Pod): json parse error: EOF while \
         parsing an object at line 1 column 1"
    );
}

#[test]
fn deep_documents_are_refused_or_skipped_but_never_followed() {
    let deep = "[".repeat(100_000);
    refuses(pod(), &deep, "document: expected an object, found a list");
    refuses(
        pod(),
        &format!(r#"{{"metadata": {{"managedFields": [{{"fieldsV1": {deep}"#),
        "nesting is deeper than 120 levels",
    );
    // An unknown field is skipped without recursion.
    let closed = format!(r#"{{"x": {deep}{}}}"#, "]".repeat(100_000));
    finds(pod(), &closed, &[r#"unknown field "x""#], json!({}));
}

#[test]
fn names_are_checked_and_added() {
    let decoded = pod().decode(b"{}", FieldValidation::Strict).unwrap();
    assert_eq!(decoded.object, json!({"apiVersion": "v1", "kind": "Pod"}));
    let error = pod().decode(br#"{"apiVersion": "apps/v1"}"#, FieldValidation::Ignore).unwrap_err();
    assert_eq!(
        pod().refusal(&error),
        "the API version in the data (apps/v1) does not match the expected API version (v1)"
    );
    let error = pod().decode(br#"{"kind": "Secret"}"#, FieldValidation::Ignore).unwrap_err();
    assert_eq!(pod().refusal(&error), "Secret in version \"v1\" cannot be handled as a Pod");
    // Clients send these options in the version of the object that they delete.
    let options = br#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "DeleteOptions"}"#;
    kind("", "v1", "DeleteOptions").decode(options, FieldValidation::Strict).unwrap();
}

#[test]
fn a_flood_of_findings_is_cut_off() {
    let fields: Vec<_> = (0..500).map(|n| format!(r#""x{n}": 1"#)).collect();
    let (findings, _) = decoded(pod(), &format!("{{{}}}", fields.join(",")));
    assert_eq!(findings.len(), 100);
    let (findings, _) = decoded(pod(), &format!(r#"{{"{}": 1}}"#, "x".repeat(1_000_000)));
    assert!(findings[0].len() < 200, "{}", findings[0].len());
}

#[test]
fn finished_documents_are_checked_alike() {
    let document = json!({"spec": {"foo": 1, "nodeName": null, "hostNetwork": true}});
    let checked = pod().check(document, FieldValidation::Warn).unwrap();
    assert_eq!(checked.warnings, [r#"unknown field "spec.foo""#]);
    assert_eq!(checked.object["spec"], json!({"hostNetwork": true}));
    let mut deep = json!({});
    for _ in 0..1000 {
        deep = json!({ "f:a": deep });
    }
    let document = json!({"metadata": {"managedFields": [{"fieldsV1": deep}]}});
    let error = pod().check(document, FieldValidation::Warn).unwrap_err();
    assert!(matches!(error, DecodeError::TooDeep), "{error}");
}

/// Hole: a million empty containers in 3 MB made the server hold 4 GB of what is wrong with them.
#[test]
fn a_document_with_too_many_items_is_refused_before_its_items_are_judged() {
    let list = |count| format!("[{}]", vec!["{}"; count].join(","));
    let body = |containers: &str| format!(r#"{{"spec": {{"containers": {containers}}}}}"#);
    let decode = |body: &str| pod().decode(body.as_bytes(), FieldValidation::Warn);
    assert!(decode(&body(&list(50_000))).is_ok());
    let error = decode(&body(&list(50_001))).unwrap_err();
    assert!(matches!(error, DecodeError::TooLong), "{error}");
    let labels: Vec<_> = (0..60_000).map(|number| format!(r#""{number}":"""#)).collect();
    let error =
        decode(&format!(r#"{{"metadata": {{"labels": {{{}}}}}}}"#, labels.join(","))).unwrap_err();
    assert!(pod().refusal(&error).ends_with("lists and maps have more than 50000 items together"));
}

/// JSON whose keys are often those of a pod.
fn document() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        proptest::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "name",
            "labels",
            "containers",
            "env",
            "valueFrom",
            "csiSecretRef",
            "parameters",
            "resources",
            "limits",
            "ports",
            "volumes",
            "kind",
            "data",
            "fieldsV1",
            "managedFields",
            "creationTimestamp",
            "tolerations",
        ])
        .prop_map(str::to_owned),
        "[a-z.]{0,3}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-zA-Z0-9=:.-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruned_objects_have_no_findings_and_stay_as_they_are(document in document()) {
        for schema in [pod(), kind("", "v1", "Secret"), kind("", "v1", "PodList")] {
            let Ok(first) = schema.check(document.clone(), FieldValidation::Warn) else { continue };
            let bytes = serde_json::to_vec(&first.object).unwrap();
            let second = schema.decode(&bytes, FieldValidation::Strict).unwrap();
            prop_assert_eq!(second.object, first.object);
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(pod().decode(&bytes, FieldValidation::Warn));
    }

    #[test]
    fn no_text_of_json_characters_makes_decoding_panic(text in r#"[\[\]{}:,"a-c0-9\\. ]{0,100}"#) {
        drop(pod().decode(text.as_bytes(), FieldValidation::Warn));
    }
}
