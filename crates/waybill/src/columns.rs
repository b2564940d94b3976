//! Rows of text in columns, as kubectl prints them.

use crate::terminal::plain;

/// Each cell as wide as its column, three blanks between them, none at the end of a line. Cells hold words of servers, so
/// what a terminal would act on is replaced.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<_>> =
        rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["NAME", "AGE"], ["a-long-name", "3s"], ["é", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows), "NAME          AGE\na-long-name   3s\né\n");
        assert_eq!(align(&[]), "");
    }

    /// Hole: a server, or whoever chose a name, drove the terminal of whoever looked at a table.
    #[test]
    fn no_cell_drives_the_terminal_or_makes_a_line() {
        let rows = [["a\u{1b}]0;x\u{7}", "b\nfake   row"], ["\u{202e}c", "d"]];
        let text = align(&rows.map(|row| row.map(str::to_owned).to_vec()));
        assert_eq!(text, "a\u{fffd}]0;x\u{fffd}   b\u{fffd}fake   row\n\u{fffd}c        d\n");
    }
}
