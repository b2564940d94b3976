//! How many answers in a row make a result.

/// Counts answers of one probe.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    failures_needed: u32,
    successes_needed: u32,
    last: Option<bool>,
    in_a_row: u32,
}

impl Tally {
    pub(super) fn new(failures_needed: u32, successes_needed: u32) -> Self {
        Self { failures_needed, successes_needed, last: None, in_a_row: 0 }
    }

    /// Takes the next answer; the result, if there were enough of its kind.
    pub(super) fn take(&mut self, passed: bool) -> Option<bool> {
        if self.last == Some(passed) {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            (self.last, self.in_a_row) = (Some(passed), 1);
        }
        let needed = if passed { self.successes_needed } else { self.failures_needed };
        (self.in_a_row >= needed).then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(failures: u32, successes: u32, answers: &str, expected: &str) {
        let mut tally = Tally::new(failures, successes);
        let results: String = answers
            .chars()
            .map(|answer| match tally.take(answer == '+') {
                Some(true) => '+',
                Some(false) => '-',
                None => '.',
            })
            .collect();
        assert_eq!(results, expected, "{answers}");
    }

    #[test]
    fn thresholds_count_equal_answers_in_a_row() {
        check(3, 1, "+---+--+---", "+..-+..+..-");
        check(1, 2, "+-++-", ".-.+-");
        check(1, 1, "-+", "-+");
    }
}
