//! Rules for manifests: what all crates share stands once, in the root.
//!
//! Reads TOML line by line, which is enough for manifests as we write them: one entry per line.

use super::Violation;
use crate::repository::TextFile;

/// What a crate takes over from the workspace.
const INHERITED: &[&str] = &["edition", "license", "version"];

pub(super) fn violations(file: &TextFile) -> Vec<Violation> {
    let entries = entries(file);
    if file.path == "Cargo.toml" {
        return root(file, &entries);
    }
    match member_folder(&file.path) {
        Some(folder) => member(file, folder, &entries),
        None => Vec::new(),
    }
}

/// The folder's name, for manifests of our crates; the fuzz targets are a workspace of their own.
fn member_folder(path: &str) -> Option<&str> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    let folder = folder.strip_prefix("crates/").unwrap_or(folder);
    (folder == "xtask" || path.starts_with("crates/") && !folder.contains('/')).then_some(folder)
}

/// A line `key = value` with the table that it stands in.
struct Entry<'a> {
    line: usize,
    table: &'a str,
    key: &'a str,
    value: &'a str,
}

impl Entry<'_> {
    /// `key.workspace = true`, or `key = { workspace = true, … }`.
    fn inherits(&self, key: &str) -> bool {
        let short = self.key.strip_suffix(".workspace") == Some(key) && self.value == "true";
        short || self.key == key && self.is_from_workspace()
    }

    fn is_from_workspace(&self) -> bool {
        let squeezed: String = self.value.chars().filter(|c| !c.is_whitespace()).collect();
        squeezed.contains("{workspace=true") || squeezed.contains(",workspace=true")
    }
}

fn entries(file: &TextFile) -> Vec<Entry<'_>> {
    let mut table = "";
    let mut entries = Vec::new();
    for (line, text) in file.lines() {
        let text = text.trim();
        if let Some(name) = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            table = name.trim();
        } else if let Some((key, value)) = text.split_once('=')
            && key.trim().chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            entries.push(Entry { line, table, key: key.trim(), value: value.trim() });
        }
    }
    entries
}

fn member(file: &TextFile, folder: &str, entries: &[Entry<'_>]) -> Vec<Violation> {
    let package = || entries.iter().filter(|entry| entry.table == "package");
    let name = package().find(|entry| entry.key == "name");
    let named = name.filter(|entry| entry.value.trim_matches('"') != folder).map(|entry| {
        let advice = format!("call the package `{folder}`, as its folder, or rename the folder");
        Violation::new(file, entry.line, "package name", advice)
    });
    let own = INHERITED.iter().filter(|key| !package().any(|entry| entry.inherits(key)));
    let own = own.map(|key| {
        let advice = format!("write `{key}.workspace = true` under `[package]`");
        Violation::new(file, 1, "inherited", advice)
    });
    let has_lints = entries
        .iter()
        .any(|entry| entry.table == "lints" && entry.key == "workspace" && entry.value == "true");
    let lints = (!has_lints)
        .then(|| Violation::new(file, 1, "inherited", "write `workspace = true` under `[lints]`"));
    named.into_iter().chain(own).chain(lints).chain(own_versions(file, entries)).collect()
}

/// Dependencies of a member that do not come from the root's table.
fn own_versions(file: &TextFile, entries: &[Entry<'_>]) -> Vec<Violation> {
    let advice = "say `workspace = true`; versions stand in the root's `[workspace.dependencies]` \
                  alone";
    let own = entries.iter().filter(|entry| brings_version(entry));
    own.map(|entry| Violation::new(file, entry.line, "dependency version", advice)).collect()
}

/// A dependency is written as `name = …` or `name.property = …` in a list, or as a table
/// `[dependencies.name]` with its properties below.
fn brings_version(entry: &Entry<'_>) -> bool {
    let is_own = |property| matches!(property, "git" | "path" | "version");
    let (above, last) = entry.table.rsplit_once('.').unwrap_or(("", entry.table));
    if is_list(last) {
        let property = entry.key.split_once('.').map(|(_, property)| property);
        property.map_or_else(|| !entry.is_from_workspace(), is_own)
    } else {
        is_list(above.rsplit('.').next().unwrap_or_default()) && is_own(entry.key)
    }
}

fn is_list(table: &str) -> bool {
    matches!(table, "build-dependencies" | "dependencies" | "dev-dependencies")
}

/// The root's table: a version that can be read, or one of our own crates.
fn root(file: &TextFile, entries: &[Entry<'_>]) -> Vec<Violation> {
    let versions = entries.iter().filter(|entry| entry.table == "workspace.dependencies");
    let is_good = |value: &str| {
        let ours = value.contains("path = \"crates/");
        let version = value.starts_with('"') || value.contains("version = \"");
        (ours || version) && !value.contains("\"*\"")
    };
    versions
        .filter(|entry| !is_good(entry.value))
        .map(|entry| {
            let advice = "name a version, such as `1.2`; `*` takes whatever comes";
            Violation::new(file, entry.line, "dependency version", advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests;

    const GOOD: &str = "[package]\nname = \"a\"\nversion.workspace = true\n\
        edition.workspace = true\nlicense = { workspace = true }\n\n\
        [lints]\nworkspace = true\n";

    #[track_caller]
    fn check_member(text: &str, expected: &[&str]) {
        tests::check(violations, "crates/a/Cargo.toml", text, expected);
    }

    #[track_caller]
    fn check_dependencies(text: &str, expected: &[&str]) {
        check_member(&format!("{GOOD}{text}\n"), expected);
    }

    #[test]
    fn a_crate_inherits_what_all_share() {
        check_member(GOOD, &[]);
        check_member(
            "[package]\nname = \"a\"\nversion = \"1.0.0\"\nedition.workspace = true\n",
            &["1: inherited", "1: inherited", "1: inherited"],
        );
    }

    #[test]
    fn a_folder_is_named_as_its_package() {
        let path = "crates/b/Cargo.toml";
        tests::check(violations, path, GOOD, &["2: package name"]);
        tests::check(violations, "fuzz/Cargo.toml", "[package]\nname = \"x\"\n", &[]);
    }

    #[test]
    fn versions_stand_in_the_root_alone() {
        check_dependencies("[dependencies]\nb.workspace = true", &[]);
        check_dependencies("[dev-dependencies]\nb = { features = [\"c\"], workspace = true }", &[]);
        check_dependencies("[dependencies]\nb = \"1.0\"", &["10: dependency version"]);
        check_dependencies("[dependencies]\nb = { path = \"../b\" }", &["10: dependency version"]);
        check_dependencies("[build-dependencies]\nb.version = \"1\"", &["10: dependency version"]);
        check_dependencies(
            "[target.'cfg(unix)'.dependencies]\nb = { version = \"1\" }",
            &["10: dependency version"],
        );
        check_dependencies("[dependencies.b]\nworkspace = true\nfeatures = [\"c\"]", &[]);
        check_dependencies("[dependencies.b]\nversion = \"1\"", &["10: dependency version"]);
        check_dependencies(
            "[dependencies]\nb = { workspace = true, features = [\n\"c\",\n] }",
            &[],
        );
        check_dependencies("[features]\nb = [\"c\"]", &[]);
    }

    #[test]
    fn the_root_names_versions_that_mean_something() {
        let check = |line: &str, expected: &[&str]| {
            let text = format!("[workspace.dependencies]\n{line}\n");
            tests::check(violations, "Cargo.toml", &text, expected);
        };
        check("a = \"1.0\"", &[]);
        check("a = { version = \"1.0\", features = [\"b\"] }", &[]);
        check("a = { path = \"crates/a\" }", &[]);
        check("a = \"*\"", &["2: dependency version"]);
        check("a = { version = \"*\" }", &["2: dependency version"]);
        check("a = { path = \"../a\" }", &["2: dependency version"]);
        check("a = { git = \"https://github.com/a/a\" }", &["2: dependency version"]);
    }
}
