//! How much each user may fill of the record: who runs programs without end must not push out what others did. Pure.

use std::collections::HashMap;

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
    users: HashMap<String, Left>,
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
    pub(crate) fn takes(&mut self, user: &str, bytes: u64, second: u64) -> bool {
        if !self.users.contains_key(user) {
            self.make_room(second);
            self.users.insert(user.to_owned(), Left { bytes: self.share.at_once, at: second });
        }
        let share = self.share;
        let Some(left) = self.users.get_mut(user) else { return false };
        left.refill(share, second);
        let fits = left.bytes >= bytes;
        if fits {
            left.bytes -= bytes;
        }
        fits
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

    #[test]
    fn who_fills_their_share_takes_nothing_from_others() {
        let mut budget = Budget::new(Share { at_once: 100, each_second: 10 });
        assert!(budget.takes("anna", 60, 0));
        assert!(!budget.takes("anna", 60, 0));
        assert!(budget.takes("ben", 60, 0));
        assert!(budget.takes("anna", 60, 2), "it comes back with time");
        assert!(!budget.takes("anna", 60, 2));
        assert!(!budget.takes("anna", 101, 1_000_000), "but never more than there is at once");
    }

    #[test]
    fn users_who_use_little_are_forgotten() {
        let mut budget = Budget::new(Share { at_once: 100, each_second: 10 });
        for user in 0..3 * USERS {
            budget.takes(&user.to_string(), 1, user as u64);
        }
        assert!(budget.users.len() <= USERS + 1);
    }
}
