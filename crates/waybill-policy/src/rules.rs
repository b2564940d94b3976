//! Which requests a webhook, policy or binding is about: rules, then selectors.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::{
    request::{AdmissionRequest, Operation, Surroundings},
    selector::{LabelSelector, labels},
};

/// Operations on resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `*`.
    #[serde(default)]
    pub operations: Vec<String>,
    /// API groups, or `*`.
    #[serde(default)]
    pub api_groups: Vec<String>,
    /// Versions, or `*`.
    #[serde(default)]
    pub api_versions: Vec<String>,
    /// Resources: `pods`, `pods/exec`, `*` for all without subresources, `*/scale`; `pods/*` for pods and
    /// all of their subresources, `*/*` for everything.
    #[serde(default)]
    pub resources: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`.
    #[serde(default)]
    pub scope: Option<String>,
    /// Names of objects; of policies only.
    #[serde(default)]
    pub resource_names: Vec<String>,
}

impl Rule {
    /// Whether the request is one that the rule is about.
    pub fn matches(&self, request: &AdmissionRequest<'_>) -> bool {
        self.matches_scope(request)
            && self.may_match(request)
            && (self.resource_names.is_empty()
                || self.resource_names.iter().any(|name| name == request.name))
    }

    /// The same, whatever the object is called and wherever it is.
    pub(crate) fn may_match(&self, request: &AdmissionRequest<'_>) -> bool {
        names(&self.operations, request.operation.as_str())
            && names(&self.api_groups, request.resource.group)
            && names(&self.api_versions, request.resource.version)
            && self.matches_resource(request)
    }

    fn matches_scope(&self, request: &AdmissionRequest<'_>) -> bool {
        // A namespace is in itself, yet it is no part of a namespace.
        let clustered = request.namespace.is_empty() || request.is_namespace();
        match self.scope.as_deref() {
            Some("Namespaced") => !clustered,
            Some("Cluster") => clustered,
            _ => true,
        }
    }

    fn matches_resource(&self, request: &AdmissionRequest<'_>) -> bool {
        self.resources.iter().any(|pattern| {
            let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
            (resource == "*" || resource == request.resource.resource)
                && (subresource == "*" || subresource == request.subresource)
        })
    }
}

fn names(list: &[String], item: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == item)
}

/// Rules and selectors of a policy or binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MatchResources {
    /// On labels of the namespace.
    #[serde(default)]
    pub namespace_selector: Option<LabelSelector>,
    /// On labels of the object, old or new.
    #[serde(default)]
    pub object_selector: Option<LabelSelector>,
    /// What it is about; without any, everything.
    #[serde(default)]
    pub resource_rules: Vec<Rule>,
    /// What it is not about after all.
    #[serde(default)]
    pub exclude_resource_rules: Vec<Rule>,
    /// `Exact` or `Equivalent`.
    #[serde(default)]
    pub match_policy: Option<String>,
}

impl MatchResources {
    /// Whether such a request may be one of these, whatever its objects are.
    pub(crate) fn may_match(&self, request: &AdmissionRequest<'_>) -> bool {
        self.resource_rules.is_empty()
            || self.resource_rules.iter().any(|rule| rule.may_match(request))
    }

    /// Whether the request is one of these.
    pub fn matches(
        &self,
        request: &AdmissionRequest<'_>,
        surroundings: &dyn Surroundings,
    ) -> Result<bool, MatchError> {
        let among = |rules: &[Rule]| rules.iter().any(|rule| rule.matches(request));
        if among(&self.exclude_resource_rules)
            || !(self.resource_rules.is_empty() || among(&self.resource_rules))
        {
            return Ok(false);
        }
        Ok(matches_object(self.object_selector.as_ref(), request)
            && matches_namespace(self.namespace_selector.as_ref(), request, surroundings)?)
    }
}

/// Why it cannot be said whether a request matches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatchError {
    /// The namespace that a selector is about does not exist.
    #[error("namespaces {0:?} not found")]
    NoNamespace(String),
}

/// Whether the labels of the request's namespace fit.
pub(crate) fn matches_namespace(
    selector: Option<&LabelSelector>,
    request: &AdmissionRequest<'_>,
    surroundings: &dyn Surroundings,
) -> Result<bool, MatchError> {
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return Ok(true) };
    // What is in no namespace is never exempted by a namespace's labels.
    if request.namespace.is_empty() && !request.is_namespace() {
        return Ok(true);
    }
    let written = matches!(request.operation, Operation::Create | Operation::Update);
    if request.is_namespace() && request.subresource.is_empty() && written {
        return Ok(selector.matches(request.object.map_or(&Json::Null, labels)));
    }
    match surroundings.namespace(request.namespace) {
        Some(namespace) => Ok(selector.matches(labels(&namespace))),
        None => Err(MatchError::NoNamespace(request.namespace.to_owned())),
    }
}

/// Whether the labels of the object fit, as it is or as it is to be.
pub(crate) fn matches_object(
    selector: Option<&LabelSelector>,
    request: &AdmissionRequest<'_>,
) -> bool {
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return true };
    // Options of a connection are no object, and have no labels.
    let objects = [request.object, request.old_object];
    objects
        .iter()
        .flatten()
        .any(|object| object.get("metadata").is_some() && selector.matches(labels(object)))
}

#[cfg(test)]
mod tests;
