//! How many requests are worked on at once: of all users together, and of each.
//!
//! A request counts until its answer is sent or given up, so a client that asks and does not read
//! uses up its own share. As upstream, requests that read and requests that change something have
//! limits of their own, and members of `system:masters` are never refused. What lasts (watches,
//! sessions) has a limit of its own, because each keeps a place in the audit log.
//!
//! Nobody has more than half, so that there is room for the next. When half of all is taken, users who ask at the same
//! time share what there is: the more of them, the less one may have. However many requests are under way, each user may have a few: who would shut out others, nodes
//! among them, needs more than a handful of users who do not read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::turns::{Turn, Turns};

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
    turns: Arc<Turns>,
}

/// Of so many requests that may be under way, one is for each user in any case.
const OWN_SHARE: usize = 40;

#[derive(Debug, Default)]
struct Counts {
    all: HashMap<RequestKind, usize>,
    /// How many users have any.
    users: HashMap<RequestKind, usize>,
    /// Of users who have any.
    of_user: HashMap<(RequestKind, String), usize>,
}

/// One request that counts as long as this lives.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    counted: Arc<InFlight>,
    kind: RequestKind,
    user: String,
    turn: Option<Turn>,
}

impl InFlightRequest {
    /// Waits until it may be worked on, which those wait for who read much at once. See [`Turns`].
    pub(crate) async fn wait_for_turn(mut self) -> Self {
        if self.kind == RequestKind::Reading {
            self.turn = Some(self.counted.turns.begin(&self.user).await);
        }
        self
    }
}

impl InFlight {
    /// At most so many requests of each kind; 0 is no limit. One user has at most half of them, and a share of them
    /// when many ask.
    pub(crate) fn new(most_reading: usize, most_mutating: usize, most_lasting: usize) -> Arc<Self> {
        let (counts, turns) = (Mutex::default(), Turns::new());
        Arc::new(Self { most_reading, most_mutating, most_lasting, counts, turns })
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
        let users = counts.users.get(&kind).copied().unwrap_or_default() + usize::from(own == 0);
        // While there is room nobody is held to their share.
        let sharing = if all.saturating_mul(2) < most { 2 } else { users.max(2) };
        let share = most.div_ceil(sharing);
        let all_are_taken = all >= most && own >= most / OWN_SHARE;
        if most > 0 && (all_are_taken || own >= share.max(most / OWN_SHARE)) {
            return None;
        }
        counts.users.insert(kind, users);
        counts.all.insert(kind, all.saturating_add(1));
        counts.of_user.insert(key, own.saturating_add(1));
        let (counted, user) = (Arc::clone(self), user.to_owned());
        Some(InFlightRequest { counted, kind, user, turn: None })
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
                if let Some(users) = counts.users.get_mut(&self.kind) {
                    *users = users.saturating_sub(1);
                }
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

    #[test]
    fn those_who_ask_at_once_share_what_there_is() {
        let requests = InFlight::new(120, 1, 0);
        let reading = |user: &str| requests.begin(user, RequestKind::Reading);
        let takes = |user: &str| std::iter::from_fn(|| reading(user)).collect::<Vec<_>>();
        let first = takes("a");
        assert_eq!(first.len(), 60, "alone: half");
        let second = takes("b");
        assert_eq!(second.len(), 60, "two: half each");
        let third = takes("c");
        assert_eq!(third.len(), 3, "nobody is shut out");
        drop(first);
        assert_eq!(takes("c").len(), 57, "a third is 40 while two others ask; one of them left");
        drop((second, third));
        let others: Vec<_> = ["a", "b", "c"].map(|user| reading(user).unwrap()).into();
        let fourth = takes("d");
        assert_eq!(fourth.len(), 57, "until half of all are taken");
        drop(fourth);
        let fifth: Vec<_> = (0..60).map(|at| reading(&format!("user-{at}")).unwrap()).collect();
        assert_eq!(takes("d").len(), 3, "then a share, or the few that all have");
        drop((others, fifth));
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
        let counts = requests.counts.lock().unwrap();
        assert!(counts.of_user.is_empty() && counts.users.values().all(|users| *users == 0));
        drop(counts);
        let unlimited = InFlight::new(0, 0, 0);
        let many: Vec<_> = (0..1000).map(|_| unlimited.begin("a", RequestKind::Reading)).collect();
        assert!(many.iter().all(Option::is_some));
    }
}
