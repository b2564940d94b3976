//! One lock for each digest, so that two who need the same thing do the work once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::OwnedMutexGuard;

use crate::image::digest::Digest;

#[derive(Default)]
pub(in crate::image) struct Locks {
    held: Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// Waits on a thread that may wait.
    pub(super) fn lock_blocking(&self, digest: Digest) -> OwnedMutexGuard<()> {
        self.entry(digest).blocking_lock_owned()
    }

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
