//! All roles and bindings at one moment, and what they grant.
//!
//! A policy is a value. Its parts are shared, so a changed copy costs as much as the part that
//! changed, and readers of the old one are not disturbed.

use std::{collections::HashMap, sync::Arc};

#[cfg(test)]
use serde_json::Value;

use super::{
    bindings::{Bindings, Grant},
    cluster_roles::ClusterRoles,
    objects::{GROUP, RbacKey, RbacKind, RbacObject, RoleRef},
    rule::PolicyRule,
};
use crate::request::User;

/// All roles and bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    cluster_roles: Arc<ClusterRoles>,
    cluster_bindings: Arc<Bindings>,
    namespaces: Arc<HashMap<String, Arc<NamespacePolicy>>>,
}

impl Policy {
    #[cfg(test)]
    /// The policy that `objects` make. What cannot be read is left out and reported.
    pub(super) fn from_objects<'a>(
        objects: impl IntoIterator<Item = &'a Value>,
    ) -> (Self, Vec<super::objects::RbacViewError>) {
        let mut policy = Self::default();
        let mut errors = Vec::new();
        for object in objects {
            match RbacObject::from_value(object) {
                Ok(object) => policy.insert(object),
                Err(error) => errors.push(error),
            }
        }
        Arc::make_mut(&mut policy.cluster_roles).refresh();
        (policy, errors)
    }

    /// Adds `object`, or puts it in the place of the one of its name.
    pub(super) fn put(&mut self, object: RbacObject) {
        let aggregates = matches!(object, RbacObject::ClusterRole(_));
        self.insert(object);
        if aggregates {
            Arc::make_mut(&mut self.cluster_roles).refresh();
        }
    }

    /// Removes the object `key`, if there is one.
    pub(super) fn remove(&mut self, key: &RbacKey) {
        match key.kind {
            RbacKind::ClusterRole => {
                let roles = Arc::make_mut(&mut self.cluster_roles);
                roles.remove(&key.name);
                roles.refresh();
            }
            RbacKind::ClusterRoleBinding => {
                Arc::make_mut(&mut self.cluster_bindings).remove(&key.name);
            }
            RbacKind::Role => self.change(&key.namespace, |namespace| {
                namespace.roles.remove(&key.name);
            }),
            RbacKind::RoleBinding => {
                self.change(&key.namespace, |namespace| namespace.bindings.remove(&key.name));
            }
        }
    }

    /// Calls `visit` with each role that `user` has in `namespace` or, if that is empty, in the
    /// whole cluster, until it answers with something. A role that does not exist is an error, which
    /// takes nothing from the others.
    pub(super) fn find_grant<'a, T>(
        &'a self,
        user: &'a User,
        namespace: &str,
        mut visit: impl FnMut(&'a Grant, Result<&'a [PolicyRule], RoleRefError>) -> Option<T>,
    ) -> Option<T> {
        for grant in self.cluster_bindings.grants(user) {
            let rules = self.role_rules(&grant.binding.role_ref, "");
            if let Some(answer) = visit(grant, rules.map(AsRef::as_ref)) {
                return Some(answer);
            }
        }
        let local = self.namespaces.get(namespace)?;
        for grant in local.bindings.grants(user) {
            let rules = self.role_rules(&grant.binding.role_ref, namespace);
            if let Some(answer) = visit(grant, rules.map(AsRef::as_ref)) {
                return Some(answer);
            }
        }
        None
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub(super) fn role_rules(
        &self,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<&Arc<[PolicyRule]>, RoleRefError> {
        let found = match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.rules(&role.name),
            "Role" => self.namespaces.get(namespace).and_then(|local| local.roles.get(&role.name)),
            kind => return Err(RoleRefError::Kind(kind.to_owned())),
        };
        found.ok_or_else(|| RoleRefError::NotFound(role.clone()))
    }

    /// The rules that the cluster role `name` has by aggregation; `None` if it is not aggregated.
    pub(super) fn aggregated_rules(&self, name: &str) -> Option<&Arc<[PolicyRule]>> {
        self.cluster_roles.aggregated_rules(name)
    }

    fn insert(&mut self, object: RbacObject) {
        match object {
            RbacObject::ClusterRole(role) => Arc::make_mut(&mut self.cluster_roles).put(role),
            RbacObject::ClusterRoleBinding(mut binding) => {
                // An empty namespace is what tells the two kinds of bindings apart.
                binding.metadata.namespace.clear();
                Arc::make_mut(&mut self.cluster_bindings).put(binding);
            }
            RbacObject::Role(role) => self.change(&role.metadata.namespace, |namespace| {
                namespace.roles.insert(role.metadata.name.clone(), role.rules.as_slice().into());
            }),
            RbacObject::RoleBinding(binding) => {
                let namespace = binding.metadata.namespace.clone();
                self.change(&namespace, |namespace| namespace.bindings.put(binding));
            }
        }
    }

    /// Changes one namespace. One that holds nothing is left out, so that what was never there and
    /// what is gone look the same.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut NamespacePolicy)) {
        let namespaces = Arc::make_mut(&mut self.namespaces);
        let namespace = namespaces.entry(name.to_owned()).or_default();
        change(Arc::make_mut(namespace));
        if namespace.roles.is_empty() && namespace.bindings.is_empty() {
            namespaces.remove(name);
        }
    }
}

/// The roles and bindings of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NamespacePolicy {
    roles: HashMap<String, Arc<[PolicyRule]>>,
    bindings: Bindings,
}

/// Why the role of a binding has no rules; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RoleRefError {
    /// The kind is neither `Role` nor `ClusterRole`.
    #[error("unsupported role reference kind: {0:?}")]
    Kind(String),
    /// There is no such role.
    #[error("{}.{GROUP} {:?} not found", .0.kind.to_ascii_lowercase(), .0.name)]
    NotFound(RoleRef),
}

#[cfg(test)]
mod tests;
