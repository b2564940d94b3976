//! The four reviews of `authorization.k8s.io/v1`: a question in, the same with its answer out.
//!
//! Nothing is stored. Checks and texts are those of `pkg/registry/authorization` of Kubernetes.

mod selector;
mod spec;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use waybill_api::{
    field::ErrorList,
    status::{Status, Subject},
};

use self::spec::{AccessSpec, ReviewMetadata};
use super::{Authorizer, node::node_of, rbac::Aggregate, rule::PolicyRule};
use crate::request::User;

const GROUP: &str = "authorization.k8s.io";

/// `SubjectAccessReview`: may someone do something?
pub(crate) fn subject_access_review(
    authorizer: &Authorizer,
    review: Value,
) -> Result<Value, Status> {
    let kind = "SubjectAccessReview";
    let spec: AccessSpec = view(kind, &review, "spec")?;
    let mut errors = spec.check_attributes();
    errors.extend(spec.check_subject());
    errors.extend(ReviewMetadata::of(&review).check_empty());
    refuse(kind, &errors)?;
    Ok(answer(authorizer, &spec.subject(), &spec, review))
}

/// `LocalSubjectAccessReview`: may someone do something in the `namespace` of the request?
pub(crate) fn local_subject_access_review(
    authorizer: &Authorizer,
    namespace: &str,
    review: Value,
) -> Result<Value, Status> {
    let kind = "LocalSubjectAccessReview";
    let spec: AccessSpec = view(kind, &review, "spec")?;
    let metadata = ReviewMetadata::of(&review);
    let mut errors = spec.check_attributes();
    errors.extend(spec.check_subject());
    errors.extend(metadata.check_empty_but_namespace());
    errors.extend(spec.check_local(metadata.namespace()));
    refuse(kind, &errors)?;
    if namespace != metadata.namespace() {
        return Err(Status::bad_request(format!(
            "spec.resourceAttributes.namespace must match namespace: {namespace}"
        )));
    }
    Ok(answer(authorizer, &spec.subject(), &spec, review))
}

/// `SelfSubjectAccessReview`: may I do something?
pub(crate) fn self_subject_access_review(
    authorizer: &Authorizer,
    user: &User,
    review: Value,
) -> Result<Value, Status> {
    let kind = "SelfSubjectAccessReview";
    let spec: AccessSpec = view(kind, &review, "spec")?;
    let mut errors = spec.check_attributes();
    errors.extend(ReviewMetadata::of(&review).check_empty());
    refuse(kind, &errors)?;
    Ok(answer(authorizer, user, &spec, review))
}

/// `SelfSubjectRulesReview`: what may I do in a namespace?
pub(crate) fn self_subject_rules_review(
    authorizer: &Authorizer,
    user: &User,
    review: &Value,
) -> Result<Value, Status> {
    let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
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
    let mut status = json!({
        "resourceRules": resource_rules(&found.rules),
        "nonResourceRules": path_rules(&found.rules),
        "incomplete": is_node,
    });
    match errors.as_slice() {
        [] => {}
        [error] => status["evaluationError"] = json!(error),
        errors => status["evaluationError"] = json!(format!("[{}]", errors.join(", "))),
    }
    // Upstream answers without the question.
    Ok(json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}

/// Fills in the status of an access review that passed its checks.
fn answer(authorizer: &Authorizer, user: &User, spec: &AccessSpec, mut review: Value) -> Value {
    let (terms, parse_error) = spec.field_terms();
    let mut status = json!({"allowed": false});
    if let Some(action) = spec.action() {
        let decision = authorizer.authorize(user, &action, &terms);
        status["allowed"] = json!(decision.is_allowed());
        let reason = decision.reason().to_string();
        if !reason.is_empty() {
            status["reason"] = json!(reason);
        }
    }
    if let Some(error) = parse_error {
        status["evaluationError"] = json!(error);
    }
    review["status"] = status;
    review
}

fn resource_rules(rules: &[PolicyRule]) -> Vec<Value> {
    let of_resources = rules.iter().filter(|rule| !rule.resources.is_empty());
    let shown =
        of_resources.map(|rule| PolicyRule { non_resource_urls: Vec::new(), ..rule.clone() });
    shown.map(|rule| json!(rule)).collect()
}

fn path_rules(rules: &[PolicyRule]) -> Vec<Value> {
    let of_paths = rules.iter().filter(|rule| !rule.non_resource_urls.is_empty());
    of_paths
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}))
        .collect()
}

/// Takes the view of one field of `review`, which must be an object.
fn view<T: DeserializeOwned>(kind: &str, review: &Value, field: &str) -> Result<T, Status> {
    let refused = |error: &dyn std::fmt::Display| {
        Status::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {error}"
        ))
    };
    if !review.is_object() {
        return Err(refused(&"it is no object"));
    }
    match review.get(field) {
        None | Some(Value::Null) => serde_json::from_value(json!({})),
        Some(value) => serde_json::from_value(value.clone()),
    }
    .map_err(|error| refused(&error))
}

fn refuse(kind: &str, errors: &ErrorList) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(Subject { group: GROUP, kind, name: "" }, errors))
}

#[cfg(test)]
mod tests;
