//! The names that a pod spec uses: of variables, and as prefixes.
//!
//! One visitor serves the choice of the rules on update and the command that lists names which the
//! strict rule refuses, so that neither can forget a kind of container.

use waybill_core::env::name::NameRules;

use super::{ContainerKind, PodEnvSpec};

/// One name in one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameUse<'a> {
    /// The kind of the container.
    pub kind: ContainerKind,
    /// The name of the container.
    pub container: &'a str,
    /// What the name is used for.
    pub role: NameRole,
    /// The name itself, never empty.
    pub name: &'a str,
}

/// What a name is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRole {
    /// `envFrom[].prefix`.
    Prefix,
    /// `env[].name`.
    Variable,
}

/// The names in `spec` that the strict rule refuses, over all kinds of containers (NAME-17, OP-27).
pub fn strict_name_findings(spec: &PodEnvSpec) -> impl Iterator<Item = NameUse<'_>> {
    name_uses(spec).filter(|found| !passes(NameRules::Strict, found.name))
}

/// The names that are legal under the relaxed rule only.
pub(super) fn relaxed_names(spec: &PodEnvSpec) -> impl Iterator<Item = &str> {
    strict_name_findings(spec)
        .map(|found| found.name)
        .filter(|name| passes(NameRules::Relaxed, name))
}

fn name_uses(spec: &PodEnvSpec) -> impl Iterator<Item = NameUse<'_>> {
    spec.all_containers().flat_map(|(kind, _, container)| {
        let variables = container.env.iter().map(|entry| (NameRole::Variable, &*entry.name));
        let prefixes = container.env_from.iter().map(|entry| (NameRole::Prefix, &*entry.prefix));
        variables
            .chain(prefixes)
            // No prefix is no name, and no variable lacks one.
            .filter(|(_, name)| !name.is_empty())
            .map(move |(role, name)| NameUse { kind, container: &container.name, role, name })
    })
}

fn passes(rules: NameRules, name: &str) -> bool {
    rules.fault(name.as_bytes()).is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// NAME-17
    #[test]
    fn every_kind_and_both_roles_are_searched_name_17_op_27() {
        let container = |name: &str| {
            json!([{
                "name": name,
                "env": [{"name": "FINE"}, {"name": "a:b"}, {"name": ""}],
                "envFrom": [{"prefix": "1-"}, {"prefix": "P_"}, {}],
            }])
        };
        let spec = PodEnvSpec::from_value(&json!({
            "containers": container("app"),
            "initContainers": container("init"),
            "ephemeralContainers": container("debug"),
        }))
        .unwrap();
        let found: Vec<_> = strict_name_findings(&spec)
            .map(|found| (found.kind, found.container, found.role, found.name))
            .collect();
        let expected: Vec<_> = [
            (ContainerKind::Regular, "app"),
            (ContainerKind::Init, "init"),
            (ContainerKind::Ephemeral, "debug"),
        ]
        .into_iter()
        .flat_map(|(kind, container)| {
            [
                (kind, container, NameRole::Variable, "a:b"),
                (kind, container, NameRole::Prefix, "1-"),
            ]
        })
        .collect();
        assert_eq!(found, expected);
    }

    /// The document's one-liner would list these; the strict rule allows them.
    #[test]
    fn dots_and_dashes_are_no_findings_op_27() {
        let spec = json!({"containers": [{"env": [{"name": "a.b"}, {"name": "a-b"}]}]});
        let spec = PodEnvSpec::from_value(&spec).unwrap();
        assert_eq!(strict_name_findings(&spec).count(), 0);
    }

    #[test]
    fn relaxed_names_are_those_between_the_two_rules() {
        let spec = json!({"containers": [{
            "env": [{"name": "A"}, {"name": "a:b"}, {"name": "a=b"}, {"name": "é"}],
            "envFrom": [{"prefix": ".."}],
        }]});
        let spec = PodEnvSpec::from_value(&spec).unwrap();
        assert_eq!(relaxed_names(&spec).collect::<Vec<_>>(), ["a:b", ".."]);
    }
}
