//! The four reviews, from body to answer.

use super::*;
use crate::authz::{
    fixtures::{binding, role, user},
    node::graph::NodeGraph,
    rbac::RbacIndex,
};

/// Ann may get pods in `a`, and see `/metrics`.
fn authorizer() -> Authorizer {
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let metrics = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    let objects = [
        role("a", "r", &pods),
        role("", "m", &metrics),
        binding("a", "b", "Role/r", &["User/ann", "Group/devs"]),
        binding("", "m", "ClusterRole/m", &["User/ann"]),
        binding("", "lost", "ClusterRole/gone", &["User/lost"]),
    ];
    Authorizer::new(RbacIndex::new(&objects).0, NodeGraph::default())
}

fn pods(namespace: &str, verb: &str) -> Value {
    json!({"namespace": namespace, "verb": verb, "resource": "pods"})
}

#[track_caller]
fn check_message(result: Result<Value, ReviewError>, code: u16, message: &str) {
    let status = result.unwrap_err().status();
    assert_eq!((status.code(), status.message()), (code, message));
}

#[test]
fn a_subject_access_review_keeps_the_question_and_adds_the_answer() {
    let spec = json!({"user": "ann", "resourceAttributes": pods("a", "get")});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "metadata": {"creationTimestamp": null}, "spec": spec,
    });
    let mut expected = review.clone();
    expected["status"] = json!({
        "allowed": true,
        "reason": "RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to User \"ann\"",
    });
    assert_eq!(subject_access_review(&authorizer(), review).unwrap(), expected);
}

#[track_caller]
fn check_status(spec: &Value, status: &Value) {
    let found = subject_access_review(&authorizer(), json!({"spec": spec})).unwrap();
    assert_eq!(found["status"], *status);
}

#[test]
fn the_answer_is_yes_no_or_no_with_a_reason() {
    check_status(
        &json!({"user": "ann", "resourceAttributes": pods("a", "list")}),
        &json!({"allowed": false}),
    );
    check_status(
        &json!({"groups": ["devs"], "resourceAttributes": pods("a", "get")}),
        &json!({
            "allowed": true,
            "reason": "RBAC: allowed by RoleBinding \"b/a\" of Role \"r\" to Group \"devs\"",
        }),
    );
    check_status(
        &json!({"user": "lost", "resourceAttributes": pods("a", "get")}),
        &json!({
            "allowed": false,
            "reason": "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found",
        }),
    );
    check_status(
        &json!({"user": "x", "groups": ["system:masters"], "resourceAttributes": pods("", "*")}),
        &json!({"allowed": true}),
    );
    check_status(
        &json!({"user": "ann", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}),
        &json!({
            "allowed": true,
            "reason": "RBAC: allowed by ClusterRoleBinding \"m\" of ClusterRole \"m\" to User \"ann\"",
        }),
    );
}

#[test]
fn a_question_about_a_node_counts_its_field_selector() {
    let asked = |selector: Value| {
        json!({"user": "system:node:n", "groups": ["system:nodes"], "resourceAttributes":
            {"verb": "list", "resource": "pods", "fieldSelector": selector}})
    };
    let requirement = |operator: &str| {
        json!({"requirements": [
            {"key": "spec.nodeName", "operator": operator, "values": ["n"]}]})
    };
    let allowed = json!({"allowed": true});
    check_status(&asked(json!({"rawSelector": "spec.nodeName=n"})), &allowed);
    check_status(&asked(json!({"rawSelector": "status.phase!=x,spec.nodeName==n"})), &allowed);
    check_status(&asked(requirement("In")), &allowed);
    let reason = "can only list/watch pods with spec.nodeName field selector";
    check_status(&asked(requirement("NotIn")), &json!({"allowed": false, "reason": reason}));
    check_status(
        &asked(requirement("Exceeds")),
        &json!({
            "allowed": false, "reason": reason,
            "evaluationError":
                "spec.resourceAttributes.fieldSelector ignored due to parse error",
        }),
    );
    check_status(
        &asked(json!({"rawSelector": "spec.nodeName=n,oops"})),
        &json!({
            "allowed": false, "reason": reason,
            "evaluationError":
                "spec.resourceAttributes.fieldSelector ignored due to parse error",
        }),
    );
    let mut partly = requirement("In");
    let odd = json!({"key": "a", "operator": "Exceeds", "values": ["1"]});
    partly["requirements"].as_array_mut().unwrap().push(odd);
    check_status(
        &asked(partly),
        &json!({
            "allowed": true,
            "evaluationError":
                "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
        }),
    );
}

#[test]
fn questions_that_make_no_sense_are_invalid() {
    let check = |review: Value, expected: &str| {
        let message =
            format!("SubjectAccessReview.authorization.k8s.io \"\" is invalid: {expected}");
        check_message(subject_access_review(&authorizer(), review), 422, &message);
    };
    check(
        json!({}),
        "[spec.resourceAttributes: Invalid value: \"null\": exactly one of nonResourceAttributes or \
         resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user \
         or group must be specified]",
    );
    check(
        json!({"spec": {"user": "u", "resourceAttributes": {},
            "nonResourceAttributes": {"path": "/x"}}}),
        "spec.nonResourceAttributes: Invalid value: \"/x\": cannot be specified in combination with \
         resourceAttributes",
    );
    check(
        json!({"metadata": {"name": "n"}, "spec": {"user": "u", "resourceAttributes": {}}}),
        "metadata: Invalid value: \"name\": must be empty",
    );
    check(
        json!({"spec": {"user": "u", "resourceAttributes": {"labelSelector": {},
            "fieldSelector": {"rawSelector": "foo", "requirements": [{"operator": "In"}]}}}}),
        "[spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"foo\": may not \
         specified at the same time as requirements, \
         spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be \
         specified, spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: \
         must be specified when `operator` is 'In' or 'NotIn', \
         spec.resourceAttributes.labelSelector.requirements: Required value: when \
         spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required]",
    );
}

#[test]
fn questions_that_cannot_be_read_are_bad_requests() {
    for review in [json!([]), json!({"spec": 1}), json!({"spec": {"user": {}}})] {
        let status = subject_access_review(&authorizer(), review).unwrap_err().status();
        assert_eq!(status.code(), 400, "{}", status.message());
    }
}

#[test]
fn a_local_review_is_about_its_namespace() {
    let review = |metadata: &str, wanted: &str| {
        json!({"metadata": {"namespace": metadata},
            "spec": {"user": "ann", "resourceAttributes": pods(wanted, "get")}})
    };
    let ask = |namespace: &str, review: Value| {
        local_subject_access_review(&authorizer(), namespace, review)
    };
    assert_eq!(ask("a", review("a", "a")).unwrap()["status"]["allowed"], true);
    let invalid = "LocalSubjectAccessReview.authorization.k8s.io \"\" is invalid: ";
    check_message(
        ask("a", review("a", "b")),
        422,
        &format!(
            "{invalid}spec.resourceAttributes.namespace: Invalid value: \"b\": must match \
             metadata.namespace"
        ),
    );
    check_message(
        ask("b", review("a", "a")),
        400,
        "spec.resourceAttributes.namespace must match namespace: b",
    );
    let path = json!({"metadata": {"namespace": "a", "labels": {"x": "y"}},
        "spec": {"user": "u", "nonResourceAttributes": {"path": "/x"}}});
    check_message(
        ask("a", path),
        422,
        &format!(
            "{invalid}[metadata: Invalid value: \"labels\": must be empty except for namespace, \
             spec.nonResourceAttributes: Invalid value: \"/x\": disallowed on this kind of request]"
        ),
    );
}

#[test]
fn a_self_review_is_about_whoever_asks() {
    let ask = |name: &str, spec: Value| {
        self_subject_access_review(&authorizer(), &user(name, &[]), json!({"spec": spec}))
    };
    let spec = || json!({"user": "ann", "resourceAttributes": pods("a", "get")});
    assert_eq!(ask("ann", spec()).unwrap()["status"]["allowed"], true);
    assert_eq!(ask("eve", spec()).unwrap()["status"]["allowed"], false);
    check_message(
        ask("ann", json!({})),
        422,
        "SelfSubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.resourceAttributes: \
         Invalid value: \"null\": exactly one of nonResourceAttributes or resourceAttributes must be \
         specified",
    );
}

#[test]
fn a_rules_review_lists_what_is_in_force() {
    let ask = |user: &User, namespace: &str| {
        let review = json!({"spec": {"namespace": namespace}});
        self_subject_rules_review(&authorizer(), user, &review)
    };
    assert_eq!(
        ask(&user("ann", &[]), "a").unwrap(),
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "metadata": {}, "spec": {},
            "status": {
                "resourceRules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
                "nonResourceRules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
                "incomplete": false,
            },
        })
    );
    assert_eq!(ask(&user("ann", &[]), "b").unwrap()["status"]["resourceRules"], json!([]));
    assert_eq!(
        ask(&user("lost", &[]), "a").unwrap()["status"]["evaluationError"],
        "clusterrole.rbac.authorization.k8s.io \"gone\" not found"
    );
    let node = ask(&user("system:node:n", &["system:nodes"]), "a").unwrap();
    assert_eq!(node["status"]["incomplete"], true);
    assert_eq!(
        node["status"]["evaluationError"],
        "node authorizer does not support user rule resolution"
    );
    check_message(ask(&user("ann", &[]), ""), 400, "no namespace on request");
}
