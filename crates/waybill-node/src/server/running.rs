//! Ids of containers that ran a moment ago, so that a busy container is not looked up for every
//! session.
//!
//! An id may be out of date: runtimes refuse sessions in containers that have ended, and then it is
//! looked up again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use waybill_core::id::PodUid;

use crate::pod::Pod;

/// How long an id is used without looking, in case a runtime does not refuse.
const LIFETIME: Duration = Duration::from_secs(10);

/// How many are kept; pods that are gone leave theirs behind.
const MOST: usize = 1_024;

/// The newest id of each container that was asked for.
#[derive(Default)]
pub(super) struct RunningIds(Mutex<Ids>);

type Ids = HashMap<(PodUid, String), (Instant, String)>;

impl RunningIds {
    pub(super) fn find(&self, pod: &Pod, container: &str) -> Option<String> {
        let (since, id) = self.lock().get(&key(pod, container)).cloned()?;
        (since.elapsed() < LIFETIME).then_some(id)
    }

    pub(super) fn remember(&self, pod: &Pod, container: &str, id: &str) {
        let mut ids = self.lock();
        if ids.len() >= MOST {
            ids.clear();
        }
        ids.insert(key(pod, container), (Instant::now(), id.to_owned()));
    }

    pub(super) fn forget(&self, pod: &Pod, container: &str) {
        self.lock().remove(&key(pod, container));
    }

    fn lock(&self) -> MutexGuard<'_, Ids> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(pod: &Pod, container: &str) -> (PodUid, String) {
    (pod.uid().clone(), container.to_owned())
}
