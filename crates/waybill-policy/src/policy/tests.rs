//! What policies say about a request.

#![expect(
    clippy::needless_pass_by_value,
    reason = "literals of JSON read better without references"
)]

use serde_json::json;

use super::*;
use crate::fixtures::{World, exec_request, pod_request};

/// A policy on pods and exec, with one binding that denies.
fn active(spec: Json, binding: Json) -> ActivePolicy {
    let mut policy = json!({"metadata": {"name": "rule"}, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [
            {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/exec"]}
        ]},
    }});
    merge(&mut policy["spec"], spec);
    let mut bound = json!({"metadata": {"name": "here"}, "spec": {"policyName": "rule", "validationActions": ["Deny"]}});
    merge(&mut bound["spec"], binding);
    ActivePolicy {
        policy: Arc::new(Policy::load(&policy).unwrap()),
        bindings: vec![Arc::new(Binding::load(&bound).unwrap())],
    }
}

fn merge(into: &mut Json, from: Json) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

fn validation(expression: &str) -> Json {
    json!({"validations": [{"expression": expression}]})
}

fn outcome(active: &ActivePolicy, request: &AdmissionRequest<'_>) -> PolicyOutcome {
    judge([active], request, &World::default())
}

fn denials(active: &ActivePolicy, request: &AdmissionRequest<'_>) -> Vec<String> {
    outcome(active, request).denials.into_iter().map(|denial| denial.message).collect()
}

#[test]
fn a_validation_that_is_false_denies_with_upstreams_text() {
    let pod = json!({"spec": {"hostNetwork": true}});
    let rule = active(validation("!object.spec.hostNetwork"), json!({}));
    assert_eq!(
        denials(&rule, &pod_request(&pod)),
        [
            "ValidatingAdmissionPolicy 'rule' with binding 'here' denied request: failed expression: !object.spec.hostNetwork"
        ]
    );
    let passes = active(validation("object.spec.hostNetwork"), json!({}));
    assert!(denials(&passes, &pod_request(&pod)).is_empty());
}

#[test]
fn messages_come_from_the_expression_then_the_text_then_the_rule() {
    let pod = json!({"metadata": {"name": "web"}});
    let said = |validation: Json| {
        let rule = active(json!({"validations": [validation]}), json!({}));
        let all = denials(&rule, &pod_request(&pod));
        all[0].rsplit_once("request: ").unwrap().1.to_owned()
    };
    let with = |message_expression: &str| {
        said(
            json!({"expression": "false", "message": " text ", "messageExpression": message_expression}),
        )
    };
    assert_eq!(with("'no ' + object.metadata.name"), "no web");
    assert_eq!(with("object.missing"), "text");
    assert_eq!(with("'a\\nb'"), "text");
    assert_eq!(with("'  '"), "text");
    assert_eq!(with("lists.range(6000).map(x, 'a').join()"), "text");
    assert_eq!(said(json!({"expression": " false "})), "failed expression: false");
}

#[test]
fn reasons_become_codes() {
    let pod = json!({});
    for (reason, code) in [
        (json!(null), 422),
        (json!("Forbidden"), 403),
        (json!("RequestEntityTooLarge"), 413),
        (json!("Unauthorized"), 401),
    ] {
        let rule =
            active(json!({"validations": [{"expression": "false", "reason": reason}]}), json!({}));
        assert_eq!(outcome(&rule, &pod_request(&pod)).denials[0].reason.code(), code);
    }
}

#[test]
fn an_error_follows_the_failure_policy() {
    let pod = json!({});
    let mut spec = validation("object.missing == 1");
    let fails = denials(&active(spec.clone(), json!({})), &pod_request(&pod));
    assert_eq!(
        fails,
        [
            "ValidatingAdmissionPolicy 'rule' with binding 'here' denied request: expression 'object.missing == 1' resulted in error: no such key: missing"
        ]
    );
    spec["failurePolicy"] = json!("Ignore");
    assert!(denials(&active(spec, json!({})), &pod_request(&pod)).is_empty());
}

#[test]
fn a_policy_that_cannot_be_compiled_fails_for_what_it_is_about() {
    let pod = json!({});
    let rule = active(validation("object.("), json!({}));
    assert!(
        denials(&rule, &pod_request(&pod))[0]
            .contains("spec.validations[0].expression: Invalid value")
    );
    let mut other = pod_request(&pod);
    other.resource.resource = "nodes";
    assert!(denials(&rule, &other).is_empty());
}

#[test]
fn bindings_warn_and_record_instead() {
    let pod = json!({});
    let rule = active(validation("false"), json!({"validationActions": ["Warn", "Audit"]}));
    let outcome = outcome(&rule, &pod_request(&pod));
    assert!(outcome.denials.is_empty());
    assert_eq!(
        outcome.warnings,
        [
            "Validation failed for ValidatingAdmissionPolicy 'rule' with binding 'here': failed expression: false"
        ]
    );
    let (key, value) = &outcome.annotations[0];
    assert_eq!(key, "validation.policy.admission.k8s.io/validation_failure");
    assert_eq!(
        serde_json::from_str::<Json>(value).unwrap(),
        json!([{"message": "failed expression: false", "policy": "rule", "binding": "here", "expressionIndex": 0, "validationActions": ["Warn", "Audit"]}])
    );
}

#[test]
fn annotations_are_published_under_the_policy() {
    let pod = json!({"metadata": {"name": "web"}});
    let rule = active(
        json!({"auditAnnotations": [
            {"key": "pod", "valueExpression": "'made ' + object.metadata.name"},
            {"key": "none", "valueExpression": "null"},
        ]}),
        json!({}),
    );
    let annotations = outcome(&rule, &pod_request(&pod)).annotations;
    assert_eq!(annotations, [("rule/pod".to_owned(), "made web".to_owned())]);
    let broken = active(
        json!({"auditAnnotations": [{"key": "pod", "valueExpression": "object.missing"}]}),
        json!({"validationActions": ["Warn"]}),
    );
    assert!(denials(&broken, &pod_request(&pod))[0].contains("no such key: missing"));
}

#[test]
fn conditions_let_requests_pass_unjudged() {
    let pod = json!({});
    let with = |expression: &str| {
        let mut spec = validation("false");
        spec["matchConditions"] = json!([{"name": "c", "expression": expression}]);
        denials(&active(spec, json!({})), &pod_request(&pod)).len()
    };
    assert_eq!(with("request.userInfo.username == 'ann'"), 1);
    assert_eq!(with("request.userInfo.username != 'ann'"), 0);
    assert_eq!(with("object.missing == 1"), 1);
}

#[test]
fn parameters_are_seen_one_after_the_other() {
    let pod = json!({"spec": {"replicas": 5}});
    let map = |name: &str, most: &str| json!({"metadata": {"name": name, "labels": {"limits": "yes"}}, "data": {"most": most}});
    let world = World { params: vec![map("a", "3"), map("b", "10")] };
    let judged = |param_ref: Json, kind: &str| {
        let mut spec = validation("object.spec.replicas <= int(params.data.most)");
        spec["paramKind"] = json!({"apiVersion": "v1", "kind": kind});
        let rule = active(spec, json!({"paramRef": param_ref}));
        let outcome = judge([&rule], &pod_request(&pod), &world);
        outcome.denials.into_iter().map(|denial| denial.message).collect::<Vec<_>>()
    };
    let named = |name: &str, action: &str| json!({"name": name, "parameterNotFoundAction": action});
    assert_eq!(judged(named("a", "Deny"), "ConfigMap").len(), 1);
    assert!(judged(named("b", "Deny"), "ConfigMap").is_empty());
    assert!(judged(named("none", "Allow"), "ConfigMap").is_empty());
    assert!(judged(named("none", "Deny"), "ConfigMap")[0].ends_with(
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    ));
    assert!(
        judged(named("a", "Deny"), "Limits")[0]
            .ends_with("paramKind kind `v1, Kind=Limits` not known")
    );
    let selected =
        json!({"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"});
    assert_eq!(judged(selected, "ConfigMap").len(), 1);
    assert!(judged(Json::Null, "ConfigMap")[0].contains("no such overload"));
}

#[test]
fn a_missing_namespace_is_a_mistake_of_the_policy() {
    let pod = json!({});
    let rule = active(
        validation("true"),
        json!({"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
    );
    let mut request = pod_request(&pod);
    request.namespace = "gone";
    assert!(
        denials(&rule, &request)[0]
            .contains("failed to configure binding: namespaces \"gone\" not found")
    );
}

#[test]
fn exec_shows_its_variables_kep_6035() {
    let rule = active(
        validation("!has(object.env) || object.env.all(e, !e.name.startsWith('LD_'))"),
        json!({}),
    );
    let options = |name: &str| json!({"kind": "PodExecOptions", "apiVersion": "v1", "env": [{"name": name, "value": "x"}]});
    assert_eq!(denials(&rule, &exec_request(&options("LD_PRELOAD"))).len(), 1);
    assert!(denials(&rule, &exec_request(&options("PATH"))).is_empty());
    assert!(denials(&rule, &exec_request(&json!({}))).is_empty());
}

/// Hole: each parameter had ten million units of its own, and whoever may write ConfigMaps says how many there are.
#[test]
fn the_budget_bounds_all_parameters_together() {
    let pod = json!({});
    let map = |name: usize| json!({"metadata": {"name": name.to_string(), "labels": {"l": "y"}}});
    let judged = |count: usize, spec: Json| {
        let mut spec = spec;
        spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let chosen =
            json!({"selector": {"matchLabels": {"l": "y"}}, "parameterNotFoundAction": "Deny"});
        let world = World { params: (0..count).map(map).collect() };
        let rule = active(spec, json!({ "paramRef": chosen }));
        let denials = judge([&rule], &pod_request(&pod), &world).denials;
        denials.into_iter().map(|denial| denial.message).collect::<Vec<_>>()
    };
    let work = "params.metadata.name != '' && lists.range(80000).all(x, x >= 0)";
    assert!(judged(3, validation(work)).is_empty());
    // It is said once.
    let denied = judged(1_000, validation(work));
    assert_eq!(denied.len(), 1, "{denied:?}");
    assert!(denied[0].contains("budget"), "{denied:?}");
    let mut conditions = validation("true");
    conditions["matchConditions"] = json!([{"name": "c", "expression": work}]);
    let denied = judged(1_000, conditions);
    assert_eq!(denied.len(), 1, "{denied:?}");
}

/// Hole: when the last unit was paid exactly, the parameters that followed were not looked at, and nothing was denied.
#[test]
fn a_budget_that_is_spent_to_the_last_unit_allows_nothing() {
    let map = |(at, word): (usize, &str)| json!({"metadata": {"name": at.to_string(), "labels": {"l": "y"}}, "data": {"word": word}});
    let words = [vec!["0123456789"; 125], vec!["forbidden"]].concat();
    let world = World { params: words.into_iter().enumerate().map(map).collect() };
    let mut spec = validation("!object.data.v.contains(params.data.word)");
    spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let chosen =
        json!({"selector": {"matchLabels": {"l": "y"}}, "parameterNotFoundAction": "Deny"});
    let rule = active(spec, json!({ "paramRef": chosen }));
    // Of this length each look costs 80,000 of 10,000,000.
    let pod = json!({"data": {"v": format!("{}forbidden", "x".repeat(799_891))}});
    assert_eq!(judge([&rule], &pod_request(&pod), &world).denials.len(), 1);
}

#[test]
fn the_budget_bounds_a_whole_policy() {
    let pod = json!({});
    let validations: Vec<_> =
        (0..30).map(|_| json!({"expression": "lists.range(80000).all(x, x >= 0)"})).collect();
    let rule = active(json!({ "validations": validations }), json!({}));
    let denied = denials(&rule, &pod_request(&pod));
    assert!(denied.last().unwrap().contains("running out of cost budget"), "{denied:?}");
}
