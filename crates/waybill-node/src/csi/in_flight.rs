//! How many calls to one driver are under way. More than may be wait, and only for this driver (CSI-42).
//!
//! Namespaces share the places: one may have as many calls as it leaves places free. So calls of one namespace
//! that hang leave half of the places to others, those of two a quarter; and a place that becomes free is for
//! the namespace that has fewest. Only a driver that takes one call at a time can be held up by one namespace,
//! and then for one call.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::{sync::oneshot, time::timeout};

/// The calls to one driver.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: u32,
    /// Places that were given, ever.
    given: u64,
    /// Only namespaces that have calls, running or waiting.
    shares: BTreeMap<String, Share>,
}

/// The calls of one namespace.
#[derive(Debug, Default)]
struct Share {
    running: u32,
    waiting: VecDeque<Waiting>,
    /// When it was given a place last.
    served: u64,
}

#[derive(Debug)]
struct Waiting {
    /// Calls that may run at once, as the class of this one says.
    limit: u32,
    place: oneshot::Sender<Slot>,
}

/// A call that runs; it ends with this.
#[derive(Debug)]
pub(super) struct Slot {
    calls: Arc<InFlight>,
    namespace: String,
}

/// Others took all the time there was.
#[derive(Debug)]
pub(super) struct Crowded;

impl InFlight {
    /// Waits for a place for a call of `namespace` among `limit`, for as long as `patience`.
    pub(super) async fn enter(
        self: &Arc<Self>,
        namespace: &str,
        limit: u32,
        patience: Duration,
    ) -> Result<Slot, Crowded> {
        let (place, given) = oneshot::channel();
        let waiting = Waiting { limit, place };
        self.lock().shares.entry(namespace.to_owned()).or_default().waiting.push_back(waiting);
        self.give();
        match timeout(patience, given).await {
            Ok(Ok(slot)) => Ok(slot),
            // Nobody drops a sender that waits; a place that comes too late is given back by its drop.
            Ok(Err(_)) | Err(_) => Err(Crowded),
        }
    }

    /// Gives away what is free.
    fn give(self: &Arc<Self>) {
        loop {
            // A place that is not taken is given back, which takes the lock again.
            let Some((namespace, waiting)) = self.lock().next() else { return };
            let _ = waiting.place.send(Slot { calls: Arc::clone(self), namespace });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a place for the call that is next: of the namespace with the fewest calls, and of those the
    /// one that waited longest for its turn.
    fn next(&mut self) -> Option<(String, Waiting)> {
        let running = self.running;
        self.shares.retain(|_, share| {
            share.waiting.retain(|waiting| !waiting.place.is_closed());
            share.running > 0 || !share.waiting.is_empty()
        });
        let fitting = self.shares.iter_mut().filter_map(|(namespace, share)| {
            let position = share.waiting.iter().position(|it| share.fits(running, it.limit))?;
            Some((namespace, share, position))
        });
        let turn = |share: &Share| (share.running, share.served);
        let (namespace, share, position) = fitting.min_by_key(|(_, share, _)| turn(share))?;
        let waiting = share.waiting.remove(position)?;
        self.running += 1;
        self.given += 1;
        share.running += 1;
        share.served = self.given;
        Some((namespace.clone(), waiting))
    }
}

impl Share {
    /// Whether one more call leaves as many places free as the namespace has then, or is its only one.
    fn fits(&self, running: u32, limit: u32) -> bool {
        self.running < limit.saturating_sub(running)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut state = self.calls.lock();
            state.running = state.running.saturating_sub(1);
            if let Some(share) = state.shares.get_mut(&self.namespace) {
                share.running = share.running.saturating_sub(1);
            }
        }
        self.calls.give();
    }
}

/// One call in the gauge, running or waiting (OP-37); it ends with this.
pub(super) struct Counted(Gauge);

impl Counted {
    pub(super) fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    type Calls = Arc<InFlight>;

    /// A place that is free now.
    #[track_caller]
    fn enter(calls: &Calls, namespace: &str, limit: u32) -> Option<Slot> {
        calls.enter(namespace, limit, LONG).now_or_never().map(Result::unwrap)
    }

    /// CSI-42
    #[tokio::test]
    async fn calls_beyond_the_limit_wait_for_one_to_end_csi_42() {
        let calls = Calls::default();
        let first = enter(&calls, "a", 2).unwrap();
        let second = enter(&calls, "b", 2).unwrap();
        let mut third = Box::pin(calls.enter("c", 2, LONG));
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        let third = third.await.unwrap();
        assert!(enter(&calls, "a", 2).is_none());
        drop((second, third));
        assert!(enter(&calls, "a", 1).is_some());
    }

    /// CSI-42: 100 places, as by default.
    #[tokio::test]
    async fn every_namespace_that_comes_finds_a_place_csi_42() {
        let calls = Calls::default();
        let mut held = Vec::new();
        for (namespace, number) in [("a", 50), ("b", 25), ("c", 13), ("d", 6), ("e", 3)] {
            let before = held.len();
            while let Some(slot) = enter(&calls, namespace, 100) {
                held.push(slot);
            }
            assert_eq!(held.len() - before, number, "{namespace}, after {before}");
        }
        assert!(enter(&calls, "f", 100).is_some());
    }

    /// CSI-42: a driver that takes one call at a time goes round.
    #[tokio::test]
    async fn a_place_that_is_free_is_for_who_had_none_csi_42() {
        let calls = Calls::default();
        let first = enter(&calls, "greedy", 1).unwrap();
        let mut more: Vec<_> = (0..3).map(|_| Box::pin(calls.enter("greedy", 1, LONG))).collect();
        assert!(more.iter_mut().all(|it| it.now_or_never().is_none()));
        let mut other = Box::pin(calls.enter("other", 1, LONG));
        assert!((&mut other).now_or_never().is_none());
        drop(first);
        assert!(more.iter_mut().all(|it| it.now_or_never().is_none()));
        drop(other.now_or_never().unwrap().unwrap());
        assert!((&mut more[0]).now_or_never().unwrap().is_ok());
    }

    /// A class that allows fewer calls holds up nobody else of its namespace.
    #[tokio::test]
    async fn who_waits_for_more_does_not_stand_in_the_way() {
        let calls = Calls::default();
        let _first = enter(&calls, "a", 10).unwrap();
        let mut strict = Box::pin(calls.enter("a", 1, LONG));
        assert!((&mut strict).now_or_never().is_none());
        assert!(enter(&calls, "a", 10).is_some());
    }

    /// OP-37
    #[tokio::test]
    async fn patience_ends() {
        let calls = Calls::default();
        let _first = enter(&calls, "a", 1).unwrap();
        assert!(calls.enter("a", 1, Duration::ZERO).await.is_err());
    }

    /// A start that was given up takes no place, also if it had been given one.
    #[tokio::test]
    async fn who_stops_waiting_is_not_counted() {
        let calls = Calls::default();
        let first = enter(&calls, "a", 1).unwrap();
        let mut second = Box::pin(calls.enter("a", 1, LONG));
        let mut third = Box::pin(calls.enter("a", 1, LONG));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        drop(first);
        // It has the place now, and never looks.
        drop(third);
        assert!(enter(&calls, "a", 1).is_some());
        assert!(calls.lock().shares.is_empty(), "nobody is remembered");
    }
}
