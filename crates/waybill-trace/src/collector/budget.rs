//! How much each user may fill of the record: who runs programs without end must not push out what others did. Pure.

use std::collections::HashMap;

use crate::record::Whose;

/// In bytes: at once, and for each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) at_once: u64,
    pub(crate) each_second: u64,
}

/// Users whose budget is full are forgotten beyond this number.
const USERS: usize = 4096;

/// What is left to each user.
#[derive(Debug)]
pub(crate) struct Budget {
    share: Share,
    users: HashMap<Whose, Left>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    bytes: u64,
    /// Seconds of any clock that goes on.
    at: u64,
}

impl Budget {
    pub(crate) fn new(share: Share) -> Self {
        Self { share, users: HashMap::new() }
    }

    /// Whether `bytes` of this user are kept. What is not kept costs nothing.
    pub(crate) fn takes(&mut self, user: &Whose, bytes: u64, second: u64) -> bool {
        let left = self.left(user, second);
        let fits = left.bytes >= bytes;
        if fits {
            left.bytes -= bytes;
        }
        fits
    }

    /// What is kept whatever is left.
    pub(crate) fn charge(&mut self, user: &Whose, bytes: u64, second: u64) {
        let left = self.left(user, second);
        left.bytes = left.bytes.saturating_sub(bytes);
    }

    fn left(&mut self, user: &Whose, second: u64) -> &mut Left {
        if !self.users.contains_key(user) {
            self.make_room(second);
        }
        let (share, full) = (self.share, Left { bytes: self.share.at_once, at: second });
        let left = self.users.entry(user.clone()).or_insert(full);
        left.refill(share, second);
        left
    }

    fn make_room(&mut self, second: u64) {
        if self.users.len() >= USERS {
            let share = self.share;
            self.users.retain(|_, left| {
                left.refill(share, second);
                left.bytes < share.at_once
            });
        }
    }
}

impl Left {
    fn refill(&mut self, share: Share, second: u64) {
        let more = second.saturating_sub(self.at).saturating_mul(share.each_second);
        self.bytes = self.bytes.saturating_add(more).min(share.at_once);
        self.at = self.at.max(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Whose {
        Whose::User(name.to_owned())
    }

    #[test]
    fn who_fills_their_share_takes_nothing_from_others() {
        let mut budget = Budget::new(Share { at_once: 100, each_second: 10 });
        assert!(budget.takes(&user("anna"), 60, 0));
        assert!(!budget.takes(&user("anna"), 60, 0));
        assert!(budget.takes(&user("ben"), 60, 0));
        assert!(budget.takes(&user("anna"), 60, 2), "it comes back with time");
        assert!(!budget.takes(&user("anna"), 60, 2));
        assert!(
            !budget.takes(&user("anna"), 101, 1_000_000),
            "but never more than there is at once"
        );
    }

    #[test]
    fn users_who_use_little_are_forgotten() {
        let mut budget = Budget::new(Share { at_once: 100, each_second: 10 });
        for at in 0..3 * USERS {
            budget.takes(&user(&at.to_string()), 1, at as u64);
        }
        assert!(budget.users.len() <= USERS + 1);
    }
}
