//! Who decides first, and what is told.

use serde_json::json;

use super::{
    fixtures::{binding, on, path, role, user},
    *,
};

fn authorizer() -> Authorizer {
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let objects = [
        role("", "r", &pods),
        binding("", "b", "ClusterRole/r", &["User/ann", "Group/special"]),
        binding("", "c", "ClusterRole/gone", &["Group/lost"]),
    ];
    Authorizer::new(RbacIndex::new(&objects).0, NodeGraph::default())
}

#[track_caller]
fn check(user: &User, action: &Action, allowed: bool, reason: &str) {
    let decision = authorizer().authorize(user, action, &[]);
    assert_eq!((decision.is_allowed(), decision.reason().to_string().as_str()), (allowed, reason));
}

#[test]
fn masters_may_do_everything_without_any_role() {
    let master = user("m", &["x", MASTERS_GROUP]);
    check(&master, &on("delete", "nodes:n"), true, "");
    check(&master, &path("get", "/metrics"), true, "");
    check(&user(MASTERS_GROUP, &[]), &path("get", "/metrics"), false, "");
}

#[test]
fn roles_decide_about_people() {
    let reason = "RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to User \"ann\"";
    check(&user("ann", &[]), &on("get", "a/pods:p"), true, reason);
    check(&user("ann", &[]), &on("list", "a/pods"), false, "");
}

#[test]
fn nodes_have_what_roles_grant_them_besides() {
    let reason =
        "RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to Group \"special\"";
    let node = user("system:node:n", &[node::NODES_GROUP, "special", "lost"]);
    check(&node, &on("get", "a/pods:p"), true, reason);
    check(&node, &on("get", "nodes:n"), true, "");
}

#[test]
fn a_refused_node_hears_both_reasons() {
    let node = user("system:node:n", &[node::NODES_GROUP, "lost"]);
    check(
        &node,
        &on("get", "nodes:m"),
        false,
        "node 'n' cannot read 'm', only its own Node object\nRBAC: \
         clusterrole.rbac.authorization.k8s.io \"gone\" not found",
    );
    let plain = user("system:node:n", &[node::NODES_GROUP]);
    check(&plain, &on("delete", "nodes:n"), false, "");
}
