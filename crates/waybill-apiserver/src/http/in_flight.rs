//! How many requests are worked on at once: of all users together, and of each.
//!
//! A request counts until its answer is sent or given up, so a client that asks and does not read
//! uses up its own share. As upstream, requests that read and requests that change something have
//! limits of their own, and members of `system:masters` are never refused. What lasts (watches,
//! sessions) has a limit of its own, because each keeps a place in the audit log.
//!
//! However many requests are under way, each user may have a few: who would shut out others, nodes
//! among them, needs more than a handful of users who do not read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// What a request does to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestKind {
    /// Whatever it does, it goes on.
    Lasting,
    Mutating,
    Reading,
}

/// Counts requests.
#[derive(Debug)]
pub(crate) struct InFlight {
    most_reading: usize,
    most_mutating: usize,
    most_lasting: usize,
    counts: Mutex<Counts>,
}

/// Of so many requests that may be under way, one is for each user in any case.
const OWN_SHARE: usize = 40;

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
    pub(crate) fn new(most_reading: usize, most_mutating: usize, most_lasting: usize) -> Arc<Self> {
        Arc::new(Self { most_reading, most_mutating, most_lasting, counts: Mutex::default() })
    }

    /// Counts a request of `user`; nothing if there are too many.
    pub(crate) fn begin(
        self: &Arc<Self>,
        user: &str,
        kind: RequestKind,
    ) -> Option<InFlightRequest> {
        let most = match kind {
            RequestKind::Lasting => self.most_lasting,
            RequestKind::Mutating => self.most_mutating,
            RequestKind::Reading => self.most_reading,
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let all = counts.all.get(&kind).copied().unwrap_or_default();
        let key = (kind, user.to_owned());
        let own = counts.of_user.get(&key).copied().unwrap_or_default();
        let all_are_taken = all >= most && own >= most / OWN_SHARE;
        if most > 0 && (all_are_taken || own >= most.div_ceil(2)) {
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
        let requests = InFlight::new(4, 1, 0);
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

    /// Hole: two users without rights who did not read their answers made the server refuse everybody
    /// else, nodes that renew their leases among them.
    #[test]
    fn however_many_ask_each_user_is_served_a_little() {
        let requests = InFlight::new(400, 200, 0);
        let mutating = |user: &str| requests.begin(user, RequestKind::Mutating);
        let held: Vec<_> =
            (0..200).map(|number| mutating(["mallory", "trudy"][number % 2])).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(mutating("mallory").is_none() && mutating("trudy").is_none());
        let node: Vec<_> = (0..6).map(|_| mutating("system:node:a")).collect();
        assert_eq!(node.iter().flatten().count(), 5, "little is left, and nobody is shut out");
        assert!(mutating("jane").is_some());
    }

    #[test]
    fn nothing_is_kept_of_users_without_requests() {
        let requests = InFlight::new(1, 1, 0);
        drop(requests.begin("a", RequestKind::Reading));
        let held = requests.begin("b", RequestKind::Reading).unwrap();
        assert!(requests.begin("c", RequestKind::Reading).is_none());
        drop(held);
        assert!(requests.counts.lock().unwrap().of_user.is_empty());
        let unlimited = InFlight::new(0, 0, 0);
        let many: Vec<_> = (0..1000).map(|_| unlimited.begin("a", RequestKind::Reading)).collect();
        assert!(many.iter().all(Option::is_some));
    }
}
