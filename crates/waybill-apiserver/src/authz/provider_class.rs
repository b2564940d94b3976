//! Who may use a ProviderClass (OP-34).
//!
//! To use a class is the verb `use` on it, which reading it does not grant. The question is asked
//! for the pod's service account in the pod's namespace, so that a RoleBinding there suffices and a
//! ClusterRoleBinding grants it everywhere. `deploy/roles` holds examples of both roles (CSI-20).

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
    json!({
        "apiVersion": format!("{}/v1", objects::GROUP),
        "kind": "ClusterRole",
        "metadata": {"name": "providerclass-manager"},
        "rules": [PolicyRule::resources(&[GROUP], &[RESOURCE], &verbs)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{
        fixtures::{binding, on, user},
        rbac::RbacIndex,
    };

    const MANAGER: &str = include_str!("../../../../deploy/roles/providerclass-manager.yaml");
    const USER: &str = include_str!("../../../../deploy/roles/providerclass-user.yaml");

    fn documents(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    fn index() -> RbacIndex {
        let (index, errors) = RbacIndex::new(&[
            manager_role(),
            documents(USER).swap_remove(0),
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

    /// CSI-20: the role that every cluster of ours has is the one that we ship for others.
    #[test]
    fn the_shipped_roles_grant_what_they_say_csi_20() {
        assert_eq!(documents(MANAGER)[0], manager_role());
        let shipped: Vec<_> = [MANAGER, USER].into_iter().flat_map(documents).collect();
        let (index, errors) = RbacIndex::new(&shipped);
        assert!(errors.is_empty(), "{errors:?}");
        let may = |namespace: &str, class: &str, at: &str| {
            let account = service_account(namespace, "default");
            index.authorize(&account, &use_of(class, at)).is_allowed()
        };
        assert!(may("app", "vault", "app"));
        assert!(!may("app", "other", "app"));
        assert!(!may("app", "vault", "elsewhere"));
        assert!(!may("elsewhere", "vault", "app"));
        let manager = user("ann", &["secrets-team"]);
        let create = on("create", "providerclasses.storage.k8s.io");
        assert!(index.authorize(&manager, &create).is_allowed());
        assert!(!index.authorize(&manager, &use_of("vault", "app")).is_allowed());
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
