//! How many requests are worked on at once: of all users together, and of each.
//!
//! A request counts until its answer is sent or given up, so a client that asks and does not read
//! uses up its own share. As upstream, requests that read and requests that change something have
//! limits of their own, what lasts (watches, sessions) does not count, and members of
//! `system:masters` are never refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// What a request does to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestKind {
    Mutating,
    Reading,
}

/// Counts requests.
#[derive(Debug)]
pub(crate) struct InFlight {
    most_reading: usize,
    most_mutating: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: HashMap<RequestKind, usize>,
    /// Of users who have any.
    of_user: HashMap<(RequestKind, String), usize>,
}

/// One request that counts as long as this lives.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    counted: Arc<InFlight>,
    kind: RequestKind,
    user: String,
}

impl InFlight {
    /// At most so many requests of each kind; 0 is no limit. One user has at most half of them.
    pub(crate) fn new(most_reading: usize, most_mutating: usize) -> Arc<Self> {
        Arc::new(Self { most_reading, most_mutating, counts: Mutex::default() })
    }

    /// Counts a request of `user`; nothing if there are too many.
    pub(crate) fn begin(
        self: &Arc<Self>,
        user: &str,
        kind: RequestKind,
    ) -> Option<InFlightRequest> {
        let most = match kind {
            RequestKind::Mutating => self.most_mutating,
            RequestKind::Reading => self.most_reading,
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let all = counts.all.get(&kind).copied().unwrap_or_default();
        let key = (kind, user.to_owned());
        let own = counts.of_user.get(&key).copied().unwrap_or_default();
        if most > 0 && (all >= most || own >= most.div_ceil(2)) {
            return None;
        }
        counts.all.insert(kind, all.saturating_add(1));
        counts.of_user.insert(key, own.saturating_add(1));
        Some(InFlightRequest { counted: Arc::clone(self), kind, user: user.to_owned() })
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut counts = self.counted.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = counts.all.get_mut(&self.kind) {
            *all = all.saturating_sub(1);
        }
        let key = (self.kind, std::mem::take(&mut self.user));
        if let Some(own) = counts.of_user.get_mut(&key) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                counts.of_user.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_half_and_all_have_no_more_than_all() {
        let requests = InFlight::new(4, 1);
        let reading = |user: &str| requests.begin(user, RequestKind::Reading);
        let first = reading("a").unwrap();
        let _second = reading("a").unwrap();
        assert!(reading("a").is_none(), "half of them");
        let _third = reading("b").unwrap();
        let _fourth = reading("c").unwrap();
        assert!(reading("d").is_none(), "all of them");
        let changing = requests.begin("a", RequestKind::Mutating).unwrap();
        assert!(requests.begin("b", RequestKind::Mutating).is_none());
        drop((first, changing));
        assert!(reading("d").is_some());
        assert!(requests.begin("b", RequestKind::Mutating).is_some());
    }

    #[test]
    fn nothing_is_kept_of_users_without_requests() {
        let requests = InFlight::new(1, 1);
        drop(requests.begin("a", RequestKind::Reading));
        let held = requests.begin("b", RequestKind::Reading).unwrap();
        assert!(requests.begin("c", RequestKind::Reading).is_none());
        drop(held);
        assert!(requests.counts.lock().unwrap().of_user.is_empty());
        let unlimited = InFlight::new(0, 0);
        let many: Vec<_> = (0..1000).map(|_| unlimited.begin("a", RequestKind::Reading)).collect();
        assert!(many.iter().all(Option::is_some));
    }
}
