//! `cargo xtask tidy`: the rules of the repository that no compiler knows.
//!
//! A rule is a pure function from files to violations, so each is tested on a few lines of text.

mod exposed;
mod hosts;
mod layout;
mod links;
mod manifest;
mod rust;

use std::fmt;

use anyhow::{Result, bail};

use crate::{
    generate,
    markdown::ARCHITECTURE,
    repository::{Repository, TextFile},
};

pub(crate) fn run(repository: &Repository) -> Result<()> {
    let files = repository.files()?;
    let mut violations: Vec<_> = files.iter().flat_map(file_violations).collect();
    violations.extend(links::violations(&files, &repository.paths()?));
    violations.extend(exposed::violations(&repository.read(ARCHITECTURE)?, &files)?);
    violations.extend(stale_code(repository)?);

    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("tidy: {} to mend, listed above", violations.len());
    }
    println!("tidy: {} files, nothing to mend", files.len());
    Ok(())
}

/// Generated files that are not what their sources say.
fn stale_code(repository: &Repository) -> Result<Vec<Violation>> {
    let stale = generate::stale(repository)?.into_iter().map(|path| Violation {
        path,
        line: 1,
        rule: "generated",
        advice: "run `cargo xtask gen` and commit what it writes".into(),
    });
    Ok(stale.collect())
}

/// What the rules that look at one file alone say about it.
fn file_violations(file: &TextFile) -> Vec<Violation> {
    let rules: [fn(&TextFile) -> Vec<Violation>; 4] =
        [hosts::violations, layout::violations, manifest::violations, rust::violations];
    rules.iter().flat_map(|rule| rule(file)).collect()
}

/// A broken rule, and how to mend it.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Violation {
    fn new(file: &TextFile, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// What the tests of all rules share.
#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    /// Checks that `rule` finds exactly `expected`, each as `line: rule`.
    #[track_caller]
    pub(super) fn check(
        rule: fn(&TextFile) -> Vec<Violation>,
        path: &str,
        text: &str,
        expected: &[&str],
    ) {
        assert_eq!(places(&rule(&file(path, text))), expected, "{path}: {text:?}");
    }

    pub(super) fn places(violations: &[Violation]) -> Vec<String> {
        violations.iter().map(|it| format!("{}: {}", it.line, it.rule)).collect()
    }

    #[test]
    fn a_violation_reads_as_editors_expect() {
        let violation = Violation::new(&file("a.rs", ""), 3, "tabs", "indent with spaces");
        assert_eq!(violation.to_string(), "a.rs:3: tabs: indent with spaces");
    }
}
