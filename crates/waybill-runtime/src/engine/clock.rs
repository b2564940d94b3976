//! The engine's one clock. It only stamps what happens to real processes; nothing is decided by it.

use std::time::{Duration, SystemTime};

#[expect(clippy::disallowed_methods, reason = "real processes start and end in real time")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// So many seconds of a request; none if the number is negative. More than thirty years are as good as
/// those, and timers can count them.
pub(crate) fn seconds(number: i64) -> Duration {
    const LONGEST: u64 = 30 * 365 * 24 * 60 * 60;
    Duration::from_secs(u64::try_from(number).unwrap_or(0).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_can_count_any_number_of_seconds() {
        for number in [i64::MIN, -1, 0, i64::MAX - 1, i64::MAX] {
            tokio::time::timeout(seconds(number), async {}).await.unwrap();
            let _ = std::time::Instant::now() + seconds(number);
        }
    }
}
