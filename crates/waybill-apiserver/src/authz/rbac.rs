//! Role-based access control over the current roles and bindings.
//!
//! The index is fed with every change of the four kinds and read by every request. A request takes
//! the policy of one moment without a lock; a change makes the next one beside it.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use serde_json::Value;

use super::{
    Decision, Reason,
    objects::{RbacKey, RbacObject, RbacViewError, RoleRef},
    policy::{Policy, RoleRefError},
    rule::PolicyRule,
};
use crate::request::{Action, Target, User};

/// What the roles and bindings grant.
#[derive(Debug, Default)]
pub(crate) struct RbacIndex {
    policy: ArcSwap<Policy>,
}

impl RbacIndex {
    #[cfg(test)]
    /// The index over `objects`. What cannot be read grants nothing and is reported.
    pub(crate) fn new<'a>(
        objects: impl IntoIterator<Item = &'a Value>,
    ) -> (Self, Vec<RbacViewError>) {
        let (policy, errors) = Policy::from_objects(objects);
        (Self { policy: ArcSwap::from_pointee(policy) }, errors)
    }

    /// `object` was created or changed. If it cannot be read, what it granted before is gone.
    pub(crate) fn put(&self, object: &Value) -> Result<(), RbacViewError> {
        match RbacObject::from_value(object) {
            Ok(view) => {
                self.change(|policy| policy.put(view.clone()));
                Ok(())
            }
            Err(error) => {
                if let RbacViewError::Shape { key, .. } = &error {
                    self.change(|policy| policy.remove(key));
                }
                Err(error)
            }
        }
    }

    /// `object` was deleted.
    pub(crate) fn delete(&self, object: &Value) -> Result<(), RbacViewError> {
        let key = RbacKey::of(object)?;
        self.change(|policy| policy.remove(&key));
        Ok(())
    }

    /// Whether a rule of a role that `user` has allows `action`.
    pub(crate) fn authorize(&self, user: &User, action: &Action) -> Decision {
        let policy = self.policy.load();
        let namespace = match &action.target {
            Target::Path(_) => "",
            Target::Resource(target) => &target.namespace,
        };
        let mut errors = Vec::new();
        let grant = policy.find_grant(user, namespace, |grant, rules| match rules {
            Ok(rules) => rules.iter().any(|rule| rule.allows(action)).then(|| grant.clone()),
            Err(error) => {
                errors.push(error);
                None
            }
        });
        match grant {
            Some(grant) => Decision::Allow { reason: Reason::Grant(grant) },
            None if errors.is_empty() => Decision::NoOpinion { reason: Reason::None },
            None => Decision::NoOpinion {
                reason: Reason::Text(format!("RBAC: {}", Aggregate(&errors))),
            },
        }
    }

    /// Every rule in force for `user` in `namespace`, each once; cluster-wide rules only if that is
    /// empty.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let policy = self.policy.load();
        let mut found = UserRules::default();
        policy.find_grant(user, namespace, |_, rules| {
            match rules {
                Ok(rules) => found.add(rules),
                Err(error) => found.errors.push(error),
            }
            None::<()>
        });
        found
    }

    /// The rules of the role that a binding in `namespace` refers to; no namespace for one of the
    /// whole cluster.
    pub(super) fn role_rules(
        &self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<Arc<[PolicyRule]>, RoleRefError> {
        self.policy.load().role_rules(role, namespace).cloned()
    }

    /// The rules that readers of the cluster role `name` are shown in place of its own; `None` if it
    /// is not aggregated and is shown as it stands.
    pub(crate) fn aggregated_rules(&self, name: &str) -> Option<Arc<[PolicyRule]>> {
        self.policy.load().aggregated_rules(name).cloned()
    }

    fn change(&self, change: impl Fn(&mut Policy)) {
        self.policy.rcu(|policy| {
            let mut next = Policy::clone(policy);
            change(&mut next);
            next
        });
    }
}

/// The rules in force for someone, and the roles that were to give more but do not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserRules {
    pub(crate) rules: Vec<PolicyRule>,
    pub(crate) errors: Vec<RoleRefError>,
}

impl UserRules {
    fn add(&mut self, rules: &[PolicyRule]) {
        for rule in rules {
            if !self.rules.contains(rule) {
                self.rules.push(rule.clone());
            }
        }
    }
}

/// One error stands alone, several stand in brackets, as upstream prints them.
pub(super) struct Aggregate<'a>(pub(super) &'a [RoleRefError]);

impl fmt::Display for Aggregate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        match texts.as_slice() {
            [text] => f.write_str(text),
            _ => write!(f, "[{}]", texts.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
