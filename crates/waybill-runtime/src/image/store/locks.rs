//! A lock for each digest, so that two who need the same thing do the work once.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use tokio::sync::OwnedMutexGuard;

use crate::image::digest::Digest;

/// For those who wait as tasks.
#[derive(Default)]
pub(in crate::image) struct BlobLocks {
    held: Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
}

impl BlobLocks {
    pub(in crate::image) async fn lock(&self, digest: Digest) -> OwnedMutexGuard<()> {
        self.entry(digest).lock_owned().await
    }

    fn entry(&self, digest: Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody but this map has is neither held nor waited for.
        held.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(held.entry(digest).or_default())
    }
}

/// For those who wait as threads.
#[derive(Default)]
pub(super) struct LayerLocks {
    held: Mutex<HashSet<Digest>>,
    released: Condvar,
}

impl LayerLocks {
    pub(super) fn lock(&self, digest: Digest) -> LayerLock<'_> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.released.wait_while(held, |held| held.contains(&digest));
        free.unwrap_or_else(PoisonError::into_inner).insert(digest);
        LayerLock { locks: self, digest }
    }
}

pub(super) struct LayerLock<'a> {
    locks: &'a LayerLocks,
    digest: Digest,
}

impl Drop for LayerLock<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&self.digest);
        self.locks.released.notify_all();
    }
}
