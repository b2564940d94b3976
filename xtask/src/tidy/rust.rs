//! Rules for Rust files: the header, names that say nothing, unfinished work, `unsafe`.

use super::Violation;
use crate::{
    repository::{TextFile, numbered},
    source,
};

/// A module is named for its concept; these are named for the lack of one.
const EMPTY_NAMES: &[&str] = &["common", "helpers", "misc", "utils"];

/// Words that mark work as unfinished. They are cut in two here so that this file may hold them.
const UNFINISHED_WORDS: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];

/// Code that marks work as unfinished, or a test as switched off.
const UNFINISHED_CODE: &[&str] =
    &[concat!("to", "do!"), concat!("unimpl", "emented!"), concat!("#[ign", "ore")];

/// A test that another test starts as a process of its own, to kill it.
const CHILD_PROGRAM: &str = concat!("#[ign", "ore = \"a program for `");

/// The only modules that talk to the kernel in a way that the compiler cannot check.
const UNSAFE_MODULES: &[&str] = &["crates/waybill-runtime/src/sys", "crates/waybill-trace/src/sys"];

pub(super) fn violations(file: &TextFile) -> Vec<Violation> {
    if !file.is_rust() {
        return Vec::new();
    }
    let header = header(file).into_iter().chain(empty_name(file));
    header.chain(unfinished(file)).chain(unsafe_code(file)).collect()
}

fn header(file: &TextFile) -> Option<Violation> {
    let advice = "start with a `//!` line that says what the file is for";
    (!file.text.starts_with("//!")).then(|| Violation::new(file, 1, "header", advice))
}

fn empty_name(file: &TextFile) -> Option<Violation> {
    let mut parts = file.path.split('/').map(|part| part.trim_end_matches(".rs"));
    let name = parts.find(|part| EMPTY_NAMES.contains(part))?;
    let advice = format!("`{name}` says nothing; name the module for its one concept");
    Some(Violation::new(file, 1, "name", advice))
}

fn unfinished(file: &TextFile) -> Vec<Violation> {
    let mark = |line: &str| {
        let word = UNFINISHED_WORDS.iter().find(|word| source::has_word(line, word));
        let code = || UNFINISHED_CODE.iter().find(|code| line.contains(**code));
        if line.contains(CHILD_PROGRAM) { None } else { word.or_else(code) }
    };
    file.lines()
        .filter_map(|(number, line)| {
            let advice = format!("`{}`: finish it, or file an issue and drop it", mark(line)?);
            Some(Violation::new(file, number, "unfinished", advice))
        })
        .collect()
}

fn unsafe_code(file: &TextFile) -> Vec<Violation> {
    let is_in = |module: &str| {
        let rest = file.path.strip_prefix(module);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    if UNSAFE_MODULES.iter().any(|module| is_in(module)) {
        return Vec::new();
    }
    let advice = format!("write it without `unsafe`, or in {}", UNSAFE_MODULES.join(" or "));
    let code = source::code(&file.text);
    let lines = numbered(&code).filter(|(_, line)| source::has_word(line, "unsafe"));
    lines.map(|(number, _)| Violation::new(file, number, "unsafe", advice.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests;

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        tests::check(violations, path, text, expected);
    }

    #[test]
    fn a_rust_file_starts_with_a_header() {
        check("a.rs", "//! A.\n", &[]);
        check("build.rs", "fn main() {}\n", &["1: header"]);
        check("fuzz/fuzz_targets/a.rs", "#![no_main]\n//! A.\n", &["1: header"]);
        check("a.rs", "/// A.\n", &["1: header"]);
        check("a.rs", "", &["1: header"]);
        check("a.md", "# A\n", &[]);
    }

    #[test]
    fn a_module_is_named_for_its_concept() {
        for name in EMPTY_NAMES {
            check(&format!("src/{name}.rs"), "//! A.\n", &["1: name"]);
            check(&format!("src/{name}/a.rs"), "//! A.\n", &["1: name"]);
            check(&format!("src/{name}_of_a.rs"), "//! A.\n", &[]);
        }
    }

    #[test]
    fn nothing_is_left_unfinished() {
        for mark in UNFINISHED_WORDS.iter().chain(UNFINISHED_CODE) {
            check("a.rs", &format!("//! A.\n\n// {mark}: b\n"), &["3: unfinished"]);
        }
        for word in UNFINISHED_WORDS {
            check("a.rs", &format!("//! A{word}S.\n"), &[]);
        }
    }

    #[test]
    fn unsafe_stays_in_the_sys_modules() {
        let text = "//! A.\nunsafe { a() }\n";
        check("crates/waybill-core/src/env.rs", text, &["2: unsafe"]);
        check("crates/waybill-runtime/src/system.rs", text, &["2: unsafe"]);
        check("crates/waybill-runtime/src/sys.rs", text, &[]);
        check("crates/waybill-trace/src/sys/bpf.rs", text, &[]);
        check("a.rs", "//! Not unsafe.\nlet a = \"unsafe\"; // unsafe\nunsafe_code();\n", &[]);
    }
}
