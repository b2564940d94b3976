//! The table at the end of a test run.

use std::fmt::Write;

use crate::machine::Missing;

/// What became of a tier.
pub(super) struct Row {
    pub(super) tier: &'static str,
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
}

impl Row {
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }
}

pub(super) enum Outcome {
    /// With the error.
    Failed(String),
    Ran,
    Skipped(Missing),
}

/// One line for each tier: its name, what became of it, the seconds it took, and the reason.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = format!("{:<12} {:<8} {:>7}\n", "tier", "result", "seconds");
    for row in rows {
        let (result, reason) = match &row.outcome {
            Outcome::Failed(error) => ("FAILED", format!("  {error}")),
            Outcome::Ran => ("ran", String::new()),
            Outcome::Skipped(missing) => ("skipped", format!("  {missing}")),
        };
        writeln!(table, "{:<12} {result:<8} {:>7.1}{reason}", row.tier, row.seconds)
            .expect("writing to a string cannot fail");
    }
    table
}

/// The counts, in the form `tiers: 1 passed, 0 failed, 0 skipped`.
pub(super) fn closing_line(rows: &[Row]) -> String {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for row in rows {
        match row.outcome {
            Outcome::Failed(_) => failed += 1,
            Outcome::Ran => passed += 1,
            Outcome::Skipped(_) => skipped += 1,
        }
    }
    format!("tiers: {passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |tier, outcome, seconds| Row { tier, outcome, seconds };
        vec![
            row("format", Outcome::Ran, 0.42),
            row("test", Outcome::Failed("`cargo test` failed".into()), 61.0),
            row("deny", Outcome::Skipped(Missing::cargo_command("deny")), 0.0),
        ]
    }

    #[test]
    fn the_table_shows_every_tier_and_why() {
        let expected = "\
tier         result   seconds
format       ran          0.4
test         FAILED      61.0  `cargo test` failed
deny         skipped      0.0  cargo-deny is not installed; run `cargo install cargo-deny --locked`
";
        assert_eq!(table(&rows()), expected);
    }

    #[test]
    fn the_closing_line_counts_tiers() {
        assert_eq!(closing_line(&rows()), "tiers: 1 passed, 1 failed, 1 skipped");
    }
}
