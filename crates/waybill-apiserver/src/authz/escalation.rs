//! Nobody hands out what they do not have.
//!
//! Whoever writes a role needs each of its rules, or the verb `escalate` on it; whoever writes a
//! binding needs the rules of its role, or the verb `bind` on that. Members of `system:masters` are
//! not asked. As `pkg/registry/rbac` of Kubernetes.

use serde_json::{Map, Value};

use super::{
    Authorizer,
    covers::{covers, go_list, missing},
    is_master,
    objects::{GROUP, RbacObject, RbacViewError, RoleRef},
    policy::RoleRefError,
    rbac::Aggregate,
    rule::{ALL, PolicyRule},
};
use crate::request::{Action, ResourceTarget, Target, User};

impl Authorizer {
    /// Checks that `user` may write the role or binding `new` over `old`. Its namespace must already
    /// be filled in.
    pub(crate) fn check_rbac_write(
        &self,
        user: &User,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), EscalationError> {
        if is_master(user) || old.is_some_and(|old| differs_for_collection_only(old, new)) {
            return Ok(());
        }
        match RbacObject::from_value(new)? {
            RbacObject::ClusterRole(role) => {
                let name = &role.metadata.name;
                if self.may(user, "escalate", "clusterroles", "", name) {
                    return Ok(());
                }
                self.check_escalation(user, &role.rules, "")?;
                let was_aggregated = matches!(
                    old.map(RbacObject::from_value).transpose()?,
                    Some(RbacObject::ClusterRole(old)) if old.is_aggregated()
                );
                if role.is_aggregated() || was_aggregated {
                    self.check_aggregation(user)?;
                }
                Ok(())
            }
            RbacObject::Role(role) => {
                let (namespace, name) = (&role.metadata.namespace, &role.metadata.name);
                if self.may(user, "escalate", "roles", namespace, name) {
                    return Ok(());
                }
                self.check_escalation(user, &role.rules, namespace)
            }
            RbacObject::ClusterRoleBinding(binding) => {
                self.check_binding(user, &binding.role_ref, "")
            }
            RbacObject::RoleBinding(binding) => {
                self.check_binding(user, &binding.role_ref, &binding.metadata.namespace)
            }
        }
    }

    /// Checks that `user` has all of `rules` in `namespace`, or in the whole cluster if that is
    /// empty.
    pub(crate) fn check_escalation(
        &self,
        user: &User,
        rules: &[PolicyRule],
        namespace: &str,
    ) -> Result<(), EscalationError> {
        let held = self.rbac.rules_for(user, namespace);
        let missing = missing(&held.rules, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let mut missing = Vec::from_iter(missing).join("\n");
        if !held.errors.is_empty() {
            missing.push_str(&format!("; resolution errors: [{}]", Aggregate(&held.errors)));
        }
        Err(EscalationError::NotHeld {
            user: user.name.clone(),
            groups: go_list(&user.groups),
            missing,
        })
    }

    /// An aggregated role can come to hold anything, so it needs everything.
    fn check_aggregation(&self, user: &User) -> Result<(), EscalationError> {
        let everything =
            [PolicyRule::resources(&[ALL], &[ALL], &[ALL]), PolicyRule::paths(&[ALL], &[ALL])];
        if covers(&self.rbac.rules_for(user, "").rules, &everything) {
            Ok(())
        } else {
            Err(EscalationError::Aggregation)
        }
    }

    fn check_binding(
        &self,
        user: &User,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<(), EscalationError> {
        let resource = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            _ => "roles",
        };
        if self.may(user, "bind", resource, namespace, &role.name) {
            return Ok(());
        }
        let rules = self.rbac.role_rules(role, namespace)?;
        self.check_escalation(user, &rules, namespace)
    }

    fn may(&self, user: &User, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let target = ResourceTarget {
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let action = Action { verb: verb.to_owned(), target: Target::Resource(target) };
        self.authorize(user, &action, &[]).is_allowed()
    }
}

/// Why a role or binding may not be written; except for the last two, the detail of a 403.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum EscalationError {
    /// Only who may do everything may let a role gather others.
    #[error("must have cluster-admin privileges to use the aggregationRule")]
    Aggregation,
    /// Some rules are not the user's to give.
    #[error(
        "user {user:?} (groups={groups}) is attempting to grant RBAC permissions not currently \
         held:\n{missing}"
    )]
    NotHeld { user: String, groups: String, missing: String },
    /// There is no role to bind, which answers 404.
    #[error(transparent)]
    Role(#[from] RoleRefError),
    /// The object is none, which validation should have found.
    #[error(transparent)]
    View(#[from] RbacViewError),
}

/// Whether the two differ at most in what garbage collection and bookkeeping write. Labels are not
/// among it: a label can pull the rules of a role into another.
fn differs_for_collection_only(old: &Value, new: &Value) -> bool {
    const IGNORED: [&str; 4] =
        ["finalizers", "managedFields", "ownerReferences", "resourceVersion"];
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            IGNORED.iter().for_each(|field| drop(Map::remove(metadata, *field)));
        }
        object
    };
    without(old) == without(new)
}

#[cfg(test)]
mod tests;
