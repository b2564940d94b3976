//! Values that are given out again for a while, in memory only (CSI-47).
//!
//! A value is found again only by whoever could have read it: under the same class with the same
//! parameters, by the same kind of reader ([`Sharing`](crate::driver::Sharing)), for the same key and parameters of the variable. A
//! class that changes is another class. Allow-lists are checked before each look, so that a class that stops
//! serving a pod stops at once. Values are wiped when their time is over, when they are invalidated and
//! with the cache. Failures are not kept.

mod share;
mod shelf;
mod stock;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::{Mutex as Turn, Notify},
    time::{Instant, sleep_until},
};
use waybill_core::secret::SecretBytes;

#[cfg(feature = "http")]
pub(crate) use self::share::gives_way;
pub(crate) use self::shelf::Shelf;
use self::stock::Stock;
use crate::driver::Query;

/// What an entry takes beside its text, roughly.
const ENTRY_BYTES: usize = 256;

/// How long a value may stay beyond its time, unused, before it is wiped.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// Values that were read before.
///
/// When it is full, the namespace for which it holds most gives way, so that none can push out what others use.
pub struct Cache {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    stock: Stock,
    /// Changes with each invalidation.
    generation: u64,
    flights: HashMap<(Shelf, Vec<Query>), Weak<Turn<()>>>,
}

/// A read for a namespace, and when it began: what was read before an invalidation does not come in after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading<'a> {
    namespace: &'a str,
    generation: u64,
}

impl Cache {
    /// An empty cache that takes at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let state = State { stock: Stock::new(limit), generation: 0, flights: HashMap::new() };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Wipes everything.
    pub fn clear(&self) {
        self.forget(|_| false);
    }

    /// Wipes what was read for a ProviderClass.
    pub fn invalidate_class(&self, class: &str) {
        self.forget(|shelf| shelf.class != class);
    }

    /// How many bytes it holds, roughly.
    pub fn bytes(&self) -> usize {
        self.state().stock.bytes()
    }

    /// To be called before the backend is asked on behalf of `namespace`.
    pub(crate) fn reading<'a>(&self, namespace: &'a str) -> Reading<'a> {
        Reading { namespace, generation: self.state().generation }
    }

    /// The values of `queries` that are there, in their order.
    pub(crate) fn find(
        &self,
        shelf: &Shelf,
        queries: &[Query],
        now: Instant,
    ) -> Vec<Option<SecretBytes>> {
        let state = self.state();
        let value = |query| {
            let value = state.stock.find(shelf, query, now)?;
            Some(SecretBytes::copy_of(value.expose()))
        };
        queries.iter().map(value).collect()
    }

    /// Keeps a value until `ends`, if there is room and nothing was invalidated since `read` began.
    pub(crate) fn keep(
        &self,
        shelf: &Shelf,
        query: &Query,
        value: &SecretBytes,
        ends: Instant,
        read: Reading<'_>,
    ) {
        let mut state = self.state();
        if state.generation != read.generation {
            return;
        }
        let earliest = state.stock.earliest();
        state.stock.put(read.namespace, shelf, query, value, ends);
        if state.stock.earliest() != earliest {
            self.changed.notify_one();
        }
    }

    /// What those hold, one after the other, who ask the same at the same time: the first asks the backend,
    /// the others find what it found.
    pub(crate) fn flight(&self, shelf: &Shelf, queries: &[Query]) -> Arc<Turn<()>> {
        let mut state = self.state();
        state.flights.retain(|_, flight| flight.strong_count() > 0);
        let flight = state.flights.entry((shelf.clone(), queries.to_vec())).or_default();
        flight.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *flight = Arc::downgrade(&new);
            new
        })
    }

    /// Wipes values when their time is over. Never returns.
    pub(crate) async fn sweep(&self) {
        loop {
            let earliest = self.state().stock.earliest();
            match earliest {
                None => self.changed.notified().await,
                Some(at) => tokio::select! {
                    () = sleep_until(at.max(Instant::now() + SWEEP_PAUSE)) => {}
                    () = self.changed.notified() => {}
                },
            }
            self.state().stock.remove_old(Instant::now());
        }
    }

    fn forget(&self, keep: impl Fn(&Shelf) -> bool) {
        let mut state = self.state();
        state.generation += 1;
        state.stock.retain(keep);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn map_bytes(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[cfg(test)]
mod tests;
