use std::{hint::black_box, time::Instant};

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

/// Run by hand: `cargo test --release -- --ignored --nocapture how_long`.
#[test]
#[ignore = "a measurement, not a check"]
fn how_long_a_decision_takes() {
    let mut objects = bootstrap::objects();
    for number in 0..1000 {
        let namespace = format!("ns-{number}");
        let account = format!("ServiceAccount/{namespace}/app");
        objects.push(binding(&namespace, "edit", "ClusterRole/edit", &[&account]));
    }
    let authorizer = Authorizer::new(RbacIndex::new(&objects).0, NodeGraph::default());
    let account = provider_class::service_account("ns-500", "app");
    for (what, user, action) in [
        ("allowed in namespace", &account, on("create", "ns-500/pods/exec:p")),
        ("refused", &account, on("get", "ns-501/pods:p")),
        ("master", &user("m", &[MASTERS_GROUP]), on("get", "ns-500/pods:p")),
    ] {
        const ROUNDS: u32 = 1_000_000;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            black_box(authorizer.authorize(black_box(user), black_box(&action), &[]));
        }
        println!("{what}: {:?} per decision", start.elapsed() / ROUNDS);
    }
}
