//! How often the pods of one namespace may ask (CSI-48).

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How many namespaces are remembered; those that have not asked for a while are forgotten first.
const NAMESPACES: usize = 10_000;

/// A rate that each namespace may reach, whatever the others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Calls in a second.
    pub per_second: NonZeroU32,
    /// Calls at once, after a while without any.
    pub burst: NonZeroU32,
}

impl Default for Rate {
    /// A node starts its 110 pods in a burst, and then few.
    fn default() -> Self {
        let number = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self { per_second: number(50), burst: number(200) }
    }
}

/// Who asked how often.
///
/// For each namespace one instant is kept: when all that it asked for would be through, if its calls went
/// at their rate. It may lie ahead as far as a burst does.
pub(crate) struct Limiter {
    interval: Duration,
    ahead: Duration,
    through: Mutex<HashMap<Box<str>, Instant>>,
}

impl Limiter {
    pub(crate) fn new(rate: Rate) -> Self {
        let interval = Duration::from_secs(1) / rate.per_second.get();
        Self {
            interval,
            ahead: interval.saturating_mul(rate.burst.get()),
            through: Mutex::default(),
        }
    }

    /// Counts a call of `namespace`; false if it is one too many.
    pub(crate) fn admits(&self, namespace: &str, now: Instant) -> bool {
        let mut through = self.through.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = through.get_mut(namespace) {
            let next = (*until).max(now) + self.interval;
            if next > now + self.ahead {
                return false;
            }
            *until = next;
            return true;
        }
        if through.len() >= NAMESPACES {
            forget(&mut through, now);
        }
        through.insert(namespace.into(), now + self.interval);
        true
    }
}

/// Forgets who may ask for a whole burst anyway; if that is nobody, who asked least.
fn forget(through: &mut HashMap<Box<str>, Instant>, now: Instant) {
    through.retain(|_, until| *until > now);
    if through.len() >= NAMESPACES {
        let least = through.iter().min_by_key(|(_, until)| **until).map(|(name, _)| name.clone());
        if let Some(least) = least {
            through.remove(&least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(per_second: u32, burst: u32) -> Limiter {
        let number = |number| NonZeroU32::new(number).unwrap();
        Limiter::new(Rate { per_second: number(per_second), burst: number(burst) })
    }

    /// CSI-48
    #[test]
    fn a_namespace_has_its_burst_and_then_its_rate_csi_48() {
        let limiter = limiter(10, 3);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        for _ in 0..3 {
            assert!(limiter.admits("a", at(0)));
        }
        assert!(!limiter.admits("a", at(0)));
        assert!(!limiter.admits("a", at(99)));
        assert!(limiter.admits("a", at(100)));
        assert!(!limiter.admits("a", at(100)));
        for _ in 0..3 {
            assert!(limiter.admits("a", at(10_000)), "a burst again after a while");
        }
        assert!(!limiter.admits("a", at(10_000)));
    }

    /// CSI-48
    #[test]
    fn a_greedy_namespace_takes_nothing_from_others_csi_48() {
        let limiter = limiter(1, 1);
        let now = Instant::now();
        assert!(limiter.admits("greedy", now));
        for _ in 0..1000 {
            assert!(!limiter.admits("greedy", now));
        }
        assert!(limiter.admits("modest", now));
    }

    #[test]
    fn no_more_namespaces_are_remembered_than_there_is_room_for() {
        let limiter = limiter(1, 5);
        let now = Instant::now();
        limiter.admits("heavy", now);
        limiter.admits("heavy", now);
        for number in 0..NAMESPACES + 10 {
            assert!(limiter.admits(&format!("n{number}"), now));
        }
        let through = limiter.through.lock().unwrap();
        assert_eq!(through.len(), NAMESPACES);
        assert!(through.contains_key("heavy"), "those who ask most are remembered");
    }
}
