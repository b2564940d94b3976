//! The objects of `admissionregistration.k8s.io/v1` as they are written.
//!
//! Fields are read leniently: the schema has judged their types, [`crate::validation`] judges the rest.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::{
    rules::{MatchResources, Rule},
    selector::LabelSelector,
};

/// `spec` of a ValidatingAdmissionPolicy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// The kind of its parameters.
    #[serde(default)]
    pub param_kind: Option<ParamKind>,
    /// What it is about.
    #[serde(default)]
    pub match_constraints: Option<MatchResources>,
    /// What must be true.
    #[serde(default)]
    pub validations: Vec<Validation>,
    /// `Fail` or `Ignore`.
    #[serde(default)]
    pub failure_policy: Option<String>,
    /// What is written to the audit log.
    #[serde(default)]
    pub audit_annotations: Vec<AuditAnnotation>,
    /// Under which conditions it is evaluated.
    #[serde(default)]
    pub match_conditions: Vec<MatchCondition>,
    /// Expressions that others use.
    #[serde(default)]
    pub variables: Vec<Variable>,
}

/// The kind of parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParamKind {
    /// Group and version.
    #[serde(default)]
    pub api_version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
}

/// One thing that must be true.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// The expression.
    #[serde(default)]
    pub expression: String,
    /// What is said when it is false.
    #[serde(default)]
    pub message: String,
    /// The reason of the answer.
    #[serde(default)]
    pub reason: Option<String>,
    /// An expression for what is said.
    #[serde(default)]
    pub message_expression: String,
}

/// An annotation of the audit event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditAnnotation {
    /// Its key, after the name of the policy.
    #[serde(default)]
    pub key: String,
    /// The expression for its value.
    #[serde(default)]
    pub value_expression: String,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MatchCondition {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The expression.
    #[serde(default)]
    pub expression: String,
}

/// A variable.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Variable {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The expression.
    #[serde(default)]
    pub expression: String,
}

/// `spec` of a ValidatingAdmissionPolicyBinding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingSpec {
    /// The policy.
    #[serde(default)]
    pub policy_name: String,
    /// Its parameters.
    #[serde(default)]
    pub param_ref: Option<ParamRef>,
    /// To what it is bound.
    #[serde(default)]
    pub match_resources: Option<MatchResources>,
    /// What follows when a validation is false: `Deny`, `Warn`, `Audit`.
    #[serde(default)]
    pub validation_actions: Vec<String>,
}

/// Which objects are the parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParamRef {
    /// The one of this name.
    #[serde(default)]
    pub name: String,
    /// In this namespace; that of the request if it is empty.
    #[serde(default)]
    pub namespace: String,
    /// All with such labels.
    #[serde(default)]
    pub selector: Option<LabelSelector>,
    /// `Allow` or `Deny`.
    #[serde(default)]
    pub parameter_not_found_action: Option<String>,
}

/// A webhook of either kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookSpec {
    /// Its name, fully qualified.
    #[serde(default)]
    pub name: String,
    /// Where it is.
    #[serde(default)]
    pub client_config: ClientConfig,
    /// What it is about.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// `Fail` or `Ignore`.
    #[serde(default)]
    pub failure_policy: Option<String>,
    /// `Exact` or `Equivalent`.
    #[serde(default)]
    pub match_policy: Option<String>,
    /// On labels of the namespace.
    #[serde(default)]
    pub namespace_selector: Option<LabelSelector>,
    /// On labels of the object.
    #[serde(default)]
    pub object_selector: Option<LabelSelector>,
    /// `None` or `NoneOnDryRun`.
    #[serde(default)]
    pub side_effects: Option<String>,
    /// How long it may take.
    #[serde(default)]
    pub timeout_seconds: Option<i64>,
    /// The versions of reviews that it reads.
    #[serde(default)]
    pub admission_review_versions: Vec<String>,
    /// `Never` or `IfNeeded`; of mutating webhooks only.
    #[serde(default)]
    pub reinvocation_policy: Option<String>,
    /// Under which conditions it is called.
    #[serde(default)]
    pub match_conditions: Vec<MatchCondition>,
}

/// Where a webhook is: a URL or a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// The URL.
    #[serde(default)]
    pub url: Option<String>,
    /// The service.
    #[serde(default)]
    pub service: Option<ServiceReference>,
    /// The authorities that its certificate may come from, in PEM and base64.
    #[serde(default)]
    pub ca_bundle: Option<String>,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ServiceReference {
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The path that is asked for.
    #[serde(default)]
    pub path: Option<String>,
    /// The port of the service.
    #[serde(default)]
    pub port: Option<i64>,
}

/// Reads the part of an object at `pointer`; a missing one is as if it were empty.
pub(crate) fn read<T: Default + for<'d> Deserialize<'d>>(
    document: &Json,
    pointer: &str,
) -> Result<T, serde_json::Error> {
    document.pointer(pointer).map_or_else(|| Ok(T::default()), T::deserialize)
}

/// What follows when something cannot be evaluated or reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// It is as if there were no such policy or webhook.
    Ignore,
}

impl FailurePolicy {
    pub(crate) fn read(text: Option<&str>) -> Self {
        match text {
            Some("Ignore") => Self::Ignore,
            // Whatever is not known refuses.
            _ => Self::Fail,
        }
    }
}
