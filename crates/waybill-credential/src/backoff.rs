//! How long to leave a plugin alone after it failed. Pure: time is an argument.

use std::time::{Duration, Instant};

/// The pause after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST: Duration = Duration::from_mins(1);

/// Failures in a row.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// It failed again.
    pub(crate) fn failed(&mut self, now: Instant) {
        let pause = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + pause);
    }

    /// It succeeded, which clears the past.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// How much longer to wait.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        let remaining = self.until?.saturating_duration_since(now);
        (!remaining.is_zero()).then_some(remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRED-39
    #[test]
    fn pauses_double_to_a_minute_and_success_clears_them_cred_39() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        assert_eq!(backoff.remaining(now), None);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            backoff.failed(now);
            assert_eq!(backoff.remaining(now), Some(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert_eq!(backoff.remaining(now), None);
        }
        backoff.failed(now);
        backoff.succeeded();
        assert_eq!(backoff.remaining(now), None);
    }
}
