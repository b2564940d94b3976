//! `audit.k8s.io/v1` `Policy`: how much of which request is recorded.

mod parse;

use crate::{
    audit::event::{Level, Stage},
    request::{Action, ResourceTarget, Target, User},
};

pub(crate) use self::parse::PolicyError;

/// The rules; the first that matches decides, and a request that none matches is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    rules: Vec<Rule>,
}

impl Policy {
    /// Parses a policy file, YAML or JSON.
    pub(crate) fn parse(file: &str) -> Result<Self, PolicyError> {
        parse::parse(file)
    }

    /// The policy of a server that was given none.
    pub(crate) fn built_in() -> Self {
        Self::parse(include_str!("default-policy.yaml")).expect("a test parses this file")
    }

    /// What is recorded when `user` does `action`.
    pub(crate) fn decide(&self, user: &User, action: &Action) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(user, action));
        let mut decision = rule.map_or(Decision::NOTHING, |rule| rule.decision);
        // A policy file cannot ask for these, by mistake or otherwise: the log would be a list of
        // credentials.
        if holds_credentials(&action.target) {
            decision.level = decision.level.min(Level::Metadata);
        }
        decision
    }
}

/// What a policy says about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) level: Level,
    pub(crate) omit_managed_fields: bool,
    omitted: Stages,
}

impl Decision {
    const NOTHING: Self =
        Self { level: Level::None, omit_managed_fields: false, omitted: Stages(0) };

    /// Whether there is to be an event for `stage`.
    pub(crate) fn records(&self, stage: Stage) -> bool {
        self.level > Level::None && !self.omitted.contains(stage)
    }

    /// Records `stage`, even if the policy leaves it out.
    pub(crate) fn require(&mut self, stage: Stage) {
        self.omitted.remove(stage);
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stages(u8);

impl Stages {
    fn insert(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }

    fn remove(&mut self, stage: Stage) {
        self.0 &= !(1 << stage as u8);
    }

    fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }
}

/// One rule. An empty list of users, groups or verbs stands for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    scope: Scope,
    decision: Decision,
}

/// Which targets a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    Everything,
    /// Of both lists an empty one stands for all, but not both are empty.
    Resources {
        resources: Vec<GroupResources>,
        namespaces: Vec<String>,
    },
    Paths(Vec<String>),
}

/// Resources of one API group, perhaps only some objects of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl Rule {
    fn matches(&self, user: &User, action: &Action) -> bool {
        let any = |list: &[String], found: &String| list.is_empty() || list.contains(found);
        any(&self.users, &user.name)
            && (self.user_groups.is_empty()
                || user.groups.iter().any(|group| self.user_groups.contains(group)))
            && any(&self.verbs, &action.verb)
            && self.scope.matches(&action.target)
    }
}

impl Scope {
    fn matches(&self, target: &Target) -> bool {
        match (self, target) {
            (Self::Everything, _) => true,
            (Self::Paths(patterns), Target::Path(path)) => {
                patterns.iter().any(|pattern| path_matches(pattern, path))
            }
            (Self::Resources { resources, namespaces }, Target::Resource(target)) => {
                (namespaces.is_empty() || namespaces.contains(&target.namespace))
                    && (resources.is_empty() || resources.iter().any(|some| some.matches(target)))
            }
            (Self::Paths(_), Target::Resource(_)) | (Self::Resources { .. }, Target::Path(_)) => {
                false
            }
        }
    }
}

impl GroupResources {
    fn matches(&self, target: &ResourceTarget) -> bool {
        self.group == target.group
            && (self.names.is_empty() || self.names.contains(&target.name))
            && (self.resources.is_empty()
                || self.resources.iter().any(|pattern| resource_matches(pattern, target)))
    }
}

/// `*` is everything, `pods` and `pods/log` are themselves, `*/status` is that subresource of every
/// resource. `pods/*` is every subresource and, as upstream's code but not its documentation has
/// it, the resource too.
fn resource_matches(pattern: &str, target: &ResourceTarget) -> bool {
    match pattern.split_once('/') {
        None => pattern == "*" || (pattern == target.resource && target.subresource.is_empty()),
        Some((resource, "*")) => resource == target.resource,
        Some(("*", subresource)) => subresource == target.subresource,
        Some((resource, subresource)) => {
            resource == target.resource && subresource == target.subresource
        }
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == pattern,
    }
}

/// Whether the bodies of such requests are credentials by themselves.
fn holds_credentials(target: &Target) -> bool {
    let Target::Resource(target) = target else {
        return false;
    };
    matches!(
        (target.group.as_str(), target.resource.as_str(), target.subresource.as_str()),
        ("", "secrets", _)
            | ("", "serviceaccounts", "token")
            | ("authentication.k8s.io", "tokenreviews", _)
    )
}

#[cfg(test)]
mod tests;
