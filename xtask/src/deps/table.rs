//! The table of crates in `ARCHITECTURE.md`.
//!
//! A crate may depend only on rows above its own, so the table cannot describe a cycle.

use anyhow::{Result, bail};

use crate::markdown::{ARCHITECTURE, code_spans, section};

/// One row: a crate, and the crates of ours that it may depend on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Where the row stands in the document.
    pub(super) line: usize,
    /// Whether the row says that the crate does not exist yet.
    pub(super) planned: bool,
    pub(super) may: Vec<String>,
}

impl Row {
    /// The rule of this row, with the place where it is written.
    pub(super) fn rule(&self) -> String {
        let may = if self.may.is_empty() { "nothing of ours".into() } else { self.may.join(", ") };
        format!("{ARCHITECTURE}:{} allows {may}", self.line)
    }
}

/// Reads the table under `## Crates`.
pub(super) fn parse(text: &str) -> Result<Vec<Row>> {
    let lines = section(text, "Crates")?;
    let table = lines.into_iter().filter(|(_, line)| line.starts_with('|'));
    let mut rows = Vec::new();
    // The first two lines are the head and the rule below it.
    for (line, text) in table.skip(2) {
        let row = row(line, text, &rows)?;
        rows.push(row);
    }
    if rows.is_empty() {
        bail!("{ARCHITECTURE}: the table under `## Crates` has no rows");
    }
    Ok(rows)
}

fn row(line: usize, text: &str, above: &[Row]) -> Result<Row> {
    let cells: Vec<_> = text.trim().trim_matches('|').split('|').map(str::trim).collect();
    let &[name, _, may] = cells.as_slice() else {
        bail!(
            "{ARCHITECTURE}:{line}: a row has three cells, `Crate | One line | May depend on`, and \
             this one has {}",
            cells.len()
        );
    };
    let Some(crate_name) = code_spans(name).next() else {
        bail!("{ARCHITECTURE}:{line}: the first cell must be the crate's name in backticks");
    };
    Ok(Row {
        name: crate_name.to_owned(),
        line,
        planned: name.contains("(planned)"),
        may: allowed(line, may, above)?,
    })
}

fn allowed(line: usize, cell: &str, above: &[Row]) -> Result<Vec<String>> {
    match cell {
        "nothing of ours" => return Ok(Vec::new()),
        "everything above" => return Ok(above.iter().map(|row| row.name.clone()).collect()),
        _ => {}
    }
    let names: Vec<_> = code_spans(cell).map(str::to_owned).collect();
    if names.is_empty() {
        bail!(
            "{ARCHITECTURE}:{line}: `{cell}` is not a rule; write `nothing of ours`, `everything \
             above`, or names in backticks"
        );
    }
    if let Some(name) = names.iter().find(|name| above.iter().all(|row| row.name != **name)) {
        bail!("{ARCHITECTURE}:{line}: `{name}` has no row above this one; move or correct it");
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_rows(rows: &str) -> Result<Vec<Row>> {
        parse(&format!("## Crates\n\n| Crate | One line | May depend on |\n|---|---|---|\n{rows}"))
    }

    #[track_caller]
    fn check_error(rows: &str, expected: &str) {
        let error = parse_rows(rows).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn rows_are_read_with_their_rules() {
        let rows = parse_rows(
            "| `a` | one | nothing of ours |\n\
             | `b` *(planned)* | two | `a` |\n\
             | `c` *(dev only)* | three | everything above |\n",
        )
        .unwrap();
        let row = |name: &str, line, planned, may: &[&str]| Row {
            name: name.into(),
            line,
            planned,
            may: may.iter().map(|&name| name.into()).collect(),
        };
        let expected =
            [row("a", 5, false, &[]), row("b", 6, true, &["a"]), row("c", 7, false, &["a", "b"])];
        assert_eq!(rows, expected);
    }

    #[test]
    fn a_crate_may_depend_on_rows_above_only() {
        check_error("| `a` | one | `b` |\n", "ARCHITECTURE.md:5: `b` has no row above");
        check_error("| `a` | one | `a` |\n", "ARCHITECTURE.md:5: `a` has no row above");
    }

    #[test]
    fn a_row_that_is_no_rule_is_refused() {
        check_error("| `a` | one |\n", "ARCHITECTURE.md:5: a row has three cells");
        check_error("| a | one | nothing of ours |\n", "ARCHITECTURE.md:5: the first cell");
        check_error("| `a` | one | core |\n", "ARCHITECTURE.md:5: `core` is not a rule");
        check_error("", "ARCHITECTURE.md: the table");
    }
}
