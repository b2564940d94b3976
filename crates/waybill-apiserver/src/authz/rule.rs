//! One rule of a role: which verbs on which resources or paths.
//!
//! Matching follows `pkg/apis/rbac/v1/evaluation_helpers.go` of Kubernetes and allocates nothing: it
//! runs for every request.

use serde::{Deserialize, Serialize};

use super::objects::or_default;
use crate::request::{Action, ResourceTarget, Target};

/// The word that stands for everything in every list of a rule except `resourceNames`.
pub(super) const ALL: &str = "*";

/// `PolicyRule` of `rbac.authorization.k8s.io/v1`; null reads as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PolicyRule {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) non_resource_urls: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) verbs: Vec<String>,
}

impl PolicyRule {
    /// A rule for `resources` of the API groups.
    pub(super) fn resources(api_groups: &[&str], resources: &[&str], verbs: &[&str]) -> Self {
        Self {
            api_groups: owned(api_groups),
            resources: owned(resources),
            verbs: owned(verbs),
            ..Self::default()
        }
    }

    /// A rule for paths that are no resources.
    pub(super) fn paths(paths: &[&str], verbs: &[&str]) -> Self {
        Self { non_resource_urls: owned(paths), verbs: owned(verbs), ..Self::default() }
    }

    /// This rule for the objects of these names only.
    pub(super) fn named(self, names: &[&str]) -> Self {
        Self { resource_names: owned(names), ..self }
    }

    /// Whether the rule allows `action`, wherever the rule is in force.
    pub(super) fn allows(&self, action: &Action) -> bool {
        has_or_all(&self.verbs, &action.verb)
            && match &action.target {
                Target::Path(path) => {
                    self.non_resource_urls.iter().any(|url| covers_path(url, path))
                }
                Target::Resource(target) => self.allows_resource(target),
            }
    }

    fn allows_resource(&self, target: &ResourceTarget) -> bool {
        has_or_all(&self.api_groups, &target.group)
            && self.resources.iter().any(|resource| names_resource(resource, target))
            && (self.resource_names.is_empty() || has(&self.resource_names, &target.name))
    }
}

/// Whether `list` holds `wanted` or the word for everything.
pub(super) fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == ALL || item == wanted)
}

/// Whether `list` holds `wanted`.
pub(super) fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted)
}

/// Whether `pattern` of a rule covers `path`, which may itself be a pattern. Any number of trailing
/// stars means the same as one.
pub(super) fn covers_path(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

/// Whether `pattern` is `*`, the resource, `resource/subresource`, or `*/subresource`. A plain
/// resource never stands for its subresources.
fn names_resource(pattern: &str, target: &ResourceTarget) -> bool {
    if pattern == ALL {
        return true;
    }
    match pattern.split_once('/') {
        None => target.subresource.is_empty() && pattern == target.resource,
        Some((resource, subresource)) => {
            !target.subresource.is_empty()
                && subresource == target.subresource
                && (resource == ALL || resource == target.resource)
        }
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::authz::fixtures::{on, path};

    #[track_caller]
    fn check(rule: serde_json::Value, action: &Action, allowed: bool) {
        let rule: PolicyRule = serde_json::from_value(rule).unwrap();
        assert_eq!(rule.allows(action), allowed, "{rule:?} {action:?}");
    }

    #[test]
    fn verbs_match_exactly_or_by_star() {
        let rule =
            |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs});
        for (verbs, verb, allowed) in [
            (&["get"] as &[&str], "get", true),
            (&["list", "get"], "get", true),
            (&["*"], "get", true),
            (&["*"], "use", true),
            (&["get"], "list", false),
            (&["ge*"], "get", false),
            (&["GET"], "get", false),
            (&[], "get", false),
        ] {
            check(rule(verbs), &on(verb, "pods"), allowed);
        }
    }

    #[test]
    fn groups_match_exactly_or_by_star() {
        let rule = |groups: &[&str]| json!({"apiGroups": groups, "resources": ["leases"], "verbs": ["get"]});
        let lease = on("get", "leases.coordination.k8s.io");
        for (groups, allowed) in [
            (&["coordination.k8s.io"] as &[&str], true),
            (&["", "coordination.k8s.io"], true),
            (&["*"], true),
            (&[""], false),
            (&["*.k8s.io"], false),
            (&[], false),
        ] {
            check(rule(groups), &lease, allowed);
        }
        check(rule(&[""]), &on("get", "leases"), true);
    }

    #[test]
    fn resources_and_subresources_are_apart() {
        let rule = |resources: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": ["create"]});
        for (resources, wanted, allowed) in [
            (&["pods"] as &[&str], "pods", true),
            (&["pods"], "pods/exec", false),
            (&["pods/exec"], "pods/exec", true),
            (&["pods/exec"], "pods", false),
            (&["pods/exec"], "pods/attach", false),
            (&["*/exec"], "pods/exec", true),
            (&["*/exec"], "pods", false),
            (&["*/exec"], "pods/attach", false),
            (&["*"], "pods", true),
            (&["*"], "pods/exec", true),
            (&["pods/*"], "pods/exec", false),
            (&["*/*"], "pods/exec", false),
            (&["pods/"], "pods", false),
            (&["secrets", "pods"], "pods", true),
            (&[], "pods", false),
        ] {
            check(rule(resources), &on("create", wanted), allowed);
        }
    }

    #[test]
    fn resource_names_limit_to_named_objects_and_know_no_star() {
        let rule = |names: &[&str]| {
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"],
                "resourceNames": names})
        };
        for (names, name, allowed) in [
            (&[] as &[&str], "web", true),
            (&[], "", true),
            (&["web"], "web", true),
            (&["db", "web"], "web", true),
            (&["web"], "db", false),
            // A list or a create names no object.
            (&["web"], "", false),
            (&["*"], "web", false),
        ] {
            check(rule(names), &on("get", &format!("pods:{name}")), allowed);
        }
    }

    #[test]
    fn paths_match_exactly_or_by_a_trailing_star() {
        let rule = |urls: &[&str]| json!({"nonResourceURLs": urls, "verbs": ["get"]});
        for (urls, wanted, allowed) in [
            (&["/metrics"] as &[&str], "/metrics", true),
            (&["/metrics"], "/metrics/slis", false),
            (&["/metrics/*"], "/metrics/slis", true),
            (&["/metrics/*"], "/metrics", false),
            (&["/healthz*"], "/healthz/etcd", true),
            (&["/healthz**"], "/healthz/etcd", true),
            (&["*"], "/anything", true),
            (&["/*/slis"], "/metrics/slis", false),
            (&[], "/metrics", false),
        ] {
            check(rule(urls), &path("get", wanted), allowed);
        }
        check(rule(&["*"]), &path("post", "/metrics"), false);
    }

    #[test]
    fn rules_for_paths_and_for_resources_do_not_mix() {
        let resources = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        check(resources, &path("get", "/metrics"), false);
        check(json!({"nonResourceURLs": ["*"], "verbs": ["*"]}), &on("get", "pods"), false);
    }

    #[test]
    fn null_reads_as_empty_and_the_json_form_is_upstreams() {
        let rule: PolicyRule = serde_json::from_value(json!({
            "apiGroups": null, "resources": null, "resourceNames": null,
            "nonResourceURLs": ["/x"], "verbs": ["get"], "other": 1,
        }))
        .unwrap();
        let shown = serde_json::to_value(&rule).unwrap();
        assert_eq!(shown, json!({"nonResourceURLs": ["/x"], "verbs": ["get"]}));
    }
}
