//! The kernel counts from the boot of the machine; people do not.

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// When the machine was started, by the clock on the wall as it is set now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BootClock {
    boot: Timestamp,
}

impl BootClock {
    /// Looks at both clocks.
    pub(crate) fn now() -> Self {
        let after_boot = span(clock_gettime(ClockId::Boottime));
        Self { boot: wall().checked_sub(after_boot).unwrap_or_default() }
    }

    #[cfg(test)]
    pub(crate) fn from(boot: Timestamp) -> Self {
        Self { boot }
    }

    /// The time that is so many nanoseconds after boot.
    pub(crate) fn time(self, after_boot: u64) -> Timestamp {
        let nanoseconds = i64::try_from(after_boot).unwrap_or(i64::MAX);
        let exact = self.boot.checked_add(SignedDuration::from_nanos(nanoseconds));
        // To the microsecond, as it is written.
        let rounded =
            exact.ok().and_then(|time| Timestamp::from_microsecond(time.as_microsecond()).ok());
        rounded.unwrap_or(self.boot)
    }
}

/// The clock on the wall.
pub(crate) fn wall() -> Timestamp {
    let now = span(clock_gettime(ClockId::Realtime));
    Timestamp::from_duration(now).unwrap_or_default()
}

/// Nanoseconds after boot.
pub(crate) fn after_boot() -> u64 {
    u64::try_from(span(clock_gettime(ClockId::Boottime)).as_nanos()).unwrap_or(0)
}

/// Nanoseconds after boot, without those that the machine slept: the proc connector's clock.
pub(crate) fn monotonic() -> u64 {
    u64::try_from(span(clock_gettime(ClockId::Monotonic)).as_nanos()).unwrap_or(0)
}

fn span(time: Timespec) -> SignedDuration {
    SignedDuration::new(time.tv_sec, i32::try_from(time.tv_nsec).unwrap_or(0))
}
