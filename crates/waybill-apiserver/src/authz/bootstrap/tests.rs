//! What each bootstrap role may do, as a matrix.

use super::{
    reconcile::{Reconciled, reconcile},
    *,
};
use crate::{
    authz::{
        Authorizer,
        fixtures::{binding as bind, on, path, user},
        node::graph::NodeGraph,
        objects::RbacKey,
        rbac::RbacIndex,
    },
    request::Action,
};

/// The bootstrap policy, and each role for people bound in `a` to the user of its name.
fn authorizer() -> Authorizer {
    let mut all = objects();
    for role in ["admin", "edit", "view", "cluster-admin"] {
        all.push(bind("a", role, &format!("ClusterRole/{role}"), &[&format!("User/{role}")]));
    }
    let (index, errors) = RbacIndex::new(&all);
    assert!(errors.is_empty(), "{errors:?}");
    Authorizer::new(index, NodeGraph::default())
}

const PEOPLE: [&str; 4] = ["view", "edit", "admin", "cluster-admin"];

/// From which of [`PEOPLE`] on the action is allowed; each has what those before it have.
#[track_caller]
fn check(verbs: &[&str], targets: &[&str], from: Option<&str>) {
    let authorizer = authorizer();
    let from =
        from.map_or(PEOPLE.len(), |from| PEOPLE.iter().position(|role| *role == from).unwrap());
    for (verb, target) in verbs.iter().flat_map(|verb| targets.iter().map(move |t| (verb, t))) {
        for (rank, role) in PEOPLE.iter().enumerate() {
            let found = authorizer.authorize(&user(role, &[]), &on(verb, target), &[]);
            assert_eq!(found.is_allowed(), rank >= from, "{role} {verb} {target}");
        }
    }
}

#[test]
fn people_read_write_enter_and_rule() {
    let visible = [
        "a/configmaps",
        "a/pods",
        "a/podtemplates",
        "a/serviceaccounts",
        "a/services",
        "a/endpoints",
        "a/endpointslices.discovery.k8s.io",
        "a/events",
        "a/events.events.k8s.io",
        "a/pods/log:p",
        "a/pods/status:p",
        "a/namespaces:a",
    ];
    check(READ, &visible, Some("view"));
    let writable = [
        "a/configmaps",
        "a/pods",
        "a/podtemplates",
        "a/serviceaccounts",
        "a/services",
        "a/events",
        "a/secrets",
    ];
    check(WRITE, &writable, Some("edit"));
    check(READ, &["a/secrets", "a/secrets:s"], Some("edit"));
    let enter = ["a/pods/exec:p", "a/pods/attach:p", "a/pods/portforward:p"];
    check(&["get", "create"], &enter, Some("edit"));
    check(&["create"], &["a/pods/eviction:p", "a/serviceaccounts/token:s"], Some("edit"));
    check(READ_WRITE, &["a/leases.coordination.k8s.io"], Some("edit"));
    let rbac = ["a/roles.rbac.authorization.k8s.io", "a/rolebindings.rbac.authorization.k8s.io"];
    check(READ_WRITE, &rbac, Some("admin"));
    check(&["create"], &["a/localsubjectaccessreviews.authorization.k8s.io"], Some("admin"));
}

#[test]
fn some_things_are_for_the_system() {
    let verbs = ["create", "patch", "update"];
    check(&verbs, &["a/pods/status:p", "a/pods/binding:p"], Some("cluster-admin"));
    check(&verbs, &["a/pods/ephemeralcontainers:p", "a/namespaces:a"], Some("cluster-admin"));
    check(&["escalate", "bind"], &["a/roles.rbac.authorization.k8s.io:r"], Some("cluster-admin"));
}

#[test]
fn a_role_in_a_namespace_reaches_nothing_else() {
    let beyond = [
        "b/pods",
        "pods",
        "nodes",
        "namespaces",
        "providerclasses.storage.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
    ];
    check(READ_WRITE, &beyond, None);
    check(&["use"], &["providerclasses.storage.k8s.io:c"], None);
}

#[track_caller]
fn check_user(groups: &[&str], action: &Action, allowed: bool) {
    let found = authorizer().authorize(&user("someone", groups), action, &[]);
    assert_eq!(found.is_allowed(), allowed, "{groups:?} {action:?}");
}

/// A node that asks back must find its API server allowed, and a stolen certificate of it must not
/// open anything else.
#[test]
fn the_api_server_may_use_the_whole_api_of_nodes_and_nothing_else() {
    let group = [NODE_CLIENTS_GROUP];
    for part in ["proxy", "stats", "log", "metrics", "pods", "healthz", "configz", "trace"] {
        for verb in ["get", "create", "delete"] {
            check_user(&group, &on(verb, &format!("/nodes/{part}:n")), true);
        }
    }
    for verb in ["get", "list", "watch", "proxy"] {
        check_user(&group, &on(verb, "nodes:n"), true);
    }
    for target in ["nodes:n", "nodes/status:n", "a/pods:p", "a/secrets:s"] {
        check_user(&group, &on("update", target), false);
    }
    check_user(&group, &on("get", "a/pods/exec:p"), false);
}

/// For whoever finds out who ran what: nobody has the right without being given it, and it is no way into pods.
#[test]
fn an_investigator_reads_records_of_nodes_and_nothing_else() {
    let mut all = objects();
    let role = "ClusterRole/waybill:investigator";
    all.push(bind("", "investigators", role, &["User/irene"]));
    let (index, errors) = RbacIndex::new(&all);
    assert!(errors.is_empty(), "{errors:?}");
    let authorizer = Authorizer::new(index, NodeGraph::default());
    let may = |user_name: &str, verb: &str, target: &str| {
        authorizer.authorize(&user(user_name, &[]), &on(verb, target), &[]).is_allowed()
    };
    assert!(may("irene", "get", "nodes/trace:n") && may("irene", "list", "nodes"));
    for (verb, target) in [
        ("create", "nodes/trace:n"),
        ("get", "nodes/proxy:n"),
        ("get", "a/pods/exec:p"),
        ("get", "a/pods:p"),
        ("get", "a/secrets:s"),
    ] {
        assert!(!may("irene", verb, target), "{verb} {target}");
    }
    check(&["get"], &["nodes/trace:n"], None);
    check_user(&[AUTHENTICATED_GROUP], &on("get", "/nodes/trace:n"), false);
}

#[test]
fn everyone_sees_health_and_version_and_only_who_is_known_discovers() {
    let (known, unknown) = ([AUTHENTICATED_GROUP], [UNAUTHENTICATED_GROUP]);
    for url in ["/healthz", "/livez", "/readyz", "/version"] {
        check_user(&known, &path("get", url), true);
        check_user(&unknown, &path("get", url), true);
        check_user(&unknown, &path("post", url), false);
    }
    for url in ["/api", "/api/v1", "/apis", "/apis/storage.k8s.io/v1", "/openapi/v3", "/openapi/v2"]
    {
        check_user(&known, &path("get", url), true);
        check_user(&unknown, &path("get", url), false);
    }
    for url in ["/metrics", "/healthz/store", "/", "/debug/pprof"] {
        check_user(&known, &path("get", url), false);
        check_user(&unknown, &path("get", url), false);
    }
    check_user(&["system:monitoring"], &path("get", "/metrics"), true);
    check_user(&["system:monitoring"], &path("get", "/readyz/store"), true);
}

#[test]
fn who_is_known_may_ask_about_themselves() {
    for review in [
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
    ] {
        check_user(&[AUTHENTICATED_GROUP], &on("create", review), true);
        check_user(&[UNAUTHENTICATED_GROUP], &on("create", review), false);
    }
    check_user(
        &[AUTHENTICATED_GROUP],
        &on("create", "subjectaccessreviews.authorization.k8s.io"),
        false,
    );
    for target in ["a/pods", "a/secrets", "nodes", "namespaces"] {
        check_user(&[AUTHENTICATED_GROUP], &on("list", target), false);
    }
}

#[test]
fn masters_may_do_everything_by_group_and_by_role() {
    for action in [on("delete", "nodes:n"), on("use", "x.y:z"), path("get", "/metrics")] {
        check_user(&[MASTERS_GROUP], &action, true);
        assert!(authorizer().rbac().authorize(&user("m", &[MASTERS_GROUP]), &action).is_allowed());
    }
}

#[test]
fn the_scheduler_binds_pods_and_reads_what_it_needs() {
    let authorizer = authorizer();
    let may = |verb: &str, target: &str| {
        authorizer
            .authorize(&user("system:kube-scheduler", &[]), &on(verb, target), &[])
            .is_allowed()
    };
    assert!(may("create", "a/pods/binding:p") && may("patch", "a/pods/status:p"));
    assert!(may("watch", "pods") && may("watch", "nodes") && may("list", "namespaces"));
    assert!(may("create", "a/events.events.k8s.io") && may("create", "a/events"));
    let lease = |name: &str| format!("kube-system/leases.coordination.k8s.io:{name}");
    assert!(may("update", &lease("kube-scheduler")) && !may("update", &lease("other")));
    assert!(!may("update", "a/pods:p") && !may("get", "a/secrets:s") && !may("delete", "nodes:n"));
}

/// Each controller of the controller manager is an account of its own.
#[test]
fn controllers_have_what_their_work_takes_and_nothing_else() {
    let authorizer = authorizer();
    let may = |account: &str, verb: &str, target: &str| {
        let user = user(&format!("system:serviceaccount:kube-system:{account}"), &[]);
        authorizer.authorize(&user, &on(verb, target), &[]).is_allowed()
    };
    assert!(may("namespace-controller", "deletecollection", "a/secrets"));
    assert!(may("generic-garbage-collector", "delete", "a/pods:p"));
    assert!(may("node-controller", "patch", "nodes/status:n"));
    assert!(may("root-ca-cert-publisher", "update", "a/configmaps:c"));
    assert!(
        may("certificate-controller", "sign", SIGNER) && !may("ttl-controller", "sign", SIGNER)
    );
    assert!(may("endpointslice-controller", "create", "a/endpointslices.discovery.k8s.io"));
    for account in ["service-account-controller", "ttl-controller", "pod-garbage-collector"] {
        assert!(!may(account, "get", "a/secrets:s"), "{account}");
        assert!(!may(account, "create", "a/pods"), "{account}");
    }
    // An account of that name elsewhere is somebody else.
    let other = user("system:serviceaccount:a:namespace-controller", &[]);
    assert!(!authorizer.authorize(&other, &on("list", "a/secrets"), &[]).is_allowed());
}

const SIGNER: &str = "signers.certificates.k8s.io:kubernetes.io/kubelet-serving";

#[test]
fn the_controller_manager_reads_all_and_writes_accounts() {
    let authorizer = authorizer();
    let may = |verb: &str, target: &str| {
        let user = user("system:kube-controller-manager", &[]);
        authorizer.authorize(&user, &on(verb, target), &[]).is_allowed()
    };
    assert!(may("watch", "x.y") && may("list", "a/secrets"));
    assert!(may("create", "a/serviceaccounts/token:s") && may("create", "a/serviceaccounts"));
    let lease = |name: &str| format!("kube-system/leases.coordination.k8s.io:{name}");
    assert!(may("update", &lease("kube-controller-manager")));
    assert!(!may("update", &lease("kube-scheduler")));
    assert!(!may("delete", "a/pods:p") && !may("update", "nodes:n"));
}

#[test]
fn the_group_of_nodes_has_nothing_by_role() {
    let node = user("system:node:n", &["system:nodes"]);
    let rules = authorizer().rbac().rules_for(&node, "").rules;
    assert!(rules.is_empty(), "{rules:?}");
}

#[test]
fn objects_are_marked_and_named_once_and_kept_as_they_are() {
    let objects = objects();
    let mut names = Vec::new();
    for object in &objects {
        assert_eq!(object["apiVersion"], "rbac.authorization.k8s.io/v1");
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
        assert_eq!(metadata["annotations"]["rbac.authorization.kubernetes.io/autoupdate"], "true");
        names.push(RbacKey::of(object).unwrap().to_string());
        assert_eq!(reconcile(object, object), Reconciled::Keep);
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
