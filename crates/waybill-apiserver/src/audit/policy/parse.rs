//! Policy files: the form on disk, and every fault in it with its path.
//!
//! JSON is YAML, so one parser reads both. A field that is not known is an error: a misspelt rule
//! would silently match everything.

use std::fmt;

use serde::{Deserialize, de::IgnoredAny};
use waybill_api::field::{ErrorList, FieldError, FieldPath};

use super::{Decision, GroupResources, Policy, Rule, Scope, Stages};
use crate::audit::event::{Level, Stage};

/// Why a file is not a policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// It is no YAML, or a field has the wrong type or an unknown name.
    #[error("cannot read the audit policy")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// It is of another kind or version.
    #[error("found {kind:?} of {api_version:?}, not a Policy of audit.k8s.io/v1")]
    Kind { kind: String, api_version: String },
    /// Some fields break a rule.
    #[error("the audit policy is invalid: {}", List(.0))]
    Fields(ErrorList),
}

/// Shows errors one after another.
struct List<'a>(&'a ErrorList);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyFile {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: IgnoredAny,
    #[serde(default)]
    rules: Vec<RuleFile>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    level: String,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResourcesFile>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResourcesFile {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

pub(super) fn parse(file: &str) -> Result<Policy, PolicyError> {
    let file: PolicyFile =
        serde_saphyr::from_str(file).map_err(|error| PolicyError::Syntax(Box::new(error)))?;
    if file.kind != "Policy" || file.api_version != "audit.k8s.io/v1" {
        return Err(PolicyError::Kind { kind: file.kind, api_version: file.api_version });
    }
    let mut errors = ErrorList::new();
    let path = FieldPath::new("rules");
    if file.rules.is_empty() {
        errors.push(FieldError::required(path.clone(), "a policy without rules records nothing"));
    }
    let top = Decision {
        level: Level::None,
        omit_managed_fields: file.omit_managed_fields,
        omitted: stages(&file.omit_stages, &FieldPath::new("omitStages"), &mut errors),
    };
    let rules = file
        .rules
        .into_iter()
        .enumerate()
        .map(|(position, rule)| rule.check(top, &path.index(position), &mut errors))
        .collect();
    if errors.is_empty() { Ok(Policy { rules }) } else { Err(PolicyError::Fields(errors)) }
}

impl RuleFile {
    /// The rule under the settings `top` of the whole policy; of no use if there are new errors.
    fn check(self, top: Decision, path: &FieldPath, errors: &mut ErrorList) -> Rule {
        let own = stages(&self.omit_stages, &path.child("omitStages"), errors);
        let decision = Decision {
            level: level(&self.level, &path.child("level"), errors),
            omit_managed_fields: self.omit_managed_fields.unwrap_or(top.omit_managed_fields),
            omitted: Stages(top.omitted.0 | own.0),
        };
        let of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        let scope = if self.non_resource_urls.is_empty() {
            let list = &path.child("resources");
            let resources = self.resources.into_iter().enumerate();
            let resources = resources.map(|(at, some)| some.check(&list.index(at), errors));
            let resources = resources.collect();
            match of_resources {
                true => Scope::Resources { resources, namespaces: self.namespaces },
                false => Scope::Everything,
            }
        } else {
            let path = path.child("nonResourceURLs");
            if of_resources {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::forbidden(path.clone(), detail));
            }
            check_urls(&self.non_resource_urls, &path, errors);
            Scope::Paths(self.non_resource_urls)
        };
        Rule {
            users: self.users,
            user_groups: self.user_groups,
            verbs: self.verbs,
            scope,
            decision,
        }
    }
}

impl GroupResourcesFile {
    fn check(self, path: &FieldPath, errors: &mut ErrorList) -> GroupResources {
        if self.group.contains('/') {
            let detail = "group must not include a version";
            errors.push(FieldError::invalid(path.child("group"), &self.group, detail));
        }
        if self.resources.is_empty() && !self.resource_names.is_empty() {
            let detail = "using resourceNames requires at least one resource";
            errors.push(FieldError::required(path.child("resources"), detail));
        }
        GroupResources { group: self.group, resources: self.resources, names: self.resource_names }
    }
}

fn check_urls(urls: &[String], path: &FieldPath, errors: &mut ErrorList) {
    for (position, url) in urls.iter().enumerate() {
        let detail = match url.trim_end_matches('*') {
            _ if url == "*" => continue,
            _ if !url.starts_with('/') => "non-resource URLs must begin with a '/' character",
            stem if stem.contains('*') || url.len() > stem.len() + 1 => {
                "non-resource URLs wildcards '*' must be the final character of the rule"
            }
            _ => continue,
        };
        errors.push(FieldError::invalid(path.index(position), url, detail));
    }
}

fn level(text: &str, path: &FieldPath, errors: &mut ErrorList) -> Level {
    match text {
        "None" => return Level::None,
        "Metadata" => return Level::Metadata,
        "Request" => return Level::Request,
        "RequestResponse" => return Level::RequestResponse,
        "" => errors.push(FieldError::required(path.clone(), "")),
        _ => {
            let supported = ["Metadata", "None", "Request", "RequestResponse"];
            errors.push(FieldError::not_supported(path.clone(), text, &supported));
        }
    }
    Level::None
}

fn stages(texts: &[String], path: &FieldPath, errors: &mut ErrorList) -> Stages {
    let mut stages = Stages::default();
    for (position, text) in texts.iter().enumerate() {
        match text.as_str() {
            "RequestReceived" => stages.insert(Stage::RequestReceived),
            "ResponseStarted" => stages.insert(Stage::ResponseStarted),
            "ResponseComplete" => stages.insert(Stage::ResponseComplete),
            "Panic" => stages.insert(Stage::Panic),
            _ => {
                let supported = ["Panic", "RequestReceived", "ResponseComplete", "ResponseStarted"];
                errors.push(FieldError::not_supported(path.index(position), text, &supported));
            }
        }
    }
    stages
}

#[cfg(test)]
mod tests {
    use waybill_core::chain::Chain;

    use super::*;

    #[track_caller]
    fn check(body: &str, expected: &[&str]) {
        let file = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{body}");
        let errors = match Policy::parse(&file) {
            Ok(_) => Vec::new(),
            Err(PolicyError::Fields(errors)) => errors,
            Err(other) => panic!("{}", Chain(&other)),
        };
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{body}");
    }

    #[test]
    fn sound_rules_are_taken() {
        check("rules: [{level: Metadata}]", &[]);
        check("rules: [{level: None, nonResourceURLs: ['*', '/healthz*', '/version']}]", &[]);
        check("metadata: {name: x}\nrules: [{level: Request, namespaces: ['']}]", &[]);
    }

    #[test]
    fn faults_are_found_with_their_paths() {
        check("rules: []", &["rules: Required value: a policy without rules records nothing"]);
        check(
            "omitStages: [Started]\nrules: [{}, {level: All, omitStages: [x]}]",
            &[
                "omitStages[0]: Unsupported value: \"Started\": supported values: \"Panic\", \
                 \"RequestReceived\", \"ResponseComplete\", \"ResponseStarted\"",
                "rules[0].level: Required value",
                "rules[1].omitStages[0]: Unsupported value: \"x\": supported values: \"Panic\", \
                 \"RequestReceived\", \"ResponseComplete\", \"ResponseStarted\"",
                "rules[1].level: Unsupported value: \"All\": supported values: \"Metadata\", \
                 \"None\", \"Request\", \"RequestResponse\"",
            ],
        );
        check(
            "rules: [{level: None, namespaces: [a], nonResourceURLs: [a, /a*b, /a**]}]",
            &[
                "rules[0].nonResourceURLs: Forbidden: rules cannot apply to both regular resources \
                 and non-resource URLs",
                "rules[0].nonResourceURLs[0]: Invalid value: \"a\": non-resource URLs must begin \
                 with a '/' character",
                "rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URLs wildcards \
                 '*' must be the final character of the rule",
                "rules[0].nonResourceURLs[2]: Invalid value: \"/a**\": non-resource URLs wildcards \
                 '*' must be the final character of the rule",
            ],
        );
        check(
            "rules: [{level: None, resources: [{group: apps/v1, resourceNames: [a]}]}]",
            &[
                "rules[0].resources[0].group: Invalid value: \"apps/v1\": group must not include a \
                 version",
                "rules[0].resources[0].resources: Required value: using resourceNames requires at \
                 least one resource",
            ],
        );
    }

    #[test]
    fn json_is_read_as_well() {
        let json =
            r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}"#;
        assert!(Policy::parse(json).is_ok());
    }

    #[test]
    fn other_kinds_and_misspelt_fields_are_refused() {
        let refusal = |file: &str| Policy::parse(file).unwrap_err();
        assert!(matches!(refusal("apiVersion: v1\nkind: Policy"), PolicyError::Kind { .. }));
        for bad in ["", "rules", "{", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrule: []"] {
            assert!(matches!(refusal(bad), PolicyError::Syntax(_)), "{bad:?}");
        }
        let misspelt =
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, user: [a]}]";
        let text = Chain(&refusal(misspelt)).to_string();
        assert!(text.contains("user"), "{text}");
    }
}
