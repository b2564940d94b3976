//! Who may do what: members of `system:masters` everything, nodes what their pods need, all others
//! what roles and bindings grant.
//!
//! Nothing here knows HTTP or the store. The indexes are fed with changes by whoever watches the
//! store, and must be fed before watchers are told, so that nobody is refused what they were just
//! shown. Authorization only ever adds: no part can forbid what another allows.

mod bindings;
pub(crate) mod bootstrap;
mod cluster_roles;
pub(crate) mod covers;
pub(crate) mod escalation;
pub(crate) mod forbidden;
pub(crate) mod node;
pub(crate) mod objects;
pub(crate) mod policy;
pub(crate) mod provider_class;
pub(crate) mod rbac;
pub(crate) mod review;
pub(crate) mod rule;

#[cfg(test)]
mod fixtures;

use std::fmt;

use self::{bindings::Grant, node::graph::NodeGraph, rbac::RbacIndex};
use crate::{
    request::{Action, User},
    selector::field::{FieldOperator, FieldSelector},
};

/// The group whose members may do everything; no role can take it from them.
pub(crate) const MASTERS_GROUP: &str = "system:masters";

/// The group of API servers towards nodes.
pub(crate) const NODE_CLIENTS_GROUP: &str = "waybill:node-clients";

/// Decides over every request.
#[derive(Debug, Default)]
pub(crate) struct Authorizer {
    rbac: RbacIndex,
    nodes: NodeGraph,
}

impl Authorizer {
    #[cfg(test)]
    /// Decides by these two indexes, which go on to follow changes.
    pub(crate) fn new(rbac: RbacIndex, nodes: NodeGraph) -> Self {
        Self { rbac, nodes }
    }

    /// What the roles and bindings grant.
    pub(crate) fn rbac(&self) -> &RbacIndex {
        &self.rbac
    }

    /// What the nodes' pods refer to.
    pub(crate) fn nodes(&self) -> &NodeGraph {
        &self.nodes
    }

    /// Decides whether `user` may do `action`; `fields` are the terms of its field selector. A list
    /// or watch of one `metadata.name` has that name in its target too, as in Kubernetes.
    pub(crate) fn authorize(
        &self,
        user: &User,
        action: &Action,
        fields: &[FieldTerm<'_>],
    ) -> Decision {
        if is_master(user) {
            return Decision::Allow { reason: Reason::None };
        }
        let Some(node) = node::node_of(user) else {
            return self.rbac.authorize(user, action);
        };
        match self.nodes.node_may(node, action, fields) {
            Decision::Allow { reason } => Decision::Allow { reason },
            Decision::NoOpinion { reason } => self.rbac.authorize(user, action).or_because(reason),
        }
    }
}

fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS_GROUP)
}

/// One `field=value` of a field selector; other operators limit nothing that is judged here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldTerm<'a> {
    pub(crate) field: &'a str,
    pub(crate) value: &'a str,
}

impl<'a> FieldTerm<'a> {
    /// All of `selector` that counts.
    pub(crate) fn all_of(selector: &'a FieldSelector) -> Vec<Self> {
        let requirements = selector.requirements().iter();
        requirements
            .filter(|term| term.operator == FieldOperator::Equals)
            .map(|term| Self { field: &term.field, value: &term.value })
            .collect()
    }
}

/// The answer of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow {
        reason: Reason,
    },
    /// Nothing allows the action, which is a refusal once nobody else can be asked.
    NoOpinion {
        reason: Reason,
    },
}

impl Decision {
    /// Whether the action may happen.
    pub(crate) fn is_allowed(&self) -> bool {
        match self {
            Self::Allow { .. } => true,
            Self::NoOpinion { .. } => false,
        }
    }

    /// Why.
    pub(crate) fn reason(&self) -> &Reason {
        match self {
            Self::Allow { reason } | Self::NoOpinion { reason } => reason,
        }
    }

    /// This decision, told with the reason for which an earlier authorizer did not allow.
    fn or_because(self, earlier: Reason) -> Self {
        match self {
            Self::NoOpinion { reason } => Self::NoOpinion { reason: earlier.and(reason) },
            Self::Allow { .. } => self,
        }
    }
}

/// Why a decision was made, in upstream's words once it is printed; most never are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is nothing to say.
    #[default]
    None,
    /// A binding grants a role that allows it.
    Grant(Grant),
    Text(String),
}

impl Reason {
    /// Both reasons, each on its line.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, reason) | (reason, Self::None) => reason,
            (first, second) => Self::Text(format!("{first}\n{second}")),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Grant(grant) => write!(f, "RBAC: allowed by {grant}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests;
