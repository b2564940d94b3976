//! How long a container that keeps ending has to wait: nothing the first time, then 10 seconds, doubled
//! up to five minutes, and forgotten once it ran for ten.

use jiff::{SignedDuration, Timestamp};

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_secs(300);
const FORGIVEN: SignedDuration = SignedDuration::from_secs(600);

/// What the next restart has to wait, counted from the container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackOff {
    pub(crate) delay: SignedDuration,
    /// When a restart last changed it.
    pub(crate) since: Timestamp,
}

impl BackOff {
    /// The back-off after a restart now, or when that restart may be. `finished` is the end of the
    /// container that would be restarted.
    pub(crate) fn after(
        before: Option<Self>,
        finished: Timestamp,
        now: Timestamp,
    ) -> Result<Self, Timestamp> {
        let Some(before) = before.filter(|it| finished.duration_since(it.since) <= FORGIVEN) else {
            return Ok(Self { delay: FIRST, since: now });
        };
        let until = finished.checked_add(before.delay).unwrap_or(now);
        if now < until {
            return Err(until);
        }
        Ok(Self { delay: (before.delay * 2).min(LONGEST), since: now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn back_off(delay: i64, since: i64) -> BackOff {
        BackOff { delay: SignedDuration::from_secs(delay), since: at(since) }
    }

    #[test]
    fn the_first_restart_waits_for_nothing() {
        assert_eq!(BackOff::after(None, at(5), at(5)), Ok(back_off(10, 5)));
    }

    #[test]
    fn later_restarts_wait_twice_as_long_each_up_to_five_minutes() {
        let mut before = back_off(10, 0);
        let mut now = 0;
        for expected in [20, 40, 80, 160, 300, 300] {
            let due = at(now) + before.delay;
            assert_eq!(BackOff::after(Some(before), at(now), at(now)), Err(due));
            before = BackOff::after(Some(before), at(now), due).unwrap();
            assert_eq!(before, BackOff { delay: SignedDuration::from_secs(expected), since: due });
            now = due.as_second();
        }
    }

    #[test]
    fn ten_minutes_of_running_are_rewarded() {
        let before = Some(back_off(300, 0));
        assert_eq!(BackOff::after(before, at(600), at(600)), Err(at(900)));
        assert_eq!(BackOff::after(before, at(601), at(601)), Ok(back_off(10, 601)));
    }
}
