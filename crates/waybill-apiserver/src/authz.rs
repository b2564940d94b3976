//! Who may do what: members of `system:masters` everything, nodes what their pods need, all others
//! what roles and bindings grant.
//!
//! Nothing here knows HTTP or the store. The indexes are fed with changes by whoever watches the
//! store, and must be fed before watchers are told, so that nobody is refused what they were just
//! shown. Authorization only ever adds: no part can forbid what another allows.

mod bindings;
mod cluster_roles;
pub(crate) mod forbidden;
mod labels;
mod objects;
mod policy;
mod rbac;
mod rule;

#[cfg(test)]
mod fixtures;

use std::fmt;

use self::bindings::Grant;
pub(crate) use self::{
    objects::RbacViewError,
    policy::RoleRefError,
    rbac::{RbacIndex, UserRules},
    rule::PolicyRule,
};

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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Grant(grant) => write!(f, "RBAC: allowed by {grant}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
