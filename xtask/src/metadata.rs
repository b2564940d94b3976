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

/// The program of a test of `package`, out of what cargo says with `--message-format=json`.
pub(crate) fn test_program(messages: &str, package: &str, test: &str) -> Result<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_package = format!("/{package}#");
    let is_it = |message: &Value| {
        let target = &message["target"];
        message["package_id"].as_str().is_some_and(|id| id.contains(&of_package))
            && target["name"] == test
            && target["kind"] == serde_json::json!(["test"])
    };
    let found = messages.into_iter().find(is_it);
    let found = found.with_context(|| format!("{package} has no test `{test}`"))?;
    text(&found, "executable").map(PathBuf::from)
}

/// The version of a crate of others that the lock file beside a manifest names, and the folder with its source. Of
/// several the last.
pub(crate) fn source_of(
    repository: &Repository,
    manifest: &str,
    name: &str,
) -> Result<(String, PathBuf)> {
    // Of one platform alone: those of others may not be on this machine.
    let platform = "--filter-platform=x86_64-unknown-linux-gnu";
    let manifest = ["--manifest-path", manifest];
    let args =
        [&["metadata", "--locked", platform, "--format-version", "1"], &manifest[..]].concat();
    let metadata: Value = serde_json::from_str(&process::output(&mut repository.cargo(&args))?)?;
    newest(&metadata, name)
}

fn newest(metadata: &Value, name: &str) -> Result<(String, PathBuf)> {
    let order = |version: &str| -> Vec<u64> {
        version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
    };
    let found = list(metadata, "packages")?
        .iter()
        .filter(|package| package["name"] == name)
        .max_by_key(|package| order(package["version"].as_str().unwrap_or_default()))
        .with_context(|| format!("no crate `{name}` is in the lock file"))?;
    let manifest = PathBuf::from(text(found, "manifest_path")?);
    let folder = manifest.parent().context("the manifest has no folder")?;
    Ok((text(found, "version")?, folder.to_owned()))
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
    fn the_program_of_a_test_is_found_by_package_and_name() {
        let message = |package: &str, kind: &str, name: &str| {
            let id = format!("path+file:///work/crates/{package}#0.1.0");
            let target = serde_json::json!({"kind": [kind], "name": name});
            let executable = format!("/target/{package}-{kind}-{name}");
            let reason = "compiler-artifact";
            serde_json::json!({
                "reason": reason, "package_id": id, "target": target, "executable": executable,
            })
            .to_string()
        };
        let messages = [
            message("a", "test", "it"),
            message("b", "lib", "it"),
            message("b", "test", "it"),
            "Compiling something".to_owned(),
        ];
        let found = test_program(&messages.join("\n"), "b", "it").unwrap();
        assert_eq!(found, PathBuf::from("/target/b-test-it"));
        assert!(test_program(&messages.join("\n"), "b", "e2e").is_err());
    }

    #[test]
    fn of_several_versions_the_last_is_taken() {
        let package = |version: &str| {
            serde_json::json!({
                "name": "a", "version": version, "manifest_path": format!("/{version}/Cargo.toml"),
            })
        };
        let metadata = serde_json::json!({ "packages": [package("0.9.15"), package("0.12.1"), package("0.4.0")] });
        let (version, folder) = newest(&metadata, "a").unwrap();
        assert_eq!((version.as_str(), folder), ("0.12.1", PathBuf::from("/0.12.1")));
        assert!(newest(&metadata, "b").is_err());
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = parse(r#"{"packages": [{}]}"#).unwrap_err();
        assert_eq!(error.to_string(), "`name` is not a text");
    }
}
