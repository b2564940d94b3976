//! Nobody hands out what they do not have, as tables.

use serde_json::json;

use super::*;
use crate::authz::{
    fixtures::{binding, role, user},
    node::graph::NodeGraph,
    rbac::RbacIndex,
};

fn pods(verbs: &[&str]) -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}])
}

fn rbac(verbs: &[&str], resource: &str, names: &[&str]) -> Value {
    json!([{"apiGroups": [GROUP], "resources": [resource], "verbs": verbs, "resourceNames": names}])
}

/// Ann may get pods everywhere and list them in `a`; Esc may escalate, Bin may bind what is named
/// `reader`, in `a` only; Root may do everything.
fn authorizer() -> Authorizer {
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let objects = [
        role("", "reader", &pods(&["get"])),
        role("a", "lister", &pods(&["list"])),
        role("", "writer", &pods(&["create"])),
        role("", "everything", &everything),
        role("", "escalate", &rbac(&["escalate"], "clusterroles", &[])),
        role("a", "escalate", &rbac(&["escalate"], "roles", &["named"])),
        role("a", "bind", &rbac(&["bind"], "clusterroles", &["writer"])),
        binding("", "1", "ClusterRole/reader", &["User/ann"]),
        binding("a", "2", "Role/lister", &["User/ann"]),
        binding("", "3", "ClusterRole/escalate", &["User/esc"]),
        binding("a", "4", "Role/escalate", &["User/esc"]),
        binding("a", "5", "Role/bind", &["User/bin"]),
        binding("", "6", "ClusterRole/everything", &["User/root"]),
    ];
    Authorizer::new(RbacIndex::new(&objects).0, NodeGraph::default())
}

#[track_caller]
fn check(name: &str, object: &Value, expected: Result<(), &str>) {
    let found = authorizer().check_rbac_write(&user(name, &["g", "h"]), None, object);
    let found = found.map_err(|error| error.to_string());
    assert_eq!(found, expected.map_err(str::to_owned), "{name} {object}");
}

const ANN_LISTS: &str = "user \"ann\" (groups=[\"g\" \"h\"]) is attempting to grant RBAC permissions \
    not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}";

#[test]
fn a_role_may_hold_what_its_author_holds() {
    check("ann", &role("", "new", &pods(&["get"])), Ok(()));
    check("ann", &role("", "new", &pods(&["get", "list"])), Err(ANN_LISTS));
    check("ann", &role("a", "new", &pods(&["get", "list"])), Ok(()));
    check("ann", &role("b", "new", &pods(&["get", "list"])), Err(ANN_LISTS));
    check("ann", &role("", "new", &json!([])), Ok(()));
    check("root", &role("", "new", &pods(&["*"])), Ok(()));
}

#[test]
fn the_verb_escalate_stands_for_the_rules() {
    check("esc", &role("", "new", &pods(&["*"])), Ok(()));
    check("esc", &role("a", "named", &pods(&["*"])), Ok(()));
    let refused = "user \"esc\" (groups=[\"g\" \"h\"]) is attempting to grant RBAC permissions not \
        currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"*\"]}";
    check("esc", &role("a", "other", &pods(&["*"])), Err(refused));
}

#[test]
fn a_binding_may_give_what_its_author_holds() {
    check("ann", &binding("", "new", "ClusterRole/reader", &["User/x"]), Ok(()));
    check("ann", &binding("a", "new", "ClusterRole/reader", &["User/x"]), Ok(()));
    check("ann", &binding("a", "new", "Role/lister", &["User/x"]), Ok(()));
    let refused = "user \"ann\" (groups=[\"g\" \"h\"]) is attempting to grant RBAC permissions not \
        currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"create\"]}";
    check("ann", &binding("a", "new", "ClusterRole/writer", &["User/x"]), Err(refused));
    check("ann", &binding("", "new", "ClusterRole/writer", &[]), Err(refused));
}

#[test]
fn the_verb_bind_stands_for_the_rules_where_it_is_held() {
    check("bin", &binding("a", "new", "ClusterRole/writer", &["User/x"]), Ok(()));
    for refused in [
        binding("b", "new", "ClusterRole/writer", &["User/x"]),
        binding("", "new", "ClusterRole/writer", &["User/x"]),
        binding("a", "new", "ClusterRole/reader", &["User/x"]),
        binding("a", "new", "Role/lister", &["User/x"]),
    ] {
        let error = authorizer().check_rbac_write(&user("bin", &[]), None, &refused).unwrap_err();
        assert!(matches!(error, EscalationError::NotHeld { .. }), "{refused} {error}");
    }
}

#[test]
fn a_role_that_does_not_exist_cannot_be_bound_unless_by_the_verb() {
    check(
        "ann",
        &binding("a", "new", "Role/gone", &[]),
        Err("role.rbac.authorization.k8s.io \"gone\" not found"),
    );
    check("root", &binding("a", "new", "Role/gone", &[]), Ok(()));
}

#[test]
fn aggregation_needs_everything() {
    let mut gathering = role("", "new", &json!([]));
    gathering["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]});
    let refused = "must have cluster-admin privileges to use the aggregationRule";
    check("ann", &gathering, Err(refused));
    check("root", &gathering, Ok(()));
    check("esc", &gathering, Ok(()));
    // Taking the rule away could keep rules that were to go.
    let plain = role("", "new", &json!([]));
    let taken = authorizer().check_rbac_write(&user("ann", &[]), Some(&gathering), &plain);
    assert_eq!(taken.unwrap_err().to_string(), refused);
}

#[test]
fn masters_are_not_asked() {
    let masters = user("m", &["system:masters"]);
    let object = role("", "new", &pods(&["*"]));
    assert!(authorizer().check_rbac_write(&masters, None, &object).is_ok());
}

#[test]
fn an_update_for_garbage_collection_grants_nothing_but_a_label_may() {
    let old = role("", "r", &pods(&["*"]));
    let mut collected = old.clone();
    collected["metadata"]["finalizers"] = json!([]);
    collected["metadata"]["ownerReferences"] = json!([{"name": "x"}]);
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"to": "all"});
    let check = |new: &Value| authorizer().check_rbac_write(&user("ann", &[]), Some(&old), new);
    assert!(check(&collected).is_ok());
    assert!(check(&labelled).is_err());
}

#[test]
fn roles_that_could_not_be_found_are_named() {
    let objects = [binding("", "b", "ClusterRole/gone", &["User/ann"])];
    let authorizer = Authorizer::new(RbacIndex::new(&objects).0, NodeGraph::default());
    let wanted = [PolicyRule::paths(&["/x"], &["get"])];
    let error = authorizer.check_escalation(&user("ann", &[]), &wanted, "").unwrap_err();
    assert_eq!(
        error.to_string(),
        "user \"ann\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
         {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}; resolution errors: \
         [clusterrole.rbac.authorization.k8s.io \"gone\" not found]"
    );
}
