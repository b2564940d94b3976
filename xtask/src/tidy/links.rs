//! A relative link in a document leads to a file of the repository.
//!
//! It is looked up among the files that git lists and not on the disk, where a neighbour of this
//! work tree could answer for a file that nobody else has.

use super::Violation;
use crate::repository::TextFile;

/// Links in the documents among `files` to something that is not among `paths`.
pub(super) fn violations(files: &[TextFile], paths: &[String]) -> Vec<Violation> {
    let documents = files.iter().filter(|file| file.extension() == "md");
    documents.flat_map(|document| document_violations(document, paths)).collect()
}

fn document_violations(document: &TextFile, paths: &[String]) -> Vec<Violation> {
    let folder = document.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut fenced = false;
    let mut violations = Vec::new();
    for (number, line) in document.lines() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if fenced || is_fence {
            continue;
        }
        for link in links(line).into_iter().filter(|link| is_relative(link)) {
            if !resolve(folder, link).is_some_and(|path| exists(&path, paths)) {
                let advice = format!("`{link}` leads nowhere; correct or drop the link");
                violations.push(Violation::new(document, number, "link", advice));
            }
        }
    }
    violations
}

/// The targets of `[text](target)`, and of `[name]: target` at the start of the line.
fn links(line: &str) -> Vec<&str> {
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .filter(|(name, _)| !name.contains(']'));
    if let Some((_, target)) = definition {
        return target_of(target).into_iter().collect();
    }
    // What stands between backticks is code, and a part of even number stands outside.
    let prose = line.split('`').step_by(2);
    let inline = prose.flat_map(|text| text.split("](").skip(1));
    inline.filter_map(|after| target_of(after.split(')').next()?)).collect()
}

/// The target alone, without a title or angle brackets.
fn target_of(text: &str) -> Option<&str> {
    let target = text.split_whitespace().next()?;
    Some(target.trim_start_matches('<').trim_end_matches('>'))
}

fn is_relative(link: &str) -> bool {
    !link.starts_with('#') && !link.contains("://") && !link.starts_with("mailto:")
}

/// The path from the root that `link` means in a document of `folder`; none if it leaves the root.
fn resolve(folder: &str, link: &str) -> Option<String> {
    let path = link.split(['#', '?']).next().unwrap_or_default();
    let (start, path) = match path.strip_prefix('/') {
        Some(from_root) => ("", from_root),
        None => (folder, path),
    };
    let mut parts = Vec::new();
    for part in start.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether `path` is a file, or a folder with a file in it.
fn exists(path: &str, paths: &[String]) -> bool {
    let is_below = |file: &str| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    path.is_empty() || paths.iter().any(|file| file == path || is_below(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{file, places};

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[&str]) {
        let paths = [path, "README.md", "docs/adr/0001.md", "docs/picture.webp"];
        let paths = paths.map(str::to_owned);
        assert_eq!(places(&violations(&[file(path, text)], &paths)), expected, "{text}");
    }

    #[test]
    fn a_link_leads_to_a_file_or_folder() {
        check("a.md", "[r](README.md) and [d](docs/adr/0001.md#why \"title\")\n", &[]);
        check("a.md", "[d](docs/adr/) [d](docs/adr) [d](<./docs>) [r](/README.md)\n", &[]);
        check("docs/a.md", "[r](../README.md) [b](adr/0001.md)\n[x]: ../README.md\n", &[]);
        check("docs/a.md", "![p](picture.webp)\n", &[]);
        check("docs/a.md", "\n[r](README.md)\n", &["2: link"]);
        check("a.md", "[x]: gone.md\n[y](gone.md#a)\n", &["1: link", "2: link"]);
    }

    #[test]
    fn a_link_stays_in_the_repository() {
        check("a.md", "[r](../README.md)\n", &["1: link"]);
        check("docs/a.md", "[r](../../main/README.md)\n", &["1: link"]);
    }

    #[test]
    fn addresses_anchors_and_code_are_no_relative_links() {
        check("a.md", "[a](https://example.com/a) [b](#b) [c](mailto:a@b.c)\n", &[]);
        check("a.md", "`[a](gone.md)`\n```\n[a](gone.md)\n```\n", &[]);
        check("a.rs", "[a](gone.md)\n", &[]);
    }
}
