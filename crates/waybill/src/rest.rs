//! A role at rest holds little memory.
//!
//! Most of what a role has resident after its start are pages of this program that only the start needed. They
//! belong to the page cache anyway; letting go of them lets the kernel take them when it needs room.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;
use waybill_runtime::give_memory_back;

/// How often a role looks at what it did.
const INTERVAL: Duration = Duration::from_secs(5);

/// A role that used less of a processor in an interval is at rest.
const REST: Duration = Duration::from_millis(25);

/// A role that used so much since it last gave memory back has touched pages again. Looking at the clock takes far less.
const WORK: Duration = Duration::from_millis(2);

/// Gives memory back each time that the process comes to rest. For as long as the tokio runtime lives.
#[expect(clippy::disallowed_methods, reason = "for as long as the runtime lives")]
pub(crate) fn hold_little_memory() {
    drop(tokio::spawn(async {
        let mut rest = Rest { before: processor_time(), given_back: Duration::ZERO };
        loop {
            sleep(INTERVAL).await;
            if rest.begins(processor_time()) {
                give_memory_back();
            }
        }
    }));
}

/// Whether a process rests, by the processor time that it used.
struct Rest {
    before: Duration,
    /// When memory was given back last.
    given_back: Duration,
}

impl Rest {
    /// Whether the process has just come to rest, when its processor time is `now`. A little work between two looks is no
    /// interruption, and yet what it touched is given back.
    fn begins(&mut self, now: Duration) -> bool {
        let rests = now.saturating_sub(self.before) < REST;
        let worked = now.saturating_sub(self.given_back) >= WORK;
        self.before = now;
        if rests && worked {
            self.given_back = now;
        }
        rests && worked
    }
}

/// What all threads of this process used so far.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_for_each_rest() {
        let mut rest = Rest { before: Duration::ZERO, given_back: Duration::ZERO };
        let mut begins = |milliseconds| rest.begins(Duration::from_millis(milliseconds));
        assert!(!begins(500), "it started");
        assert!(begins(510));
        assert!(!begins(511), "that was done");
        assert!(!begins(900), "it works");
        assert!(begins(901));
    }

    #[test]
    fn memory_that_a_little_work_touched_is_given_back_too() {
        let mut rest = Rest { before: Duration::ZERO, given_back: Duration::ZERO };
        let mut begins = |milliseconds| rest.begins(Duration::from_millis(milliseconds));
        assert!(begins(10));
        assert!(begins(13), "it answered a call");
        assert!(!begins(14), "it looked at the clock");
    }
}
