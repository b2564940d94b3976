//! Rules for the layout of text: no space at the end of a line, no tabs in Rust, one newline last.

use super::Violation;
use crate::repository::TextFile;

/// The files that people write by hand. Others may be fixtures whose every byte matters.
const WRITTEN: &[&str] = &["json", "md", "rs", "sh", "toml", "yaml", "yml"];

pub(super) fn violations(file: &TextFile) -> Vec<Violation> {
    if !WRITTEN.contains(&file.extension()) {
        return Vec::new();
    }
    let lines = file.lines().filter_map(|(number, line)| {
        if line.ends_with(char::is_whitespace) {
            let advice = "remove the space at the end of the line";
            Some(Violation::new(file, number, "trailing space", advice))
        } else if file.is_rust() && line.contains('\t') {
            let advice = "use spaces, or `\\t` in a literal";
            Some(Violation::new(file, number, "tab", advice))
        } else {
            None
        }
    });
    lines.chain(last_newline(file)).collect()
}

fn last_newline(file: &TextFile) -> Option<Violation> {
    let text = &file.text;
    let good = text.is_empty() || text.ends_with('\n') && !text.ends_with("\n\n") && text != "\n";
    let advice = "end the file with exactly one newline";
    (!good).then(|| Violation::new(file, file.lines().count().max(1), "last newline", advice))
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
    fn no_line_ends_in_a_space() {
        check("a.md", "a \nb\n", &["1: trailing space"]);
        check("a.toml", "a\nb\t\n", &["2: trailing space"]);
        check("a.json", "{}\r\n", &["1: trailing space"]);
        check("a.env", "a \n", &[]);
    }

    #[test]
    fn rust_has_no_tabs() {
        check("a.rs", "a\n\tb\n", &["2: tab"]);
        check("a.sh", "a\n\tb\n", &[]);
    }

    #[test]
    fn a_file_ends_with_exactly_one_newline() {
        check("a.yaml", "a\n", &[]);
        check("a.yaml", "", &[]);
        check("a.yaml", "a\nb", &["2: last newline"]);
        check("a.yaml", "a\n\n", &["2: last newline"]);
        check("a.yaml", "\n", &["1: last newline"]);
    }
}
