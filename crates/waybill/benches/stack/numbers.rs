//! Many times as two numbers.

use std::{fmt, time::Duration};

#[derive(Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let at = self.0.partition_point(|other| *other < time);
        self.0.insert(at, time);
    }

    /// In milliseconds.
    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// In milliseconds; 0 is the least.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let at = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1} ms, p99 {:.1} ms", self.percentile(50), self.percentile(99))
    }
}
