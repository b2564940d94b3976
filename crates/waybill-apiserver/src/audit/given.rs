//! Which Secrets each user was given by a read that is on record.
//!
//! Reads that repeat each other have a budget ([`super::budget`]), and a user who has used it up could read another Secret
//! unseen. So a read that gives somebody an object for the first time in a day has a budget of its own. Only objects that
//! exist are noted: nobody uses that up with names that they made up.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};

use crate::cache::ObjectKey;

/// For so long a read counts as known.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// So much is noted at most, in a few megabytes. What is forgotten for more is recorded once more, within its budget.
const NOTES: usize = 200_000;

/// What is noted.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Notes are numbers under a key of ours, so that nobody finds two reads with the same.
    key: RandomState,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    began: Option<Timestamp>,
    noted: HashSet<u64>,
}

/// What one read gives a user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gift(Vec<u64>);

impl Given {
    /// That `user` gets these objects.
    pub(super) fn gift<'a>(
        &self,
        user: &str,
        objects: impl Iterator<Item = &'a ObjectKey>,
    ) -> Gift {
        Gift(objects.map(|object| self.key.hash_one((user, object))).collect())
    }

    /// Whether something of it is not on record yet.
    pub(super) fn is_new(&self, gift: &Gift, now: Timestamp) -> bool {
        let mut state = self.lock();
        // A clock that was set back begins anew as well.
        let is_today =
            state.began.is_some_and(|began| now >= began && now.duration_since(began) < DAY);
        if !is_today {
            *state = State { began: Some(now), noted: HashSet::new() };
        }
        gift.0.iter().any(|note| !state.noted.contains(note))
    }

    /// It is on record now.
    pub(super) fn note(&self, gift: Gift) {
        let mut state = self.lock();
        if state.noted.len().saturating_add(gift.0.len()) > NOTES {
            state.noted.clear();
        }
        state.noted.extend(gift.0.into_iter().take(NOTES));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(hour * 3600).unwrap()
    }

    fn keys(names: std::ops::Range<usize>) -> Vec<ObjectKey> {
        names.map(|name| ObjectKey::new("default", &name.to_string())).collect()
    }

    #[test]
    fn what_a_user_was_given_is_known_for_a_day() {
        let given = Given::default();
        let gift = |user: &str, names| given.gift(user, keys(names).iter());
        assert!(given.is_new(&gift("jane", 0..3), at(0)));
        given.note(gift("jane", 0..3));
        assert!(!given.is_new(&gift("jane", 1..2), at(23)));
        assert!(given.is_new(&gift("jane", 1..4), at(23)), "one of them is new");
        assert!(given.is_new(&gift("bob", 1..2), at(23)));
        assert!(!given.is_new(&gift("bob", 0..0), at(23)), "nothing is given");
        assert!(given.is_new(&gift("jane", 1..2), at(24)));
    }

    #[test]
    fn what_is_noted_has_a_bound_and_is_recorded_again_when_it_was_forgotten() {
        let given = Given::default();
        let gift = |user: usize| given.gift(&user.to_string(), keys(0..1_000).iter());
        for user in 0..250 {
            assert!(given.is_new(&gift(user), at(0)));
            given.note(gift(user));
            assert!(!given.is_new(&gift(user), at(0)));
            assert!(given.lock().noted.len() <= NOTES);
        }
        assert!(given.is_new(&gift(0), at(0)));
        given.note(given.gift("x", keys(0..NOTES + 5).iter()));
        assert!(given.lock().noted.len() <= NOTES);
    }
}
