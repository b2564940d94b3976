//! Whose turn it is to be worked on, when more is asked than the machine can do at once.
//!
//! Reading is work of the processor alone, and the runtime has few workers. Whoever asks for twenty long lists at once
//! would have all of them busy, and a single object for somebody else would wait behind twenty lists. So the reads of a user
//! beyond the first begin only while a worker is left for others; the rest wait, users in turn, and each user's in order. Who has
//! nothing under way never waits.
//!
//! A turn lasts until the answer is handed over to the connection. A client that takes its answer slowly keeps its own
//! next read waiting for a moment, [`PATIENCE`], and nobody else's.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::timeout};

/// The longest wait: what is not done by then waits for a client, not for the processor.
const PATIENCE: Duration = Duration::from_millis(20);

/// Lets requests begin.
#[derive(Debug)]
pub(crate) struct Turns {
    /// As many are under way before anybody waits.
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Of users who have anything under way.
    users: HashMap<String, OfUser>,
    /// Users of whom something waits; the first is next.
    order: VecDeque<String>,
}

#[derive(Debug, Default)]
struct OfUser {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to be worked on, as long as it lives.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    user: String,
}

impl Turns {
    /// For the runtime that we are on: one worker stays free.
    pub(crate) fn new() -> Arc<Self> {
        let workers = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        Self::with(workers.saturating_sub(1).max(1))
    }

    fn with(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    /// Waits for a turn of `user`, for a while at most.
    pub(crate) async fn begin(self: &Arc<Self>, user: &str) -> Turn {
        let Err(mut granted) = self.try_begin(user) else { return self.turn(user) };
        match timeout(PATIENCE, &mut granted).await {
            Ok(Ok(turn)) => turn,
            // One that was granted at the last moment is taken.
            Ok(Err(_)) | Err(_) => granted.try_recv().unwrap_or_else(|_| {
                self.lock().begin(user);
                self.turn(user)
            }),
        }
    }

    /// Begins at once, or lines up.
    fn try_begin(&self, user: &str) -> Result<(), oneshot::Receiver<Turn>> {
        let mut state = self.lock();
        if state.running < self.most || !state.users.contains_key(user) {
            state.begin(user);
            return Ok(());
        }
        let (grant, granted) = oneshot::channel();
        let own = state.users.entry(user.to_owned()).or_default();
        own.waiting.push_back(grant);
        if own.waiting.len() == 1 {
            state.order.push_back(user.to_owned());
        }
        Err(granted)
    }

    fn turn(self: &Arc<Self>, user: &str) -> Turn {
        Turn { turns: Arc::clone(self), user: user.to_owned() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, user: &str) {
        self.running += 1;
        self.users.entry(user.to_owned()).or_default().running += 1;
    }

    fn end(&mut self, user: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(own) = self.users.get_mut(user) {
            own.running = own.running.saturating_sub(1);
        }
    }

    /// Who begins now, and how to tell them.
    fn next(&mut self, most: usize) -> Option<(String, oneshot::Sender<Turn>)> {
        loop {
            let idle = |user: &String| self.users.get(user).is_none_or(|own| own.running == 0);
            let place = self.order.iter().position(idle);
            let place = place.or((self.running < most).then_some(0))?;
            let user = self.order.remove(place)?;
            let Some(own) = self.users.get_mut(&user) else { continue };
            // Those who left do not count.
            let grant =
                std::iter::from_fn(|| own.waiting.pop_front()).find(|waiting| !waiting.is_closed());
            if !own.waiting.is_empty() {
                self.order.push_back(user.clone());
            }
            if let Some(grant) = grant {
                self.begin(&user);
                return Some((user, grant));
            }
        }
    }

    /// Forgets a user who has nothing under way any more.
    fn forget(&mut self, user: &str) {
        if self.users.get(user).is_some_and(|own| own.running == 0 && own.waiting.is_empty()) {
            self.users.remove(user);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut state = self.turns.lock();
            state.end(&self.user);
            let next = state.next(self.turns.most);
            state.forget(&self.user);
            next
        };
        if let Some((user, grant)) = next {
            // Who leaves just now gives the turn to the next by dropping it.
            let _ = grant.send(Self { turns: Arc::clone(&self.turns), user });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn that must be there at once.
    #[track_caller]
    fn now(turns: &Arc<Turns>, user: &str) -> Turn {
        turns.try_begin(user).expect("nobody makes them wait");
        turns.turn(user)
    }

    #[track_caller]
    fn waits(turns: &Arc<Turns>, user: &str) -> oneshot::Receiver<Turn> {
        turns.try_begin(user).expect_err("it is not their turn")
    }

    #[test]
    fn who_has_nothing_under_way_begins_at_once_whatever_others_wait_for() {
        let turns = Turns::with(1);
        let greedy = now(&turns, "greedy");
        let mut others: Vec<_> = (0..20).map(|_| waits(&turns, "greedy")).collect();
        for _ in 0..100 {
            drop(now(&turns, "ann"));
        }
        let both = (now(&turns, "ann"), now(&turns, "bob"));
        drop(both);
        assert!(others.iter_mut().all(|waiting| waiting.try_recv().is_err()), "one is under way");
        drop(greedy);
        for (number, waiting) in others.iter_mut().enumerate() {
            // It ends here, and so the next begins.
            assert!(waiting.try_recv().is_ok(), "{number}");
        }
    }

    #[test]
    fn users_come_in_turn_and_each_ones_requests_in_order() {
        let turns = Turns::with(2);
        let held = [now(&turns, "a"), now(&turns, "b")];
        let mut waiting: Vec<_> = ["a1", "a2", "a3", "b1", "b2", "b3"]
            .into_iter()
            .map(|name| (name, waits(&turns, &name[..1])))
            .collect();
        drop(held);
        let mut order = Vec::new();
        let mut running = VecDeque::new();
        while !waiting.is_empty() {
            waiting.retain_mut(|(name, waiting)| match waiting.try_recv() {
                Ok(turn) => {
                    order.push(*name);
                    running.push_back(turn);
                    false
                }
                Err(_) => true,
            });
            assert!(running.len() <= 2, "{order:?}");
            drop(running.pop_front());
        }
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3", "b3"]);
    }

    #[tokio::test]
    async fn nobody_waits_without_end_for_their_own_slow_reader() {
        let turns = Turns::with(1);
        let slow = now(&turns, "a");
        let next = turns.begin("a").await;
        assert_eq!(turns.lock().running, 2);
        drop((slow, next));
        assert_eq!(turns.lock().running, 0);
    }

    #[test]
    fn those_who_leave_lose_nobodys_turn_and_nothing_is_kept() {
        let turns = Turns::with(1);
        let held = now(&turns, "a");
        let mut left: Vec<_> = (0..3).map(|_| waits(&turns, "a")).collect();
        let mut stays = waits(&turns, "a");
        left.pop();
        drop(held);
        // The first was granted the turn, and leaves without having taken it.
        drop(left);
        drop(stays.try_recv().unwrap());
        let state = turns.lock();
        assert!(state.users.is_empty() && state.order.is_empty() && state.running == 0);
    }
}
