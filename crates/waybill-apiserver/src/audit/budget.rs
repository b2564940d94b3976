//! How much of the audit log somebody may fill who changes nothing.
//!
//! What a stranger, or a user who is refused, sends is recorded up to a rate, and so is what a user reads. Beyond it
//! events are left out; they are counted, and the log says how many.

use std::{collections::HashMap, mem};

use jiff::{SignedDuration, Timestamp};

/// What somebody may cause: so many events at once, and so many in an hour after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    burst: u32,
    per_hour: u32,
}

impl Allowance {
    /// All strangers together, who have a log of their own.
    const STRANGERS: Self = Self { burst: 1_000, per_hour: 36_000 };

    // Those of users share one log, so they are counted by size: a record of up to [`BYTES_OF_EVENT`] is one event. What one user
    // writes in a week, at all these rates together, leaves the log of that week to the others.

    /// What a user is refused.
    pub(super) const REFUSALS: Self = Self { burst: 1_000, per_hour: 1_200 };

    /// Tokens that a user gets. Who asks for more gets the last one again, which holds for minutes.
    pub(super) const LOGINS: Self = Self { burst: 1_000, per_hour: 36 };

    /// What a user reads: more than people and programs do, unless they want the log to be about nothing else.
    pub(super) const READS: Self = Self { burst: 10_000, per_hour: 1_200 };

    /// Reads of Secrets that the user was given before.
    pub(super) const SECRETS_AGAIN: Self = Self { burst: 10_000, per_hour: 600 };

    /// Reads of Secrets that give the user something for the first time in a day: 10,000 of them each day.
    pub(super) const NEW_SECRETS: Self = Self { burst: 10_000, per_hour: 420 };
}

const BYTES_OF_EVENT: u64 = 1 << 10;

/// As many as an hour has milliseconds, so that a rate by the hour makes up for whole numbers in each of them.
const EVENT: u32 = 3_600_000;

/// The log tells at most this often what is left out.
pub(super) const QUIET: SignedDuration = SignedDuration::from_secs(10);

/// So many users have a budget of their own; all others share one.
const USERS: usize = 1_000;

/// The budgets of users, by their names.
#[derive(Debug)]
pub(crate) struct Budgets {
    users: HashMap<String, Budget>,
    others: Budget,
    /// What a user may cause.
    each: Allowance,
}

/// One budget, and what was left out because it was used up.
#[derive(Debug)]
pub(crate) struct Budget {
    allowance: Allowance,
    /// What was recorded and not made up for yet; an event is [`EVENT`].
    used: i64,
    /// When that was so.
    at: Option<Timestamp>,
    left_out: Option<LeftOut>,
    told: Option<Timestamp>,
}

/// Events that the log does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) events: u64,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Default for Budget {
    /// That of strangers.
    fn default() -> Self {
        Self::new(Allowance::STRANGERS)
    }
}

impl Budget {
    fn new(allowance: Allowance) -> Self {
        Self { allowance, used: 0, at: None, left_out: None, told: None }
    }

    /// Whether another event may be recorded. If not, it is counted.
    pub(crate) fn take(&mut self, now: Timestamp) -> bool {
        self.take_bytes(0, now)
    }

    /// The same for an event of that size.
    fn take_bytes(&mut self, bytes: u64, now: Timestamp) -> bool {
        let cost = bytes.saturating_mul(u64::from(EVENT)) / BYTES_OF_EVENT;
        let cost = i64::try_from(cost).unwrap_or(i64::MAX).max(i64::from(EVENT));
        let passed = self.at.map_or(i64::MAX, |at| {
            i64::try_from(now.duration_since(at).as_millis()).unwrap_or(i64::MAX)
        });
        let regained = passed.max(0).saturating_mul(i64::from(self.allowance.per_hour));
        self.used = self.used.saturating_sub(regained).max(0);
        self.at = Some(now);
        if self.used.saturating_add(cost) <= i64::from(self.allowance.burst) * i64::from(EVENT) {
            self.used += cost;
            return true;
        }
        let left_out = self.left_out.get_or_insert(LeftOut { events: 0, from: now, to: now });
        (left_out.events, left_out.to) = (left_out.events.saturating_add(1), now);
        false
    }

    /// What was left out and not told yet, if it is time to tell.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<LeftOut> {
        if self.told.is_some_and(|told| now.duration_since(told) < QUIET) {
            return None;
        }
        let left_out = mem::take(&mut self.left_out)?;
        self.told = Some(now);
        Some(left_out)
    }

    /// The same at the end, whenever it was told last.
    pub(crate) fn last_word(&mut self) -> Option<LeftOut> {
        mem::take(&mut self.left_out)
    }

    /// For a line of the server's own log that a stranger causes: so many are left out before it, or
    /// nothing if it is left out too.
    pub(crate) fn take_line(&mut self, now: Timestamp) -> Option<u64> {
        let taken = self.take(now);
        taken.then(|| mem::take(&mut self.left_out).map_or(0, |left_out| left_out.events))
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        let Allowance { burst, per_hour } = self.allowance;
        let rest = SignedDuration::from_hours(1 + i64::from(burst / per_hour));
        let rested = self.at.is_none_or(|at| now.duration_since(at) > rest);
        rested && self.left_out.is_none()
    }
}

impl Budgets {
    /// Each user may cause so much.
    pub(super) fn new(each: Allowance) -> Self {
        Self { users: HashMap::new(), others: Budget::new(each), each }
    }

    /// Whether another event of `user`, of that size, may be recorded. If not, it is counted.
    pub(crate) fn take(&mut self, user: &str, bytes: u64, now: Timestamp) -> bool {
        if let Some(budget) = self.users.get_mut(user) {
            return budget.take_bytes(bytes, now);
        }
        if self.users.len() >= USERS {
            self.users.retain(|_, budget| !budget.is_idle(now));
        }
        if self.users.len() >= USERS {
            return self.others.take_bytes(bytes, now);
        }
        let each = self.each;
        let budget = self.users.entry(user.to_owned()).or_insert_with(|| Budget::new(each));
        budget.take_bytes(bytes, now)
    }

    /// What was left out and not told yet, with the user; an empty name stands for many.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<(String, LeftOut)> {
        let users = self.users.iter_mut();
        let users = users.filter_map(|(user, budget)| Some((user.clone(), budget.take_due(now)?)));
        let mut told: Vec<_> = users.collect();
        told.extend(self.others.take_due(now).map(|left_out| (String::new(), left_out)));
        told
    }

    /// The same at the end.
    pub(crate) fn last_words(&mut self) -> Vec<(String, LeftOut)> {
        let users = self.users.iter_mut();
        let users = users.filter_map(|(user, budget)| Some((user.clone(), budget.last_word()?)));
        let mut told: Vec<_> = users.collect();
        told.extend(self.others.last_word().map(|left_out| (String::new(), left_out)));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::file::Rotation;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    #[test]
    fn a_burst_is_recorded_then_so_many_a_second_and_the_rest_is_counted() {
        let mut budget = Budget::default();
        let taken = (0..1500).filter(|_| budget.take(at(0))).count();
        assert_eq!(taken, 1000);
        assert_eq!((0..100).filter(|_| budget.take(at(1000))).count(), 10);
        let left_out = LeftOut { events: 590, from: at(0), to: at(1000) };
        assert_eq!(budget.take_due(at(1000)), Some(left_out));
        assert!(!budget.take(at(1001)));
        assert_eq!(budget.take_due(at(2000)), None, "not again so soon");
        assert_eq!(budget.take_due(at(11_000)).map(|it| it.events), Some(1));
        // A clock that was set back gives nothing away.
        assert!(budget.take(at(20_000)) && budget.take(at(5)));
    }

    /// Hole: each request with a wrong token was a line of the server's log, which nobody rotates.
    #[test]
    fn lines_that_strangers_cause_have_a_limit_and_the_next_one_tells_what_is_missing() {
        let mut budget = Budget::default();
        let lines: Vec<_> = (0..3_000).filter_map(|_| budget.take_line(at(0))).collect();
        assert_eq!((lines.len(), lines.iter().sum::<u64>()), (1_000, 0));
        assert_eq!(budget.take_line(at(1_000)), Some(2_000));
        assert_eq!(budget.take_line(at(1_000)), Some(0));
    }

    #[test]
    fn one_user_does_not_use_up_what_another_may() {
        let mut budgets = Budgets::new(Allowance::REFUSALS);
        while budgets.take("mallory", 0, at(0)) {}
        assert!(budgets.take("jane", 0, at(0)));
        let told = budgets.take_due(at(0));
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0.as_str(), told[0].1.events), ("mallory", 1));
    }

    /// Hole: ten records a second, each as large as headers may be, rotated the log of all users away within an hour.
    #[test]
    fn a_user_who_changes_nothing_pushes_out_no_record_that_the_log_promises_to_keep() {
        let Rotation { max_bytes, max_backups, keep_at_least, .. } = Rotation::default();
        let room = max_bytes * max_backups.unwrap() as u64;
        let notice = 1 << 10;
        for bytes in [100, 700, 5_000, 64 << 10] {
            let mut written = 0;
            for each in [
                Allowance::REFUSALS,
                Allowance::LOGINS,
                Allowance::READS,
                Allowance::SECRETS_AGAIN,
                Allowance::NEW_SECRETS,
            ] {
                let mut budgets = Budgets::new(each);
                for second in (0..keep_at_least.as_secs()).step_by(10) {
                    let now = at(second * 1000);
                    while budgets.take("mallory", bytes, now) {
                        written += bytes;
                    }
                    written += notice * budgets.take_due(now).len() as u64;
                }
            }
            assert!(written < room * 9 / 10, "{bytes}: {written} of {room}");
        }
    }

    #[test]
    fn many_names_do_not_grow_without_bound() {
        let mut budgets = Budgets::new(Allowance::REFUSALS);
        for user in 0..5_000 {
            budgets.take(&user.to_string(), 0, at(0));
        }
        assert!(budgets.users.len() <= USERS);
        // Those who rest make room for others.
        budgets.take("late", 0, at(7_200_000));
        assert!(budgets.users.contains_key("late"));
    }
}
