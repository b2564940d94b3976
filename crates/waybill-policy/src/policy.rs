//! ValidatingAdmissionPolicies and their bindings.
//!
//! A policy says what must be true of requests; a binding says where it applies, with which
//! parameters, and what follows. Without a binding a policy does nothing.

mod compile;
mod judge;
mod type_check;

use std::sync::Arc;

use serde_json::Value as Json;
use waybill_api::field::ErrorList;

pub(crate) use compile::{Compiled, compile, compile_conditions};
pub use judge::{Denial, PolicyOutcome, judge};
pub use type_check::{CheckedKind, ExpressionWarning, check_types};

use crate::{
    cel::Expression,
    conditions::MatchConditions,
    config::{BindingSpec, FailurePolicy, ParamKind, ParamRef, PolicySpec, read},
    request::AdmissionRequest,
    rules::MatchResources,
};

/// A policy, ready to judge.
#[derive(Debug)]
pub struct Policy {
    name: String,
    failure_policy: FailurePolicy,
    matches: MatchResources,
    param_kind: Option<ParamKind>,
    compiled: Compiled,
    /// Why it cannot judge; it then counts as one that always fails.
    broken: Option<String>,
}

impl Policy {
    /// Reads a stored policy. One that cannot be compiled, such as one that another version of the
    /// server has let in, fails for every request that it is about.
    pub fn load(document: &Json) -> Result<Self, serde_json::Error> {
        let spec: PolicySpec = read(document, "/spec")?;
        let mut errors = ErrorList::new();
        let compiled = compile(&spec, &mut errors);
        Ok(Self {
            name: name(document),
            failure_policy: FailurePolicy::read(spec.failure_policy.as_deref()),
            matches: spec.match_constraints.unwrap_or_default(),
            param_kind: spec.param_kind,
            compiled,
            broken: errors.first().map(ToString::to_string),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it may be about such a request, whatever its objects, its name and its namespace are.
    pub fn may_match(&self, request: &AdmissionRequest<'_>) -> bool {
        self.matches.may_match(request)
    }

    /// Whether it is about no other form of the same objects than those that its rules name.
    pub fn is_exact(&self) -> bool {
        self.matches.match_policy.as_deref() == Some("Exact")
    }

    /// Why it cannot judge, if it cannot.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}

/// A binding of a policy.
#[derive(Debug)]
pub struct Binding {
    name: String,
    policy: String,
    matches: Option<MatchResources>,
    param_ref: Option<ParamRef>,
    actions: Vec<Action>,
}

impl Binding {
    /// Reads a stored binding.
    pub fn load(document: &Json) -> Result<Self, serde_json::Error> {
        let spec: BindingSpec = read(document, "/spec")?;
        Ok(Self {
            name: name(document),
            policy: spec.policy_name,
            matches: spec.match_resources,
            param_ref: spec.param_ref,
            actions: spec.validation_actions.iter().map(|action| Action::read(action)).collect(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the policy that it binds.
    pub fn policy(&self) -> &str {
        &self.policy
    }
}

/// What follows when something is not true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    fn read(text: &str) -> Self {
        match text {
            "Warn" => Self::Warn,
            "Audit" => Self::Audit,
            // Whatever is not known refuses.
            _ => Self::Deny,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// A policy with its bindings.
#[derive(Clone, Debug)]
pub struct ActivePolicy {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its bindings, by name.
    pub bindings: Vec<Arc<Binding>>,
}

/// One validation, compiled.
#[derive(Debug)]
pub(crate) struct CompiledValidation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: DenialReason,
}

/// The reason of an answer that refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenialReason {
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 422.
    #[default]
    Invalid,
    /// 413.
    RequestEntityTooLarge,
}

impl DenialReason {
    fn read(text: Option<&str>) -> Self {
        match text {
            Some("Unauthorized") => Self::Unauthorized,
            Some("Forbidden") => Self::Forbidden,
            Some("RequestEntityTooLarge") => Self::RequestEntityTooLarge,
            _ => Self::Invalid,
        }
    }

    /// As a status has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
        }
    }

    /// The HTTP code that goes with it.
    pub fn code(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::Invalid => 422,
            Self::RequestEntityTooLarge => 413,
        }
    }
}

fn name(document: &Json) -> String {
    document.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
