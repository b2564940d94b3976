//! Waiting longer after each failure.

use std::time::Duration;

/// The pauses between tries: each twice as long as the one before, up to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Pauses {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// How long to wait now.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }

    /// It worked: the next pause is a short one again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_begin_again() {
        let seconds = Duration::from_secs;
        let mut pauses = Pauses::new(seconds(1), seconds(5));
        let taken: Vec<_> = (0..4).map(|_| pauses.next().as_secs()).collect();
        assert_eq!(taken, [1, 2, 4, 5]);
        pauses.reset();
        assert_eq!(pauses.next(), seconds(1));
    }
}
