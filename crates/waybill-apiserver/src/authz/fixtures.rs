//! Short ways to write users and actions in tests.

use serde_json::{Value, json};

use crate::request::{Action, ResourceTarget, Target, User};

/// A user in these groups.
pub(super) fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..User::default()
    }
}

/// `verb` on a target written as `namespace/resource.group/subresource:name`; only the resource must
/// stand. Of two parts the second is a subresource if it is one of those known here; otherwise the
/// first is a namespace.
pub(super) fn on(verb: &str, target: &str) -> Action {
    const SUBRESOURCES: [&str; 11] = [
        "attach",
        "binding",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "log",
        "portforward",
        "proxy",
        "status",
        "token",
        "trace",
    ];
    let (path, name) = target.split_once(':').unwrap_or((target, ""));
    let parts: Vec<_> = path.split('/').collect();
    let (namespace, resource, subresource) = match parts.as_slice() {
        [namespace, resource, subresource] => (*namespace, *resource, *subresource),
        [resource, subresource] if SUBRESOURCES.contains(subresource) => {
            ("", *resource, *subresource)
        }
        [namespace, resource] => (*namespace, *resource, ""),
        _ => ("", path, ""),
    };
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let target = ResourceTarget {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Action { verb: verb.to_owned(), target: Target::Resource(target) }
}

/// `verb` on a path that is no resource.
pub(super) fn path(verb: &str, path: &str) -> Action {
    Action { verb: verb.to_owned(), target: Target::Path(path.to_owned()) }
}

/// A role of `namespace`, or a cluster role if that is empty.
pub(super) fn role(namespace: &str, name: &str, rules: &Value) -> Value {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

/// A binding in `namespace`, or of the cluster if that is empty, of `Kind/name` to each of
/// `Kind/name` or `ServiceAccount/namespace/name`.
pub(super) fn binding(namespace: &str, name: &str, role: &str, subjects: &[&str]) -> Value {
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    let (role_kind, role) = role.split_once('/').unwrap();
    let subjects: Vec<_> = subjects
        .iter()
        .map(|subject| match subject.splitn(3, '/').collect::<Vec<_>>().as_slice() {
            ["ServiceAccount", namespace, name] => {
                json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
            }
            [kind, name] => json!({"kind": kind, "name": name}),
            parts => panic!("no subject: {parts:?}"),
        })
        .collect();
    json!({
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": role_kind, "name": role},
        "subjects": subjects,
    })
}
