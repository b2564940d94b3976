//! Which requests rules and selectors are about.

use serde_json::json;

use super::*;
use crate::fixtures::{World, exec_request, pod_request};

fn rule(rule: Json) -> Rule {
    serde_json::from_value(rule).unwrap()
}

fn on(resources: &[&str]) -> Rule {
    rule(
        json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}),
    )
}

#[test]
fn resources_match_with_their_subresources() {
    let object = json!({});
    let (pod, exec) = (pod_request(&object), exec_request(&object));
    for (resources, matches_pod, matches_exec) in [
        (&["pods"][..], true, false),
        (&["pods/exec"], false, true),
        (&["pods/*"], true, true),
        (&["*"], true, false),
        (&["*/*"], true, true),
        (&["*/exec"], false, true),
        (&["nodes", "pods", "pods/log"], true, false),
        (&["nodes/*"], false, false),
    ] {
        assert_eq!(on(resources).matches(&pod), matches_pod, "{resources:?}");
        assert_eq!(on(resources).matches(&exec), matches_exec, "{resources:?}");
    }
}

#[test]
fn operations_groups_versions_scopes_and_names_narrow() {
    let object = json!({});
    let pod = pod_request(&object);
    let check = |change: Json, expected: bool| {
        let mut written = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        for (key, value) in change.as_object().unwrap() {
            written[key] = value.clone();
        }
        assert_eq!(rule(written.clone()).matches(&pod), expected, "{written}");
    };
    check(json!({}), true);
    check(json!({"operations": ["UPDATE", "DELETE"]}), false);
    check(json!({"operations": ["*"]}), true);
    check(json!({"apiGroups": ["apps"]}), false);
    check(json!({"apiGroups": ["*"]}), true);
    check(json!({"apiVersions": ["v1beta1"]}), false);
    check(json!({"scope": "Cluster"}), false);
    check(json!({"scope": "Namespaced"}), true);
    check(json!({"scope": "*"}), true);
    check(json!({"resourceNames": ["db"]}), false);
    check(json!({"resourceNames": ["db", "web"]}), true);
}

#[test]
fn a_namespace_is_of_the_cluster_and_its_own_labels_count() {
    let object = json!({"metadata": {"name": "x", "labels": {"team": "a"}}});
    let mut request = pod_request(&object);
    request.resource.resource = "namespaces";
    request.namespace = "x";
    let mut about = on(&["namespaces"]);
    about.scope = Some("Namespaced".to_owned());
    assert!(!about.matches(&request));
    about.scope = Some("Cluster".to_owned());
    assert!(about.matches(&request));

    let selector = serde_json::from_value(json!({"matchLabels": {"team": "a"}})).unwrap();
    assert!(matches_namespace(Some(&selector), &request, &World::default()).unwrap());
    // What is deleted is judged by what is there.
    request.operation = Operation::Delete;
    let missing = matches_namespace(Some(&selector), &request, &World::default());
    assert_eq!(missing, Err(MatchError::NoNamespace("x".to_owned())));
}

#[test]
fn selectors_look_at_namespaces_and_at_both_objects() {
    let world = World::default();
    let new = json!({"metadata": {"labels": {"a": "new"}}});
    let old = json!({"metadata": {"labels": {"a": "old"}}});
    let mut request = pod_request(&new);
    request.old_object = Some(&old);
    let matches = |resources: Json, request: &AdmissionRequest<'_>| {
        let resources: MatchResources = serde_json::from_value(resources).unwrap();
        resources.matches(request, &world).unwrap()
    };
    let labelled = |value: &str| json!({"objectSelector": {"matchLabels": {"a": value}}});
    assert!(matches(labelled("new"), &request));
    assert!(matches(labelled("old"), &request));
    assert!(!matches(labelled("other"), &request));
    assert!(matches(
        json!({"namespaceSelector": {"matchLabels": {"env-names": "strict"}}}),
        &request
    ));
    request.namespace = "kube-system";
    assert!(!matches(
        json!({"namespaceSelector": {"matchLabels": {"env-names": "strict"}}}),
        &request
    ));
    // Options have no labels, not even to do without one.
    let options = json!({"env": []});
    let selector =
        json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}});
    assert!(!matches(selector, &exec_request(&options)));
}

#[test]
fn excluded_resources_are_out() {
    let object = json!({});
    let all = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    let exec = json!({"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods/exec"]});
    let resources: MatchResources =
        serde_json::from_value(json!({"resourceRules": [all], "excludeResourceRules": [exec]}))
            .unwrap();
    assert!(resources.matches(&pod_request(&object), &World::default()).unwrap());
    assert!(!resources.matches(&exec_request(&object), &World::default()).unwrap());
}
