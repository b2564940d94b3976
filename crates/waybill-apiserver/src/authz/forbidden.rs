//! The words of a 403.
//!
//! Clients match on them, so they are those of `apierrors.NewForbidden` and of the authorization
//! filter of Kubernetes, to the letter.

use super::Reason;
use crate::request::{Action, Target, User};

/// The message for `action`, which nobody allowed to `user`.
pub(crate) fn message(user: &User, action: &Action, reason: &Reason) -> String {
    let name = &user.name;
    let verb = &action.verb;
    let (subject, mut detail) = match &action.target {
        Target::Path(path) => {
            ("forbidden".to_owned(), format!("User {name:?} cannot {verb} path {path:?}"))
        }
        Target::Resource(target) => {
            let resource = match target.subresource.as_str() {
                "" => target.resource.clone(),
                subresource => format!("{}/{subresource}", target.resource),
            };
            let scope = match target.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let group = &target.group;
            let detail = format!(
                "User {name:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}"
            );
            (subject(group, &target.resource, &target.name), detail)
        }
    };
    let reason = reason.to_string();
    if !reason.is_empty() {
        detail.push_str(": ");
        detail.push_str(&reason);
    }
    format!("{subject}: {detail}")
}

/// The message for an object that is refused because of `detail`, such as a privilege escalation.
pub(crate) fn object_message(group: &str, resource: &str, name: &str, detail: &str) -> String {
    format!("{}: {detail}", subject(group, resource, name))
}

fn subject(group: &str, resource: &str, name: &str) -> String {
    let qualified = match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    };
    match name {
        "" => format!("{qualified} is forbidden"),
        name => format!("{qualified} {name:?} is forbidden"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::fixtures::{on, path, user};

    #[track_caller]
    fn check(action: &Action, reason: &str, expected: &str) {
        let reason = Reason::Text(reason.to_owned());
        assert_eq!(message(&user("x", &[]), action, &reason), expected);
    }

    #[test]
    fn messages_read_as_in_kubernetes() {
        check(
            &on("list", "default/pods"),
            "",
            "pods is forbidden: User \"x\" cannot list resource \"pods\" in API group \"\" in the \
             namespace \"default\"",
        );
        check(
            &on("list", "nodes"),
            "",
            "nodes is forbidden: User \"x\" cannot list resource \"nodes\" in API group \"\" at the \
             cluster scope",
        );
        check(
            &on("get", "default/pods:web"),
            "",
            "pods \"web\" is forbidden: User \"x\" cannot get resource \"pods\" in API group \"\" in \
             the namespace \"default\"",
        );
        check(
            &on("create", "default/pods/exec:web"),
            "",
            "pods \"web\" is forbidden: User \"x\" cannot create resource \"pods/exec\" in API group \
             \"\" in the namespace \"default\"",
        );
        check(
            &on("delete", "kube-node-lease/leases.coordination.k8s.io:n"),
            "",
            "leases.coordination.k8s.io \"n\" is forbidden: User \"x\" cannot delete resource \
             \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-node-lease\"",
        );
        check(&path("get", "/metrics"), "", "forbidden: User \"x\" cannot get path \"/metrics\"");
    }

    #[test]
    fn a_reason_follows() {
        check(
            &path("get", "/metrics"),
            "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found",
            "forbidden: User \"x\" cannot get path \"/metrics\": RBAC: \
             clusterrole.rbac.authorization.k8s.io \"gone\" not found",
        );
    }

    #[test]
    fn an_object_is_refused_by_its_qualified_name() {
        assert_eq!(
            object_message("rbac.authorization.k8s.io", "roles", "r", "why"),
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: why"
        );
    }
}
