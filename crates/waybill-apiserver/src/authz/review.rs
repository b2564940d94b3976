//! The four reviews of `authorization.k8s.io/v1`: a question in, the same with its answer out.
//!
//! Nothing is stored. Checks and texts are those of `pkg/registry/authorization` of Kubernetes.

mod selector;
mod spec;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use waybill_api::{
    field::ErrorList,
    status::{Status, Subject},
};

use self::spec::{AccessSpec, ReviewMetadata};
use super::{Authorizer, Decision, FieldTerm, node::node_of, rbac::Aggregate, rule::PolicyRule};
use crate::request::User;

const GROUP: &str = "authorization.k8s.io";

/// `SubjectAccessReview`: may someone do something?
pub(crate) fn subject_access_review(
    authorizer: &Authorizer,
    review: Value,
) -> Result<Value, ReviewError> {
    let kind = "SubjectAccessReview";
    let spec = view_spec(kind, &review)?;
    let mut errors = spec.check_attributes();
    errors.extend(spec.check_subject());
    errors.extend(ReviewMetadata::of(&review).check_empty());
    refuse(kind, errors)?;
    Ok(answer(authorizer, &spec.subject(), &spec, review))
}

/// `LocalSubjectAccessReview`: may someone do something in the `namespace` of the request?
pub(crate) fn local_subject_access_review(
    authorizer: &Authorizer,
    namespace: &str,
    review: Value,
) -> Result<Value, ReviewError> {
    let kind = "LocalSubjectAccessReview";
    let spec = view_spec(kind, &review)?;
    let metadata = ReviewMetadata::of(&review);
    let mut errors = spec.check_attributes();
    errors.extend(spec.check_subject());
    errors.extend(metadata.check_empty_but_namespace());
    errors.extend(spec.check_local(metadata.namespace()));
    refuse(kind, errors)?;
    if namespace != metadata.namespace() {
        return Err(ReviewError::OtherNamespace(namespace.to_owned()));
    }
    Ok(answer(authorizer, &spec.subject(), &spec, review))
}

/// `SelfSubjectAccessReview`: may I do something?
pub(crate) fn self_subject_access_review(
    authorizer: &Authorizer,
    user: &User,
    review: Value,
) -> Result<Value, ReviewError> {
    let kind = "SelfSubjectAccessReview";
    let spec = view_spec(kind, &review)?;
    let mut errors = spec.check_attributes();
    errors.extend(ReviewMetadata::of(&review).check_empty());
    refuse(kind, errors)?;
    Ok(answer(authorizer, user, &spec, review))
}

/// `SelfSubjectRulesReview`: what may I do in a namespace?
pub(crate) fn self_subject_rules_review(
    authorizer: &Authorizer,
    user: &User,
    review: &Value,
) -> Result<Value, ReviewError> {
    let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(ReviewError::NoNamespace);
    }
    let found = authorizer.rbac().rules_for(user, namespace);
    let is_node = node_of(user).is_some();
    let mut errors = Vec::new();
    if is_node {
        errors.push("node authorizer does not support user rule resolution".to_owned());
    }
    if !found.errors.is_empty() {
        errors.push(Aggregate(&found.errors).to_string());
    }
    let evaluation_error = match errors.as_slice() {
        [error] => error.clone(),
        [] => String::new(),
        errors => format!("[{}]", errors.join(", ")),
    };
    let status = RulesStatus {
        resource_rules: resource_rules(&found.rules),
        non_resource_rules: path_rules(&found.rules),
        incomplete: is_node,
        evaluation_error,
    };
    // Upstream answers without the question.
    Ok(json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}

/// `SubjectAccessReviewStatus`. No authorizer of ours denies what others may allow, so there is no
/// `denied`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessStatus {
    allowed: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

/// `SubjectRulesReviewStatus`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RulesStatus {
    resource_rules: Vec<PolicyRule>,
    non_resource_rules: Vec<PolicyRule>,
    incomplete: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

/// Why a review has no answer; the texts are upstream's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReviewError {
    /// The question makes no sense.
    #[error("{kind} is invalid")]
    Invalid { kind: &'static str, errors: ErrorList },
    /// Rules are in force somewhere.
    #[error("no namespace on request")]
    NoNamespace,
    /// A local review was sent to another namespace than its own.
    #[error("spec.resourceAttributes.namespace must match namespace: {0}")]
    OtherNamespace(String),
    /// The question cannot be read.
    #[error("{kind} in version \"v1\" cannot be handled as a {kind}")]
    Shape {
        kind: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

impl ReviewError {
    /// The answer to the client.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Invalid { kind, errors } => {
                Status::invalid(Subject { group: GROUP, kind, name: "" }, errors)
            }
            Self::Shape { source, .. } => Status::bad_request(format!("{self}: {source}")),
            Self::NoNamespace | Self::OtherNamespace(_) => Status::bad_request(self.to_string()),
        }
    }
}

/// Fills in the status of an access review that passed its checks.
fn answer(authorizer: &Authorizer, user: &User, spec: &AccessSpec, mut review: Value) -> Value {
    let (fields, parse_error) = spec.fields();
    let terms = FieldTerm::all_of(&fields);
    let decision = spec.action().map(|action| authorizer.authorize(user, &action, &terms));
    let status = AccessStatus {
        allowed: decision.as_ref().is_some_and(Decision::is_allowed),
        reason: decision.map(|decision| decision.reason().to_string()).unwrap_or_default(),
        evaluation_error: parse_error.unwrap_or_default(),
    };
    if let Some(fields) = review.as_object_mut() {
        fields.insert("status".to_owned(), json!(status));
    }
    review
}

fn resource_rules(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let of_resources = rules.iter().filter(|rule| !rule.resources.is_empty());
    of_resources.map(|rule| PolicyRule { non_resource_urls: Vec::new(), ..rule.clone() }).collect()
}

fn path_rules(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let of_paths = rules.iter().filter(|rule| !rule.non_resource_urls.is_empty());
    of_paths
        .map(|rule| PolicyRule {
            verbs: rule.verbs.clone(),
            non_resource_urls: rule.non_resource_urls.clone(),
            ..PolicyRule::default()
        })
        .collect()
}

/// Takes the view of the spec of `review`, which must be an object.
fn view_spec(kind: &'static str, review: &Value) -> Result<AccessSpec, ReviewError> {
    let shape = |source| ReviewError::Shape { kind, source };
    let review = Map::deserialize(review).map_err(shape)?;
    match review.get("spec") {
        None | Some(Value::Null) => Ok(AccessSpec::default()),
        Some(spec) => AccessSpec::deserialize(spec).map_err(shape),
    }
}

fn refuse(kind: &'static str, errors: ErrorList) -> Result<(), ReviewError> {
    if errors.is_empty() { Ok(()) } else { Err(ReviewError::Invalid { kind, errors }) }
}

#[cfg(test)]
mod tests;
