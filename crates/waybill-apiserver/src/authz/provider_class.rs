//! Who may use a ProviderClass (OP-34).
//!
//! To use a class is the verb `use` on it, which reading it does not grant. The question is asked
//! for the pod's service account in the pod's namespace, so that a RoleBinding there suffices and a
//! ClusterRoleBinding grants it everywhere. The roles are examples to ship (CSI-20).

use serde_json::{Value, json};
use waybill_api::provider_class::{GROUP, RESOURCE, VERSIONS};

use super::{bootstrap::AUTHENTICATED_GROUP, objects, rule::PolicyRule};
use crate::request::{Action, ResourceTarget, Target, User};

/// What a pod of `namespace` does that names `class`.
pub(crate) fn use_of(class: &str, namespace: &str) -> Action {
    let [version, ..] = VERSIONS;
    let target = ResourceTarget {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        resource: RESOURCE.to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: class.to_owned(),
    };
    Action { verb: "use".to_owned(), target: Target::Resource(target) }
}

/// The service account as authentication would find it.
pub(crate) fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            AUTHENTICATED_GROUP.to_owned(),
        ],
        ..User::default()
    }
}

/// Example: a cluster role for those who manage classes. It does not let their pods use any.
pub(crate) fn manager_role() -> Value {
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
    cluster_role("providerclass-manager", &PolicyRule::resources(&[GROUP], &[RESOURCE], &verbs))
}

#[cfg(test)]
/// Example: a cluster role that lets service accounts use `class`, to be bound in a namespace.
pub(crate) fn user_role(class: &str) -> Value {
    let rule = PolicyRule::resources(&[GROUP], &[RESOURCE], &["use"]).named(&[class]);
    cluster_role(&format!("providerclass-user-{class}"), &rule)
}

fn cluster_role(name: &str, rule: &PolicyRule) -> Value {
    json!({
        "apiVersion": format!("{}/v1", objects::GROUP),
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{
        fixtures::{binding, on, user},
        rbac::RbacIndex,
    };

    fn index() -> RbacIndex {
        let (index, errors) = RbacIndex::new(&[
            manager_role(),
            user_role("vault"),
            binding("", "m", "ClusterRole/providerclass-manager", &["User/ann"]),
            binding("ns", "u", "ClusterRole/providerclass-user-vault", &["ServiceAccount/ns/app"]),
            binding("", "r", "ClusterRole/providerclass-manager", &["ServiceAccount/ns/reader"]),
        ]);
        assert!(errors.is_empty());
        index
    }

    #[track_caller]
    fn check_use(account: &str, class: &str, namespace: &str, allowed: bool) {
        let decision =
            index().authorize(&service_account("ns", account), &use_of(class, namespace));
        assert_eq!(decision.is_allowed(), allowed, "{account} {class} {namespace}");
    }

    #[test]
    fn use_is_granted_by_class_account_and_namespace() {
        check_use("app", "vault", "ns", true);
        check_use("app", "other", "ns", false);
        check_use("app", "vault", "elsewhere", false);
        check_use("app", "vault", "", false);
        check_use("default", "vault", "ns", false);
    }

    #[test]
    fn who_reads_or_manages_a_class_may_not_use_it_op_34() {
        check_use("reader", "vault", "ns", false);
        let ann = user("ann", &[]);
        for verb in ["create", "update", "patch", "delete", "get", "list", "watch"] {
            let action = on(verb, "providerclasses.storage.k8s.io:vault");
            assert!(index().authorize(&ann, &action).is_allowed(), "{verb}");
        }
        assert!(!index().authorize(&ann, &use_of("vault", "ns")).is_allowed());
        let account = service_account("ns", "app");
        let get = on("get", "providerclasses.storage.k8s.io:vault");
        assert!(!index().authorize(&account, &get).is_allowed());
    }
}
