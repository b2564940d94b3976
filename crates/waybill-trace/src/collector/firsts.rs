//! What is kept of those who are over their share: the first program of each file in each session. Pure.
//!
//! Who keeps a storm of programs going would otherwise run anything behind it, of which the record has a number and no name.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use super::budget::{Budget, Share};
use crate::record::Whose;

/// So many files are remembered. Beyond it all are forgotten: then some are kept once more, if the share for them is not used up.
const FILES: usize = 1 << 16;

/// Which files ran in which session of those who are over their share.
#[derive(Debug)]
pub(crate) struct Firsts {
    /// Of its own, so that a storm does not use it up.
    budget: Budget,
    seen: HashSet<u64>,
    /// Nobody can choose names that look like those of others.
    hasher: RandomState,
}

impl Firsts {
    pub(crate) fn new(share: Share) -> Self {
        Self { budget: Budget::new(share), seen: HashSet::new(), hasher: RandomState::new() }
    }

    /// Whether this is the first program of its file in its session, and is kept for that.
    pub(crate) fn takes(
        &mut self,
        whose: &Whose,
        (session, file): (&str, &str),
        bytes: u64,
        second: u64,
    ) -> bool {
        let file = self.hasher.hash_one((session, file));
        if self.seen.contains(&file) || !self.budget.takes(whose, bytes, second) {
            return false;
        }
        if self.seen.len() >= FILES {
            self.seen.clear();
        }
        self.seen.insert(file);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hole: who was over their share ran a program of which there was no line.
    #[test]
    fn a_storm_hides_no_file_that_did_not_run_before() {
        let mut firsts = Firsts::new(Share { at_once: 100, each_second: 0 });
        let mallory = Whose::User("mallory".to_owned());
        assert!(firsts.takes(&mallory, ("a", "/bin/true"), 10, 0));
        for _ in 0..1_000 {
            assert!(!firsts.takes(&mallory, ("a", "/bin/true"), 10, 0), "this is the storm");
        }
        assert!(firsts.takes(&mallory, ("a", "/tmp/evil"), 10, 0));
        assert!(firsts.takes(&mallory, ("b", "/tmp/evil"), 10, 0), "in another session");
        assert!(!firsts.takes(&mallory, ("b", "/tmp/long"), 80, 0), "it has an end too");
        assert!(firsts.takes(&Whose::User("anna".to_owned()), ("c", "/bin/true"), 80, 0));
    }

    #[test]
    fn files_are_forgotten_beyond_a_number() {
        let mut firsts = Firsts::new(Share { at_once: u64::MAX, each_second: 0 });
        for at in 0..3 * FILES {
            firsts.takes(&Whose::Node, ("a", &at.to_string()), 1, 0);
        }
        assert!(firsts.seen.len() <= FILES);
    }
}
