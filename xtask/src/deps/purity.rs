//! Proves that `waybill-core` stays pure: no operating system, no async, no serde, no logging.
//!
//! `no_std` keeps the standard library out. What stands below the crate is a closed list, because a
//! dependency could bring all of it back.

use anyhow::{Result, bail};

use crate::{
    process,
    repository::{Repository, TextFile, numbered},
    source,
};

const CORE: &str = "waybill-core";
const CORE_SOURCE: &str = "crates/waybill-core/src/";

/// What may stand below the core.
const ALLOWED: &[&str] = &[
    "foldhash",
    "hashbrown",
    "memchr",
    "subtle",
    "thiserror",
    "thiserror-impl",
    "zeroize",
    // What procedural macros need to build; none of it is linked.
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
];

/// Crates that people reach for, and why they do not belong here. A name that ends in `*` stands
/// for all that start like it.
const DENIED: &[(&str, &[&str])] = &[
    (
        "the core is synchronous; a task that needs it calls it",
        &["async-*", "futures*", "pin-project*", "smol", "tokio*", "tower*"],
    ),
    ("serde types are those of waybill-api", &["bincode", "postcard", "prost*", "serde*", "toml*"]),
    ("return what happened; the caller logs it", &["env_logger", "log", "slog*", "tracing*"]),
    ("the clock is a parameter", &["chrono*", "jiff", "time"]),
    (
        "the core does no IO; read elsewhere and pass bytes",
        &["axum*", "http*", "hyper*", "libc", "mio", "nix", "reqwest", "rustix", "socket2"],
    ),
    ("chance is a parameter", &["getrandom", "rand*"]),
];

/// What the check found.
pub(super) struct Purity {
    pub(super) faults: Vec<String>,
    /// How many crates stand below the core.
    pub(super) closure: usize,
}

pub(super) fn check(repository: &Repository) -> Result<Purity> {
    let tree = below_core(repository)?;
    let files = repository.files()?;
    let sources = files.iter().filter(|file| file.path.starts_with(CORE_SOURCE) && file.is_rust());
    let faults = closure_faults(&tree).into_iter().chain(sources.flat_map(source_faults)).collect();
    Ok(Purity { faults, closure: tree.len() })
}

/// A crate below the core, with the way from the core to it.
#[derive(Debug, PartialEq, Eq)]
struct Below {
    name: String,
    path: Vec<String>,
}

/// Asks `cargo tree` and not `cargo metadata`: the latter adds the features that other crates of
/// the workspace switch on, and with them dependencies that the core does not have by itself.
fn below_core(repository: &Repository) -> Result<Vec<Below>> {
    let args = ["tree", "--package", CORE, "--edges", "normal", "--target", "all"];
    let shape = ["--all-features", "--prefix", "depth", "--format", " {p}"];
    parse_tree(&process::output(repository.cargo(&args).args(shape))?)
}

/// Reads lines such as `2 foldhash v0.2.0`, where the number is the depth.
fn parse_tree(tree: &str) -> Result<Vec<Below>> {
    let mut path: Vec<String> = Vec::new();
    let mut below: Vec<Below> = Vec::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        let depth = words.next().and_then(|depth| depth.parse().ok());
        let (Some(depth), Some(name)) = (depth, words.next()) else {
            bail!("cannot read `cargo tree`: `{line}` is not a line of a tree");
        };
        path.truncate(depth);
        path.push(name.to_owned());
        if depth > 0 && below.iter().all(|known| known.name != name) {
            below.push(Below { name: name.to_owned(), path: path.clone() });
        }
    }
    Ok(below)
}

fn closure_faults(tree: &[Below]) -> Vec<String> {
    let foreign = tree.iter().filter(|below| !ALLOWED.contains(&below.name.as_str()));
    foreign
        .map(|below| {
            let reason = denial(&below.name).unwrap_or(
                "it is not on the list in xtask/src/deps/purity.rs; drop it, or add it in a \
                 commit of its own that says why it is pure",
            );
            format!("{CORE}: {} does not belong below it: {reason}", below.path.join(" → "))
        })
        .collect()
}

fn denial(name: &str) -> Option<&'static str> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    let denied = DENIED.iter().find(|(_, patterns)| patterns.iter().any(|it| matches(it)));
    denied.map(|(reason, _)| *reason)
}

fn source_faults(file: &TextFile) -> Vec<String> {
    let code = source::code(&file.text);
    let is_root = file.path.strip_prefix(CORE_SOURCE) == Some("lib.rs");
    let declares = code.lines().any(|line| line.trim() == "#![no_std]");
    let undeclared = (is_root && !declares)
        .then(|| format!("{}:1: the core must say `#![no_std]`; put it back", file.path));
    undeclared.into_iter().chain(std_imports(&file.path, &code)).collect()
}

/// The lines outside tests that bring the standard library back.
fn std_imports(path: &str, code: &str) -> Vec<String> {
    let mut only_in_tests = false;
    let mut faults = Vec::new();
    for (number, line) in numbered(source::without_tests(code)) {
        let line = line.trim();
        if line.starts_with("extern crate std") && !only_in_tests {
            faults.push(format!(
                "{path}:{number}: the core may use std in tests alone; put `#[cfg(test)]` above"
            ));
        }
        if !line.is_empty() {
            only_in_tests = line == "#[cfg(test)]";
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_tree(tree: &str, expected: &[&str]) {
        let faults = closure_faults(&parse_tree(tree).unwrap());
        assert_eq!(faults, expected, "{tree}");
    }

    #[test]
    fn the_allowed_crates_pass() {
        check_tree(
            "0 waybill-core v0.1.0 (/w)\n1 hashbrown v0.17.1\n2 foldhash v0.2.0\n1 memchr v2.8.3\n",
            &[],
        );
    }

    #[test]
    fn a_crate_that_people_reach_for_gets_its_reason() {
        check_tree(
            "0 waybill-core v0.1.0\n1 hashbrown v0.17.1\n2 serde_core v1.0.0\n1 tokio v1.0.0\n",
            &[
                "waybill-core: waybill-core → hashbrown → serde_core does not belong below it: \
                 serde types are those of waybill-api",
                "waybill-core: waybill-core → tokio does not belong below it: the core is \
                 synchronous; a task that needs it calls it",
            ],
        );
        assert_eq!(denial("timely"), None);
        assert_eq!(denial("time"), Some("the clock is a parameter"));
    }

    #[test]
    fn any_other_crate_is_refused_too() {
        let faults = closure_faults(&parse_tree("0 waybill-core v0\n1 bytes v1\n").unwrap());
        assert!(faults.concat().contains("not on the list"), "{faults:?}");
    }

    #[test]
    fn a_crate_is_reported_once() {
        let tree = "0 waybill-core v0\n1 a v1\n2 b v1\n1 c v1\n2 b v1 (*)\n";
        assert_eq!(parse_tree(tree).unwrap().len(), 3);
        assert!(parse_tree("what").is_err());
    }

    #[track_caller]
    fn check_source(path: &str, text: &str, expected: &[&str]) {
        let path = format!("{CORE_SOURCE}{path}");
        let faults = source_faults(&TextFile { path, text: text.into() });
        assert_eq!(faults.len(), expected.len(), "{faults:#?}");
        for (fault, start) in faults.iter().zip(expected) {
            assert!(fault.starts_with(&format!("{CORE_SOURCE}{start}")), "{fault}");
        }
    }

    #[test]
    fn the_root_of_the_core_is_no_std() {
        check_source("lib.rs", "#![no_std]\n", &[]);
        check_source("lib.rs", "// #![no_std]\n", &["lib.rs:1: the core must say"]);
        check_source("lib.rs", "#![cfg_attr(not(test), no_std)]\n", &["lib.rs:1: the core must"]);
        check_source("env.rs", "mod name;\n", &[]);
    }

    #[test]
    fn std_is_for_tests_alone() {
        check_source("a.rs", "#[cfg(test)]\nextern crate std;\n", &[]);
        check_source("a.rs", "#[cfg(test)]\nmod tests {\n    extern crate std;\n}\n", &[]);
        check_source("a.rs", "extern crate alloc;\nextern crate std;\n", &["a.rs:2: the core may"]);
    }
}
