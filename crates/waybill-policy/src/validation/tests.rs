//! Faults of rules, in upstream's words.

#![expect(
    clippy::needless_pass_by_value,
    reason = "literals of JSON read better without references"
)]

use serde_json::json;

use super::*;

#[track_caller]
fn check(errors: &ErrorList, expected: &[&str]) {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

fn policy(change: Json) -> Json {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "matchPolicy": "Equivalent"},
        "validations": [{"expression": "true"}],
    });
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "p"}, "spec": spec})
}

#[test]
fn a_sound_policy_has_no_faults() {
    check(&validate_policy(&policy(json!({}))), &[]);
}

#[test]
fn expressions_that_do_not_compile_are_told_with_their_place() {
    let faults = validate_policy(&policy(json!({
        "validations": [{"expression": "object.x <"}, {"expression": "1"}, {"expression": "true", "messageExpression": "1"}],
        "variables": [{"name": "v", "expression": "foo"}],
        "matchConditions": [{"name": "c", "expression": "variables.v"}],
    })));
    let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert!(texts[0].starts_with("spec.matchConditions[0].expression: Invalid value: \"variables.v\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables'"), "{texts:?}");
    assert!(texts[1].starts_with("spec.variables[0].expression: Invalid value: \"foo\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo'"), "{texts:?}");
    assert!(texts[2].starts_with("spec.validations[0].expression: Invalid value: \"object.x <\": compilation failed: ERROR: <input>:1:11: Syntax error"), "{texts:?}");
    assert_eq!(
        texts[3],
        "spec.validations[1].expression: Invalid value: \"1\": must evaluate to bool"
    );
    assert_eq!(
        texts[4],
        "spec.validations[2].messageExpression: Invalid value: \"1\": must evaluate to string"
    );
}

#[test]
fn policies_are_checked_as_upstream_checks_them() {
    let faults = |change: Json| {
        validate_policy(&policy(change)).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let one = |change: Json, text: &str| assert_eq!(faults(change), [text]);
    one(
        json!({"failurePolicy": "Maybe"}),
        "spec.failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
    );
    one(json!({"matchConstraints": null}), "spec.matchConstraints: Required value");
    one(json!({"matchConstraints": {}}), "spec.matchConstraints.resourceRules: Required value");
    one(
        json!({"variables": [{"name": "1a", "expression": "1"}]}),
        "spec.variables[0].name: Invalid value: \"1a\": must be a valid CEL identifier",
    );
    one(
        json!({"validations": [{"expression": " "}]}),
        "spec.validations[0].expression: Required value: expression is not specified",
    );
    one(
        json!({"validations": [{"expression": "true", "reason": "Because"}]}),
        "spec.validations[0].reason: Unsupported value: \"Because\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\", \"Unauthorized\"",
    );
    one(
        json!({"validations": [{"expression": "true", "message": "a\nb"}]}),
        "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
    );
    one(
        json!({"paramKind": {"apiVersion": "a/b/c", "kind": "X"}}),
        "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
    );
    one(
        json!({"auditAnnotations": [{"key": "k", "valueExpression": ""}]}),
        "spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified",
    );
    assert_eq!(faults(json!({"validations": []})).len(), 2);
    let many: Vec<_> = (0..600).map(|_| json!({"expression": "true"})).collect();
    one(
        json!({ "validations": many }),
        "spec.validations: Too many: 600: must have at most 512 items",
    );
    let conditions: Vec<_> =
        (0..65).map(|n| json!({"name": format!("c{n}"), "expression": "true"})).collect();
    one(
        json!({ "matchConditions": conditions }),
        "spec.matchConditions: Too many: 65: must have at most 64 items",
    );
    // `params` is a name only where there are some.
    assert!(
        faults(json!({"validations": [{"expression": "params.x == 1"}]}))[0]
            .contains("undeclared reference to 'params'")
    );
    assert!(faults(json!({"validations": [{"expression": "params.x == 1"}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}})).is_empty());
}

#[test]
fn bindings_are_checked_as_upstream_checks_them() {
    let faults = |spec: Json| {
        validate_binding(&json!({ "spec": spec }))
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert!(faults(json!({"policyName": "p", "validationActions": ["Deny", "Audit"]})).is_empty());
    assert_eq!(
        faults(json!({})),
        [
            "spec.policyName: Required value",
            "spec.validationActions: Required value: at least one validation action is required"
        ]
    );
    assert_eq!(
        faults(json!({"policyName": "p", "validationActions": ["Deny", "Warn"]})),
        [
            "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"
        ]
    );
    assert_eq!(
        faults(json!({"policyName": "p", "validationActions": ["Deny", "Deny"], "paramRef": {}})),
        [
            "spec.paramRef: Required value: one of name or selector must be specified",
            "spec.paramRef.parameterNotFoundAction: Required value",
            "spec.validationActions[1]: Duplicate value: \"Deny\"",
        ]
    );
}

#[test]
fn webhooks_are_checked_as_upstream_checks_them() {
    let webhook = |change: Json| {
        let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
        let mut webhook = json!({
            "name": "a.example.com",
            "rules": [rule],
            "clientConfig": {"url": "https://host/path"},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        });
        for (key, value) in change.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        webhook
    };
    let faults = |webhooks: &[Json]| {
        let document = json!({ "webhooks": webhooks });
        validate_mutating_webhooks(&document).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let one = |change: Json, text: &str| {
        assert_eq!(faults(&[webhook(change)]), [format!("webhooks[0].{text}")]);
    };
    assert!(faults(&[webhook(json!({}))]).is_empty());
    assert_eq!(
        faults(&[webhook(json!({})), webhook(json!({}))]),
        ["webhooks[1].name: Duplicate value: \"a.example.com\""]
    );
    one(
        json!({"name": "a"}),
        "name: Invalid value: \"a\": should be a domain with at least three segments separated by dots",
    );
    one(
        json!({"timeoutSeconds": 31}),
        "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
    );
    one(
        json!({"timeoutSeconds": 0}),
        "timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds",
    );
    one(
        json!({"sideEffects": null}),
        "sideEffects: Required value: must specify one of None, NoneOnDryRun",
    );
    one(
        json!({"sideEffects": "Some"}),
        "sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
    );
    one(
        json!({"admissionReviewVersions": ["v9"]}),
        "admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
    );
    one(
        json!({"reinvocationPolicy": "Always"}),
        "reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \"Never\"",
    );
    one(
        json!({"clientConfig": {}}),
        "clientConfig: Required value: exactly one of url or service is required",
    );
    one(
        json!({"clientConfig": {"url": "http://host"}}),
        "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
    );
    one(
        json!({"clientConfig": {"url": "https://u:secret@host"}}),
        "clientConfig.url: Invalid value: \"...\": user information is not permitted in the URL",
    );
    one(
        json!({"clientConfig": {"url": "https://host?a"}}),
        "clientConfig.url: Invalid value: \"a\": query parameters are not permitted in the URL",
    );
    one(
        json!({"clientConfig": {"service": {"name": "s", "namespace": "n", "port": 0}}}),
        "clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
    );
    one(
        json!({"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/a//b"}}}),
        "clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty",
    );
    one(
        json!({"rules": [{"operations": ["CREATE", "*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}),
        "rules[0].operations: Invalid value: [\"CREATE\",\"*\"]: if '*' is present, must not specify other operations",
    );
    one(
        json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/*", "pods/exec"]}]}),
        "rules[0].resources[1]: Invalid value: \"pods/exec\": if 'pods/*' is present, must not specify pods/exec",
    );
    one(
        json!({"matchConditions": [{"name": "c", "expression": "1"}]}),
        "matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool",
    );
}
