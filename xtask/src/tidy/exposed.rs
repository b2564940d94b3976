//! The places where a secret value is exposed are few, and `ARCHITECTURE.md` lists them.
//!
//! The list has a bullet for each file. Whoever adds a call adds the bullet, and a reviewer sees it.

use anyhow::Result;

use super::Violation;
use crate::{
    markdown::{ARCHITECTURE, code_spans, section},
    repository::{TextFile, numbered},
    source,
};

const RULE: &str = "exposed value";
const SECTION: &str = "Where values are exposed";

/// Compares the list in `architecture` with the calls in `files`.
pub(super) fn violations(architecture: &str, files: &[TextFile]) -> Result<Vec<Violation>> {
    let listed = listed(architecture)?;
    let calls: Vec<_> = files.iter().filter_map(|file| Some((file, first_call(file)?))).collect();

    let unlisted = calls.iter().filter(|(file, _)| listed.iter().all(|it| it.1 != file.path));
    let unlisted = unlisted.map(|(file, line)| {
        let advice = format!(
            "add a bullet for this file to `{SECTION}` in {ARCHITECTURE}, with the reason why the \
             value is needed"
        );
        Violation::new(file, *line, RULE, advice)
    });
    let stale = listed.iter().filter(|(_, path)| calls.iter().all(|(file, _)| file.path != *path));
    let stale = stale.map(|(line, path)| Violation {
        path: ARCHITECTURE.into(),
        line: *line,
        rule: RULE,
        advice: format!("`{path}` exposes nothing; drop its bullet"),
    });
    Ok(unlisted.chain(stale).collect())
}

/// The files that the document lists, with the lines that list them.
fn listed(architecture: &str) -> Result<Vec<(usize, &str)>> {
    let bullets = section(architecture, SECTION)?;
    let bullets = bullets.into_iter().filter(|(_, line)| line.starts_with("- "));
    Ok(bullets.filter_map(|(number, line)| Some((number, code_spans(line).next()?))).collect())
}

/// The first line outside tests that exposes a value. The path form counts as a call, because
/// `map(SecretBytes::expose)` is one.
fn first_call(file: &TextFile) -> Option<usize> {
    let (_, in_crate) = file.path.strip_prefix("crates/")?.split_once('/')?;
    if !file.is_rust() || !in_crate.starts_with("src/") || in_crate.ends_with("/tests.rs") {
        return None;
    }
    let code = source::code(&file.text);
    let is_call = |line: &str| {
        line.contains(".expose()") || source::has_word(&line.replace("::", " ::"), "::expose")
    };
    let found = numbered(source::without_tests(&code)).find(|(_, line)| is_call(line));
    found.map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, places};

    const PATH: &str = "crates/a/src/b.rs";

    #[track_caller]
    fn check(bullets: &str, path: &str, text: &str, expected: &[&str]) {
        let architecture = format!("## {SECTION}\n\n{bullets}\n## Next\n- `x`\n");
        let violations = violations(&architecture, &[file(path, text)]).unwrap();
        assert_eq!(places(&violations), expected, "{text}");
    }

    #[test]
    fn a_listed_call_passes() {
        check("- `crates/a/src/b.rs`: why\n", PATH, "a\nsecret.expose();\n", &[]);
    }

    #[test]
    fn an_unlisted_call_is_refused() {
        check("", PATH, "a\nsecret.expose();\n", &["2: exposed value"]);
        check("", PATH, "a.map(SecretBytes::expose)\n", &["1: exposed value"]);
        check("", PATH, "SecretBytes::expose(&a)\n", &["1: exposed value"]);
    }

    #[test]
    fn a_bullet_without_a_call_is_refused() {
        check("- `crates/a/src/b.rs`: why\n", PATH, "fn expose() {}\n", &["3: exposed value"]);
        check("- `gone.rs`\n", PATH, "a\n", &["3: exposed value"]);
    }

    #[test]
    fn tests_and_comments_may_expose() {
        let test = "a\n#[cfg(test)]\nmod tests {\n    secret.expose();\n}\n";
        check("", PATH, test, &[]);
        check("", PATH, "// secret.expose()\n", &[]);
        check("", PATH, "a.exposes(); b::exposed_to(); c::expose_all();\n", &[]);
        check("", "crates/a/src/b/tests.rs", "secret.expose();\n", &[]);
        check("", "crates/a/tests/it/main.rs", "secret.expose();\n", &[]);
    }

    #[test]
    fn the_list_must_be_there() {
        assert!(violations("# Architecture\n", &[]).is_err());
    }
}
