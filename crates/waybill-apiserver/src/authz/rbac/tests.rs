//! Rules, subjects and scopes, as tables.

use serde_json::json;

use super::*;
use crate::authz::fixtures::{binding, on, path, role, user};

fn index(objects: &[Value]) -> RbacIndex {
    let (index, errors) = RbacIndex::new(objects);
    assert!(errors.is_empty(), "{errors:?}");
    index
}

fn pods(verb: &str) -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}])
}

#[track_caller]
fn check(index: &RbacIndex, user: &User, action: &Action, reason: Option<&str>) {
    let decision = index.authorize(user, action);
    let allowed = decision.is_allowed().then(|| decision.reason().to_string());
    assert_eq!(allowed.as_deref(), reason, "{user:?} {action:?}");
}

#[test]
fn a_cluster_binding_grants_everywhere_and_a_role_binding_in_its_namespace() {
    let index = index(&[
        role("", "reader", &pods("get")),
        role("a", "lister", &pods("list")),
        binding("", "all", "ClusterRole/reader", &["User/ann"]),
        binding("a", "some", "Role/lister", &["User/ann"]),
        binding("a", "more", "ClusterRole/reader", &["User/bob"]),
    ]);
    let ann = user("ann", &[]);
    let all =
        "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to User \"ann\"";
    check(&index, &ann, &on("get", "a/pods:x"), Some(all));
    check(&index, &ann, &on("get", "pods"), Some(all));
    let some = "RBAC: allowed by RoleBinding \"some/a\" of Role \"lister\" to User \"ann\"";
    check(&index, &ann, &on("list", "a/pods"), Some(some));
    check(&index, &ann, &on("list", "b/pods"), None);
    check(&index, &ann, &on("list", "pods"), None);
    let bob = user("bob", &[]);
    let more = "RBAC: allowed by RoleBinding \"more/a\" of ClusterRole \"reader\" to User \"bob\"";
    check(&index, &bob, &on("get", "a/pods:x"), Some(more));
    check(&index, &bob, &on("get", "b/pods:x"), None);
    check(&index, &bob, &on("get", "pods"), None);
}

#[test]
fn subjects_are_users_groups_and_service_accounts() {
    let index = index(&[
        role("", "r", &pods("get")),
        binding("", "g", "ClusterRole/r", &["Group/devs"]),
        binding("", "sa", "ClusterRole/r", &["ServiceAccount/ns/bot", "ServiceAccount/lost"]),
        binding("a", "local", "ClusterRole/r", &["ServiceAccount/own", "Robot/z"]),
    ]);
    let get = on("get", "a/pods:x");
    check(
        &index,
        &user("ann", &["ops", "devs"]),
        &get,
        Some("RBAC: allowed by ClusterRoleBinding \"g\" of ClusterRole \"r\" to Group \"devs\""),
    );
    check(
        &index,
        &user("system:serviceaccount:ns:bot", &[]),
        &get,
        Some(
            "RBAC: allowed by ClusterRoleBinding \"sa\" of ClusterRole \"r\" to ServiceAccount \
             \"bot/ns\"",
        ),
    );
    check(
        &index,
        &user("system:serviceaccount:a:own", &[]),
        &get,
        Some(
            "RBAC: allowed by RoleBinding \"local/a\" of ClusterRole \"r\" to ServiceAccount \
             \"own/a\"",
        ),
    );
    for nobody in [
        "devs",
        "bot",
        "lost",
        "z",
        "system:serviceaccount:ns:lost",
        "",
        "system:serviceaccount::lost",
    ] {
        check(&index, &user(nobody, &["bot"]), &get, None);
    }
    // A name is no group and a group is no name.
    check(&index, &user("devs", &[]), &get, None);
}

#[test]
fn paths_need_a_cluster_binding() {
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    let index = index(&[
        role("", "m", &rules),
        binding("", "m", "ClusterRole/m", &["User/ann"]),
        binding("a", "m", "ClusterRole/m", &["User/bob"]),
    ]);
    assert!(index.authorize(&user("ann", &[]), &path("get", "/metrics")).is_allowed());
    assert!(!index.authorize(&user("bob", &[]), &path("get", "/metrics")).is_allowed());
}

#[test]
fn a_missing_role_is_named_in_the_refusal_and_hides_no_other_grant() {
    let index = index(&[
        role("", "r", &pods("get")),
        binding("", "a", "ClusterRole/gone", &["User/ann"]),
        binding("", "b", "ClusterRole/r", &["User/ann"]),
        binding("a", "c", "Role/gone", &["User/ann"]),
        binding("a", "d", "Rolle/r", &["User/ann"]),
        // A role of a namespace has no meaning for the whole cluster.
        role("a", "local", &pods("list")),
        binding("", "e", "Role/local", &["User/bob"]),
    ]);
    let ann = user("ann", &[]);
    assert!(index.authorize(&ann, &on("get", "pods")).is_allowed());
    let reason =
        |user: &User, target: &str| index.authorize(user, &on("list", target)).reason().to_string();
    assert_eq!(
        reason(&ann, "pods"),
        "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"
    );
    assert_eq!(
        reason(&ann, "a/pods"),
        "RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, \
         role.rbac.authorization.k8s.io \"gone\" not found, unsupported role reference kind: \
         \"Rolle\"]"
    );
    assert_eq!(
        reason(&user("bob", &[]), "a/pods"),
        "RBAC: role.rbac.authorization.k8s.io \"local\" not found"
    );
    assert_eq!(reason(&user("eve", &[]), "a/pods"), "");
    assert_eq!(index.rules_for(&ann, "a").errors.len(), 3);
}

#[test]
fn changes_show_at_once() {
    let index = RbacIndex::default();
    let ann = user("ann", &[]);
    let may = |verb: &str| index.authorize(&ann, &on(verb, "a/pods")).is_allowed();
    let grant = binding("", "b", "ClusterRole/r", &["User/ann"]);
    index.put(&grant).unwrap();
    assert!(!may("get"));
    index.put(&role("", "r", &pods("get"))).unwrap();
    assert!(may("get") && !may("list"));
    index.put(&role("", "r", &pods("list"))).unwrap();
    assert!(!may("get") && may("list"));
    index.put(&binding("", "b", "ClusterRole/r", &["User/bob"])).unwrap();
    assert!(!may("list"));
    index.put(&grant).unwrap();
    assert!(may("list"));
    index.delete(&grant).unwrap();
    assert!(!may("list"));
}

#[test]
fn an_object_that_can_no_longer_be_read_grants_nothing() {
    let index =
        index(&[role("", "r", &pods("get")), binding("", "b", "ClusterRole/r", &["User/ann"])]);
    let ann = user("ann", &[]);
    assert!(index.authorize(&ann, &on("get", "pods")).is_allowed());
    index.put(&role("", "r", &json!("everything"))).unwrap_err();
    assert!(!index.authorize(&ann, &on("get", "pods")).is_allowed());
    index.put(&json!({"kind": "Pod"})).unwrap_err();
}

#[test]
fn aggregated_rules_are_granted_and_shown() {
    let mut part = role("", "part", &pods("get"));
    part["metadata"]["labels"] = json!({"to": "all"});
    let mut all = role("", "all", &pods("delete"));
    all["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]});
    let index = index(&[all, part.clone(), binding("", "b", "ClusterRole/all", &["User/ann"])]);
    let ann = user("ann", &[]);
    assert!(index.authorize(&ann, &on("get", "pods")).is_allowed());
    assert!(!index.authorize(&ann, &on("delete", "pods")).is_allowed());
    assert_eq!(json!(*index.aggregated_rules("all").unwrap()), pods("get"));
    assert_eq!(index.aggregated_rules("part"), None);
    index.delete(&part).unwrap();
    assert!(!index.authorize(&ann, &on("get", "pods")).is_allowed());
    assert_eq!(json!(*index.aggregated_rules("all").unwrap()), json!([]));
}

#[test]
fn the_rules_of_a_user_are_those_of_the_cluster_and_of_the_namespace_each_once() {
    let index = index(&[
        role("", "r", &pods("get")),
        role("a", "r", &pods("list")),
        binding("", "b", "ClusterRole/r", &["User/ann", "Group/devs"]),
        binding("a", "b", "Role/r", &["User/ann"]),
    ]);
    let ann = user("ann", &["devs"]);
    let verbs = |namespace: &str| {
        let rules = index.rules_for(&ann, namespace).rules;
        rules.into_iter().flat_map(|rule| rule.verbs).collect::<Vec<_>>()
    };
    assert_eq!(verbs("a"), ["get", "list"]);
    assert_eq!(verbs("b"), ["get"]);
    assert_eq!(verbs(""), ["get"]);
}
