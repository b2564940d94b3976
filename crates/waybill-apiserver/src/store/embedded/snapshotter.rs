//! The thread that takes a snapshot while writes go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use waybill_core::{chain::Chain, id::ResourceVersion};

use super::{Shared, directory::Directory, recover, snapshot};
use crate::store::StoreError;

/// What became of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Done,
    Failed,
    NoRoom,
}

/// A thread that takes a snapshot. On drop it is told to give up, and waited for.
pub(super) struct Snapshotter {
    /// `None` only while this is dropped.
    thread: Option<JoinHandle<Taken>>,
    stop: Arc<AtomicBool>,
}

impl Snapshotter {
    /// Takes a snapshot at `base` and then removes what it replaces.
    pub(super) fn start(
        shared: &Arc<Shared>,
        directory: &Arc<Directory>,
        base: ResourceVersion,
    ) -> Option<Self> {
        let (shared, directory) = (Arc::clone(shared), Arc::clone(directory));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let written = snapshot::write(&directory, base, &shared.state, &stopped);
            let done = written.and_then(|()| recover::remove_before(&directory, base));
            if let Err(error) = &done
                && !stopped.load(Ordering::Relaxed)
            {
                tracing::error!(error = %Chain(error), "taking a snapshot failed");
            }
            match done {
                Ok(()) => Taken::Done,
                Err(StoreError::Full { .. }) => Taken::NoRoom,
                Err(_) => Taken::Failed,
            }
        };
        let thread = thread::Builder::new().name("store-snapshot".into()).spawn(run);
        if let Err(error) = &thread {
            tracing::error!(%error, "cannot start a thread for a snapshot");
        }
        thread.ok().map(|thread| Self { thread: Some(thread), stop })
    }

    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for it.
    pub(super) fn ended(mut self) -> Taken {
        let joined = self.thread.take().map(JoinHandle::join);
        joined.and_then(Result::ok).unwrap_or(Taken::Failed)
    }
}

impl Drop for Snapshotter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}
