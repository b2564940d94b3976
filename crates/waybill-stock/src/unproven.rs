//! Connections of which nobody knows yet whose they are.
//!
//! All pods of a cluster reach our ports. Whoever opens connections and says nothing must not keep those out who have something to
//! show: when there are too many, the oldest goes. To show a certificate or a token takes milliseconds, so an honest client
//! is through long before it is the oldest.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// Those that wait to show something.
pub(crate) struct Unproven {
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// By age.
    all: BTreeMap<u64, CancellationToken>,
}

/// A place among them, until it is dropped.
pub(crate) struct Place {
    owner: Arc<Unproven>,
    number: u64,
    gone: CancellationToken,
}

impl Unproven {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, waiting: Mutex::default() })
    }

    /// A place for a new connection; says whether another had to go for it.
    pub(crate) fn admit(self: &Arc<Self>) -> (Place, bool) {
        let mut waiting = self.lock();
        let oldest = (waiting.all.len() >= self.most).then(|| waiting.all.pop_first()).flatten();
        let is_full = oldest.is_some();
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        let (number, gone) = (waiting.next, CancellationToken::new());
        waiting.next += 1;
        waiting.all.insert(number, gone.clone());
        (Place { owner: Arc::clone(self), number, gone }, is_full)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// What comes of `showing`; `None` if the place was needed for another first.
    pub(crate) async fn hold<T>(&self, showing: impl Future<Output = T>) -> Option<T> {
        self.gone.run_until_cancelled(showing).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.owner.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn the_oldest_goes_when_there_are_too_many() {
        let unproven = Unproven::new(2);
        let (first, _) = unproven.admit();
        let (second, full) = unproven.admit();
        assert!(!full);
        let (third, full) = unproven.admit();
        assert!(full, "one had to go");
        assert_eq!(first.hold(pending::<()>()).await, None);
        assert_eq!(second.hold(ready(2)).await, Some(2));
        drop(second);
        assert!(!unproven.admit().1, "what was proven is out of the way");
        assert_eq!(third.hold(ready(3)).await, Some(3));
        drop((first, third));
        assert!(unproven.lock().all.is_empty());
    }
}
