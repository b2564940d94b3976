//! Remembers for some seconds what was verified, so that a busy client costs one signature check.
//!
//! Entries are found by the hash of a token; the token itself is never kept. Memory is bounded: two
//! generations of at most half the capacity, the older dropped when the younger is full.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use super::digest::Digest;

/// A bounded map from token hashes to facts, each believed for a short time.
pub(super) struct TokenCache<V> {
    lifetime: Duration,
    capacity: usize,
    generations: Mutex<Generations<V>>,
}

impl<V> TokenCache<V> {
    /// An empty cache of at most `capacity` entries.
    pub(super) fn new(capacity: usize, lifetime: Duration) -> Self {
        let generations = Mutex::new(Generations { young: HashMap::new(), old: HashMap::new() });
        Self { lifetime, capacity, generations }
    }

    /// What is known about `digest`, if it is fresh.
    pub(super) fn find(&self, digest: Digest, now: Timestamp) -> Option<Arc<V>> {
        let generations = self.lock();
        let entry = generations.young.get(&digest).or_else(|| generations.old.get(&digest))?;
        let age = now.duration_since(entry.since);
        // An entry from the future means that the clock went back; nothing is known then.
        let fresh = !age.is_negative() && age.unsigned_abs() < self.lifetime;
        fresh.then(|| Arc::clone(&entry.value))
    }

    /// Remembers `value`.
    pub(super) fn insert(&self, digest: Digest, value: Arc<V>, now: Timestamp) {
        let mut generations = self.lock();
        if generations.young.len() >= self.capacity / 2 {
            generations.old = mem::take(&mut generations.young);
        }
        generations.young.insert(digest, Entry { since: now, value });
    }

    fn lock(&self) -> MutexGuard<'_, Generations<V>> {
        // Each change is a single map operation, so a panic elsewhere leaves the maps whole.
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Generations<V> {
    young: HashMap<Digest, Entry<V>>,
    old: HashMap<Digest, Entry<V>>,
}

struct Entry<V> {
    since: Timestamp,
    value: Arc<V>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn entries_are_believed_for_their_lifetime_only() {
        let cache = TokenCache::new(8, Duration::from_secs(10));
        let digest = Digest::of(b"t");
        cache.insert(digest, Arc::new(1), at(100));
        for (second, expected) in [(99, None), (100, Some(1)), (109, Some(1)), (110, None)] {
            assert_eq!(cache.find(digest, at(second)).as_deref().copied(), expected, "{second}");
        }
        assert!(cache.find(Digest::of(b"u"), at(100)).is_none());
    }

    #[test]
    fn memory_is_bounded() {
        let cache = TokenCache::new(8, Duration::from_secs(10));
        for number in 0..100_u8 {
            cache.insert(Digest::of(&[number]), Arc::new(number), at(0));
        }
        let generations = cache.lock();
        assert!(generations.young.len() + generations.old.len() <= 8);
        drop(generations);
        assert!(cache.find(Digest::of(&[99]), at(0)).is_some());
    }
}
