//! Finds sections in Markdown, for the documents that chores compare with the code.

use anyhow::{Result, bail};

use crate::repository::numbered;

/// The document that lists our crates and the places where values are exposed.
pub(crate) const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The numbered lines under `## <heading>`, up to the next heading of that rank.
pub(crate) fn section<'a>(text: &'a str, heading: &str) -> Result<Vec<(usize, &'a str)>> {
    let is_start = |line: &str| line.strip_prefix("## ").is_some_and(|it| it.trim() == heading);
    let mut lines = numbered(text);
    if !lines.any(|(_, line)| is_start(line)) {
        bail!("{ARCHITECTURE} has no section `## {heading}`; restore it, a chore reads it");
    }
    Ok(lines.take_while(|(_, line)| !line.starts_with("## ")).collect())
}

/// The texts between backticks in `line`.
pub(crate) fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_at_the_next_heading() {
        let text = "# A\n\n## B\nb\n### C\nc\n## D\nd\n";
        assert_eq!(section(text, "B").unwrap(), [(4, "b"), (5, "### C"), (6, "c")]);
        assert_eq!(section(text, "D").unwrap(), [(8, "d")]);
        assert!(section(text, "C").is_err());
    }

    #[test]
    fn code_spans_stand_between_backticks() {
        assert_eq!(code_spans("- `a` and `b`").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(code_spans("none").count(), 0);
    }
}
