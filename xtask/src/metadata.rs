//! What cargo says about the packages of the workspace.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{process, repository::Repository};

/// A package of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) has_benches: bool,
    pub(crate) has_features: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency as declared, on a crate of ours or of others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: DependencyKind,
}

/// The table that declares a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    Build,
    Dev,
    Normal,
}

/// Asks cargo for the packages of the workspace.
pub(crate) fn packages(repository: &Repository) -> Result<Vec<Package>> {
    parse(&ask(repository)?).context("cannot read `cargo metadata`")
}

/// Asks cargo where it puts what it builds.
pub(crate) fn target_directory(repository: &Repository) -> Result<PathBuf> {
    let metadata: Value = serde_json::from_str(&ask(repository)?)?;
    text(&metadata, "target_directory").map(PathBuf::from)
}

fn ask(repository: &Repository) -> Result<String> {
    let args = ["metadata", "--no-deps", "--format-version", "1"];
    process::output(&mut repository.cargo(&args))
}

fn parse(json: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(json)?;
    list(&metadata, "packages")?.iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package> {
    let is_bench = |target: &Value| {
        list(target, "kind").is_ok_and(|kinds| kinds.iter().any(|kind| kind == "bench"))
    };
    Ok(Package {
        name: text(value, "name")?,
        has_benches: list(value, "targets")?.iter().any(is_bench),
        has_features: value["features"].as_object().is_some_and(|features| !features.is_empty()),
        dependencies: list(value, "dependencies")?.iter().map(dependency).collect::<Result<_>>()?,
    })
}

fn dependency(value: &Value) -> Result<Dependency> {
    let kind = match value["kind"].as_str() {
        None => DependencyKind::Normal,
        Some("build") => DependencyKind::Build,
        Some("dev") => DependencyKind::Dev,
        Some(other) => bail!("unknown kind of dependency `{other}`"),
    };
    Ok(Dependency { name: text(value, "name")?, kind })
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("`{key}` is not a list"))
}

fn text(value: &Value, key: &str) -> Result<String> {
    value[key].as_str().map(str::to_owned).with_context(|| format!("`{key}` is not a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_the_json_of_cargo() {
        let json = r#"{"packages": [{
            "name": "a",
            "features": {},
            "targets": [{"kind": ["lib"]}, {"kind": ["bench"]}],
            "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]
        }]}"#;
        let dependency = |name: &str, kind| Dependency { name: name.into(), kind };
        let expected = Package {
            name: "a".into(),
            has_benches: true,
            has_features: false,
            dependencies: vec![
                dependency("b", DependencyKind::Normal),
                dependency("c", DependencyKind::Dev),
            ],
        };
        assert_eq!(parse(json).unwrap(), [expected]);
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = parse(r#"{"packages": [{}]}"#).unwrap_err();
        assert_eq!(error.to_string(), "`name` is not a text");
    }
}
