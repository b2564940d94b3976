//! Remembers answers of the API server for a while, and asks only once for what many want to know.
//!
//! Memory is bounded: two generations of at most half the capacity, the older dropped when the
//! younger is full.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Arc, Mutex as StdMutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

/// Answers by question, each believed for as long as it says.
pub(super) struct Cache<K, V> {
    capacity: usize,
    generations: StdMutex<Generations<K, V>>,
}

/// An answer that says for how long it is good.
pub(super) trait Lifetime {
    fn lifetime(&self) -> Duration;
}

struct Generations<K, V> {
    young: HashMap<K, Arc<Slot<V>>>,
    old: HashMap<K, Arc<Slot<V>>>,
}

/// Whoever asks holds the lock; the others wait for the answer.
type Slot<V> = Mutex<Option<(Instant, V)>>;

impl<K: Eq + Hash + Clone, V: Lifetime + Clone> Cache<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        Self { capacity, generations: StdMutex::new(generations) }
    }

    /// What is known, or what `ask` says.
    pub(super) async fn get(&self, question: &K, ask: impl Future<Output = V>) -> V {
        let slot = self.slot(question);
        let mut known = slot.lock().await;
        if let Some((until, answer)) = &*known
            && Instant::now() < *until
        {
            return answer.clone();
        }
        let answer = ask.await;
        *known = Some((Instant::now() + answer.lifetime(), answer.clone()));
        answer
    }

    fn slot(&self, question: &K) -> Arc<Slot<V>> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = generations.young.get(question) {
            return Arc::clone(slot);
        }
        let slot = generations.old.remove(question).unwrap_or_default();
        if generations.young.len() >= self.capacity / 2 {
            generations.old = mem::take(&mut generations.young);
        }
        generations.young.insert(question.clone(), Arc::clone(&slot));
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures_util::FutureExt;
    use tokio::task::yield_now;

    use super::*;

    impl Lifetime for u64 {
        fn lifetime(&self) -> Duration {
            Duration::from_secs(*self)
        }
    }

    #[tokio::test]
    async fn an_answer_is_believed_for_its_own_time() {
        let cache = Cache::new(8);
        assert_eq!(cache.get(&"a", async { 0 }).await, 0);
        assert_eq!(cache.get(&"a", async { 600 }).await, 600);
        assert_eq!(cache.get(&"a", async { 1 }).await, 600);
        assert_eq!(cache.get(&"b", async { 1 }).await, 1);
    }

    #[tokio::test]
    async fn what_many_want_to_know_is_asked_once() {
        let cache = Cache::new(8);
        let asked = AtomicUsize::new(0);
        let one = || {
            cache.get(&"a", async {
                asked.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
                60
            })
        };
        assert_eq!(tokio::join!(one(), one(), one()), (60, 60, 60));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_question_whose_asker_went_away_is_asked_again() {
        let cache = Cache::new(8);
        assert_eq!(cache.get(&"a", pending::<u64>()).now_or_never(), None);
        assert_eq!(cache.get(&"a", async { 7 }).await, 7);
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let cache = Cache::new(8);
        for number in 0..100_u64 {
            cache.get(&number, async { 60 }).await;
        }
        let generations = cache.generations.lock().unwrap();
        assert!(generations.young.len() + generations.old.len() <= 8);
    }
}
