//! The roles and bindings that every server starts with.
//!
//! Names and meaning are those of Kubernetes, limited to what we serve. The roles for people are
//! aggregated from parts, so that others can add to them by a label. Nodes have a role for readers
//! only: what they may do depends on their pods, see [`super::node`].

mod components;
pub(crate) mod reconcile;

use serde_json::{Map, Value, json};

pub(crate) use self::components::AUTHENTICATION_INFO;
use super::{
    MASTERS_GROUP, NODE_CLIENTS_GROUP,
    node::unconditional_rules,
    objects::GROUP,
    rule::{ALL, PolicyRule},
};

/// Everyone who showed who they are.
pub(crate) const AUTHENTICATED_GROUP: &str = "system:authenticated";

/// Everyone else.
pub(crate) const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

const CORE: &str = "";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";
const STORAGE: &str = "storage.k8s.io";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const READ_WRITE: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Every object to create on an empty store and to [`reconcile::reconcile`] at each start.
pub(crate) fn objects() -> Vec<Value> {
    let mut objects = Vec::new();
    objects.extend(system_roles());
    objects.extend(people_roles());
    objects.extend(bindings());
    objects.extend(components::objects());
    objects
}

fn system_roles() -> [Value; 9] {
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];
    let metrics = [
        "/healthz",
        "/healthz/*",
        "/livez",
        "/livez/*",
        "/metrics",
        "/metrics/*",
        "/readyz",
        "/readyz/*",
    ];
    let reviews = [
        PolicyRule::resources(&[AUTHENTICATION], &["tokenreviews"], &["create"]),
        PolicyRule::resources(&[AUTHORIZATION], &["subjectaccessreviews"], &["create"]),
    ];
    [
        role(
            "cluster-admin",
            &[PolicyRule::resources(&[ALL], &[ALL], &[ALL]), PolicyRule::paths(&[ALL], &[ALL])],
        ),
        role(
            "system:discovery",
            &[PolicyRule::paths(&[&discovery[..], &health[..]].concat(), &["get"])],
        ),
        role("system:public-info-viewer", &[PolicyRule::paths(&health, &["get"])]),
        role("system:monitoring", &[PolicyRule::paths(&metrics, &["get"])]),
        role(
            "system:basic-user",
            &[
                PolicyRule::resources(
                    &[AUTHORIZATION],
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    &["create"],
                ),
                PolicyRule::resources(&[AUTHENTICATION], &["selfsubjectreviews"], &["create"]),
            ],
        ),
        role("system:auth-delegator", &reviews),
        role("system:node", &unconditional_rules()),
        role("system:kubelet-api-admin", &kubelet_rules()),
        // For whoever finds out who ran what, on all nodes; bound to nobody.
        role(
            "waybill:investigator",
            &[
                PolicyRule::resources(&[CORE], &["nodes"], READ),
                PolicyRule::resources(&[CORE], &["nodes/trace"], &["get"]),
            ],
        ),
    ]
}

/// The whole API of every node, for nodes that ask back whether their caller may use it.
fn kubelet_rules() -> [PolicyRule; 3] {
    let parts = [
        "nodes/configz",
        "nodes/healthz",
        "nodes/log",
        "nodes/metrics",
        "nodes/pods",
        "nodes/proxy",
        "nodes/stats",
        "nodes/trace",
    ];
    [
        PolicyRule::resources(&[CORE], &["nodes"], READ),
        PolicyRule::resources(&[CORE], &["nodes"], &["proxy"]),
        PolicyRule::resources(&[CORE], &parts, &[ALL]),
    ]
}

/// `view` is part of `edit`, and `edit` of `admin`.
fn people_roles() -> [Value; 6] {
    [
        aggregated("admin", &[]),
        aggregated("edit", &["admin"]),
        aggregated("view", &["edit"]),
        part("admin", &admin_rules()),
        part("edit", &edit_rules()),
        part("view", &view_rules()),
    ]
}

/// For whoever rules over a namespace: who may do what in it.
fn admin_rules() -> Vec<PolicyRule> {
    vec![
        PolicyRule::resources(&[AUTHORIZATION], &["localsubjectaccessreviews"], &["create"]),
        PolicyRule::resources(&[GROUP], &["rolebindings", "roles"], READ_WRITE),
    ]
}

/// For whoever works in a namespace. Reading secrets and entering pods is here and not in `view`,
/// since both give the rights of the service accounts.
fn edit_rules() -> Vec<PolicyRule> {
    let enter = ["pods/attach", "pods/exec", "pods/portforward"];
    vec![
        PolicyRule::resources(&[CORE], &[&enter[..], &["secrets"]].concat(), READ),
        PolicyRule::resources(&[CORE], &[&enter[..], &["pods"]].concat(), WRITE),
        PolicyRule::resources(&[CORE], &["pods/eviction", "serviceaccounts/token"], &["create"]),
        PolicyRule::resources(
            &[CORE],
            &["configmaps", "events", "podtemplates", "secrets", "serviceaccounts", "services"],
            WRITE,
        ),
        PolicyRule::resources(&[COORDINATION], &["leases"], READ_WRITE),
    ]
}

/// For whoever looks at a namespace.
fn view_rules() -> Vec<PolicyRule> {
    vec![
        PolicyRule::resources(
            &[CORE],
            &["configmaps", "endpoints", "pods", "podtemplates", "serviceaccounts", "services"],
            READ,
        ),
        PolicyRule::resources(
            &[CORE],
            &["events", "namespaces/status", "pods/log", "pods/status", "services/status"],
            READ,
        ),
        // In a namespace this means the namespace itself.
        PolicyRule::resources(&[CORE], &["namespaces"], READ),
        PolicyRule::resources(&[EVENTS], &["events"], READ),
        PolicyRule::resources(&["discovery.k8s.io"], &["endpointslices"], READ),
    ]
}

fn bindings() -> [Value; 7] {
    let group = |name: &str| json!({"apiGroup": GROUP, "kind": "Group", "name": name});
    [
        binding("cluster-admin", &[group(MASTERS_GROUP)]),
        binding("system:basic-user", &[group(AUTHENTICATED_GROUP)]),
        binding("system:discovery", &[group(AUTHENTICATED_GROUP)]),
        binding(
            "system:public-info-viewer",
            &[group(AUTHENTICATED_GROUP), group(UNAUTHENTICATED_GROUP)],
        ),
        binding("system:monitoring", &[group("system:monitoring")]),
        binding("system:kubelet-api-admin", &[group(NODE_CLIENTS_GROUP)]),
        binding("system:node", &[]),
    ]
}

fn role(name: &str, rules: &[PolicyRule]) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": metadata(name, &[]),
        "rules": rules,
    })
}

fn part(of: &str, rules: &[PolicyRule]) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": metadata(&format!("system:aggregate-to-{of}"), &[of]),
        "rules": rules,
    })
}

/// A role that gathers the parts of its name, and is itself a part of the roles `into`.
fn aggregated(name: &str, into: &[&str]) -> Value {
    let labels = json!({aggregation_label(name): "true"});
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": metadata(name, into),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]},
        "rules": [],
    })
}

/// A binding has the name of its role.
fn binding(role: &str, subjects: &[Value]) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": metadata(role, &[]),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn metadata(name: &str, part_of: &[&str]) -> Value {
    let mut labels = Map::new();
    labels.insert("kubernetes.io/bootstrapping".to_owned(), json!("rbac-defaults"));
    labels.extend(part_of.iter().map(|role| (aggregation_label(role), json!("true"))));
    json!({"name": name, "labels": labels, "annotations": {reconcile::AUTO_UPDATE: "true"}})
}

fn aggregation_label(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

#[cfg(test)]
mod tests;
