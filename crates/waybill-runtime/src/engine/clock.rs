//! The engine's clocks. They stamp what happens to real processes, and tell what was asked too long ago.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

#[expect(clippy::disallowed_methods, reason = "real processes start and end in real time")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// Nanoseconds by the clock by which the kernel tells when processes began, the same for all processes.
pub(super) fn after_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// The same clock after `limit`.
pub(super) fn after_boot_in(limit: Duration) -> u64 {
    after_boot().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
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
