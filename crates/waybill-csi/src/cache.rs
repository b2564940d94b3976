//! Values that are given out again for a while, in memory only (CSI-47).
//!
//! A value is found again only by whoever could have read it: under the same class with the same
//! parameters, by the same kind of reader ([`Sharing`]), for the same key and parameters of the variable. A
//! class that changes is another class. Allow-lists are checked before each look, so that a class that stops
//! serving a pod stops at once. Values are wiped when their time is over, when they are invalidated and
//! with the cache. Failures are not kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{
    sync::{Mutex as Turn, Notify},
    time::{Instant, sleep_until},
};
use waybill_core::secret::SecretBytes;

use crate::driver::{Call, Query, Sharing};

/// What an entry takes beside its text, roughly.
const ENTRY_BYTES: usize = 256;

/// How long a value may stay beyond its time, unused, before it is wiped.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// Values that were read before.
///
/// A cache that is full takes no new values until old ones are over: nobody can push out what others use.
pub struct Cache {
    limit: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    shelves: HashMap<Shelf, HashMap<Query, Entry>>,
    bytes: usize,
    /// When the first value is over.
    earliest: Option<Instant>,
    /// Changes with each invalidation.
    generation: u64,
    flights: HashMap<(Shelf, Vec<Query>), Weak<Turn<()>>>,
}

struct Entry {
    value: SecretBytes,
    ends: Instant,
}

/// Where values lie that the same readers may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shelf {
    class: String,
    parameters: BTreeMap<String, String>,
    reader: Reader,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reader {
    Anybody,
    Account { namespace: String, name: String, proof: Proof },
    Pod { uid: String, proof: Proof },
}

/// A hash of the tokens that a pod brought. Where there are some, the backend decides by them: a name that
/// somebody says is not enough to have what it gave to another.
type Proof = [u8; 32];

fn proof(call: &Call) -> Proof {
    let mut all = Sha256::new();
    for (audience, token) in &call.tokens {
        for part in [audience.as_bytes(), token.token.expose()] {
            all.update(part.len().to_be_bytes());
            all.update(part);
        }
    }
    all.finalize().into()
}

/// A cache at one moment; what was read before an invalidation does not come in after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Cache {
    /// An empty cache that takes at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), changed: Notify::new() }
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
        self.state().bytes
    }

    pub(crate) fn generation(&self) -> Generation {
        Generation(self.state().generation)
    }

    /// The values of `queries` that are there, in their order.
    pub(crate) fn find(
        &self,
        shelf: &Shelf,
        queries: &[Query],
        now: Instant,
    ) -> Vec<Option<SecretBytes>> {
        let state = self.state();
        let found = state.shelves.get(shelf);
        let value = |query| {
            let entry = found?.get(query).filter(|entry| entry.ends > now)?;
            Some(SecretBytes::copy_of(entry.value.expose()))
        };
        queries.iter().map(value).collect()
    }

    /// Keeps a value until `ends`, if there is room and nothing was invalidated since `read`.
    pub(crate) fn keep(
        &self,
        shelf: &Shelf,
        query: &Query,
        value: &SecretBytes,
        ends: Instant,
        read: Generation,
    ) {
        let mut state = self.state();
        if state.generation != read.0 {
            return;
        }
        let new_shelf = if state.shelves.contains_key(shelf) { 0 } else { shelf.bytes() };
        let bytes = new_shelf + entry_bytes(query, value);
        if state.bytes + bytes > self.limit {
            return;
        }
        let value = SecretBytes::copy_of(value.expose());
        let entries = state.shelves.entry(shelf.clone()).or_default();
        let old = entries.insert(query.clone(), Entry { value, ends });
        state.bytes += bytes;
        state.bytes -= old.map_or(0, |old| entry_bytes(query, &old.value));
        if state.earliest.is_none_or(|earliest| ends < earliest) {
            state.earliest = Some(ends);
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
            let earliest = self.state().earliest;
            match earliest {
                None => self.changed.notified().await,
                Some(at) => tokio::select! {
                    () = sleep_until(at.max(Instant::now() + SWEEP_PAUSE)) => {}
                    () = self.changed.notified() => {}
                },
            }
            self.state().remove_old(Instant::now());
        }
    }

    fn forget(&self, keep: impl Fn(&Shelf) -> bool) {
        let mut state = self.state();
        state.generation += 1;
        state.shelves.retain(|shelf, _| keep(shelf));
        state.count_again();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove_old(&mut self, now: Instant) {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return;
        }
        for entries in self.shelves.values_mut() {
            entries.retain(|_, entry| entry.ends > now);
        }
        self.shelves.retain(|_, entries| !entries.is_empty());
        self.count_again();
    }

    fn count_again(&mut self) {
        let of_entries = |entries: &HashMap<Query, Entry>| {
            entries.iter().map(|(query, entry)| entry_bytes(query, &entry.value)).sum::<usize>()
        };
        let shelves = self.shelves.iter();
        self.bytes = shelves.map(|(shelf, entries)| shelf.bytes() + of_entries(entries)).sum();
        let ends = self.shelves.values().flat_map(HashMap::values).map(|entry| entry.ends);
        self.earliest = ends.min();
    }
}

impl Shelf {
    /// The one for `call`.
    pub(crate) fn of(call: &Call, sharing: Sharing) -> Self {
        let pod = &call.pod;
        let reader = match sharing {
            Sharing::Class => Reader::Anybody,
            Sharing::Identity => Reader::Account {
                namespace: pod.namespace.clone(),
                name: pod.service_account.clone(),
                proof: proof(call),
            },
            Sharing::Pod => Reader::Pod { uid: pod.uid.clone(), proof: proof(call) },
        };
        Self { class: call.class.clone(), parameters: call.parameters.clone(), reader }
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.class.len() + map_bytes(&self.parameters)
    }
}

fn entry_bytes(query: &Query, value: &SecretBytes) -> usize {
    ENTRY_BYTES + query.key.len() + map_bytes(&query.parameters) + value.len()
}

fn map_bytes(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[cfg(test)]
mod tests;
