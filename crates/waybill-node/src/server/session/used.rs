//! Which tokens have been used: each is good once.
//!
//! An audit ID is remembered until every token that could have it has ended. Memory is bounded: if
//! more sessions begin in that time than can be remembered, further ones have to wait.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use waybill_api::exec::SESSION_SECONDS;

use super::{SessionFault, token::CLOCK_SKEW};

/// More than a machine can start in the time that they are remembered.
const CAPACITY: usize = 65_536;

/// From the moment in which a token was good until it has certainly ended, in seconds.
const REMEMBERED: i64 = SESSION_SECONDS + 2 * CLOCK_SKEW;

#[derive(Default)]
pub(super) struct UsedIds(Mutex<Used>);

#[derive(Default)]
struct Used {
    ids: HashSet<Arc<str>>,
    /// In the order in which they were used, with when they can be forgotten.
    order: VecDeque<(i64, Arc<str>)>,
}

impl UsedIds {
    /// Uses an ID at `now`, in seconds since 1970. Its token's signature was good, so that nobody else
    /// can fill the memory.
    pub(super) fn take(&self, id: &str, now: i64) -> Result<(), SessionFault> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.forget(now);
        if used.ids.contains(id) {
            return Err(SessionFault::Used);
        }
        if used.ids.len() >= CAPACITY {
            return Err(SessionFault::TooMany);
        }
        let id: Arc<str> = id.into();
        used.ids.insert(Arc::clone(&id));
        used.order.push_back((now.saturating_add(REMEMBERED), id));
        Ok(())
    }
}

impl Used {
    fn forget(&mut self, now: i64) {
        while let Some((until, id)) = self.order.front()
            && *until < now
        {
            self.ids.remove(id);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_good_once_until_its_token_has_ended() {
        let used = UsedIds::default();
        assert_eq!(used.take("a", 0), Ok(()));
        assert_eq!(used.take("a", 0), Err(SessionFault::Used));
        assert_eq!(used.take("b", 50), Ok(()));
        assert_eq!(used.take("a", REMEMBERED), Err(SessionFault::Used));
        assert_eq!(used.take("a", REMEMBERED + 1), Ok(()));
        assert_eq!(used.take("b", REMEMBERED + 1), Err(SessionFault::Used));
        assert_eq!(used.0.lock().unwrap().order.len(), 2);
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_forgotten_early() {
        let used = UsedIds::default();
        for number in 0..CAPACITY {
            used.take(&number.to_string(), 0).unwrap();
        }
        assert_eq!(used.take("one more", 0), Err(SessionFault::TooMany));
        assert_eq!(used.take("0", 0), Err(SessionFault::Used));
        assert_eq!(used.take("one more", REMEMBERED + 1), Ok(()));
        assert_eq!(used.0.lock().unwrap().ids.len(), 1);
    }
}
