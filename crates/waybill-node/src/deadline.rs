//! Deadlines from numbers that users wrote, which may be anything.

use std::time::Duration;

use tokio::time::Instant;

/// Longer than any pod lives, and short enough for every clock: `Instant` and timers overflow at the end
/// of their range, and containerd counts a grace period in nanoseconds of 64 bits.
pub(crate) const LONGEST: Duration = Duration::from_secs(LONGEST_SECONDS.unsigned_abs());
const LONGEST_SECONDS: i64 = 30 * 365 * 24 * 60 * 60;

/// So many seconds; none if the number is negative, and [`LONGEST`] at most.
pub(crate) fn seconds(number: i64) -> Duration {
    Duration::from_secs(at_most(number).unsigned_abs())
}

/// The number of seconds that [`seconds`] means.
pub(crate) fn at_most(number: i64) -> i64 {
    number.clamp(0, LONGEST_SECONDS)
}

/// The moment when `pause` is over, counted from now.
pub(crate) fn after(pause: Duration) -> Instant {
    Instant::now() + pause.min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_seconds_is_beyond_the_clock() {
        for number in [i64::MIN, -1, 0, 1, LONGEST_SECONDS, LONGEST_SECONDS + 1, i64::MAX] {
            assert!(seconds(number) <= LONGEST, "{number}");
            assert!(after(seconds(number)) <= after(LONGEST), "{number}");
        }
        assert_eq!(seconds(-1), Duration::ZERO);
        assert_eq!(seconds(7), Duration::from_secs(7));
        after(Duration::MAX);
    }

    #[test]
    fn runtimes_that_count_nanoseconds_can_hold_the_longest() {
        i64::try_from(LONGEST.as_nanos()).unwrap();
    }
}
