//! The newest changes of one resource, kept for watches that start in the past or fall behind.
//!
//! Watchers have no queues: each remembers how far it has read and takes one change at a time from here.
//! So a watch that nobody reads holds nothing, and one that falls behind what is kept is cut off. The
//! history is bounded by number and by bytes: objects may be large, and a change of one costs a client
//! forty bytes.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use waybill_core::id::ResourceVersion;

use super::watcher::{ObjectChange, Told};

/// So many changes of one resource are kept at most.
pub(super) const CHANGES: usize = 4_096;

/// So many bytes of one resource.
const BYTES: usize = 16 << 20;

/// So many of all resources; when they are reached, each new change leaves its resource no more than a little.
const BYTES_OF_ALL: usize = 128 << 20;
const BYTES_THEN: usize = 1 << 20;

/// So many of the newest changes keep the line that most watchers get, so that it is made once for all.
const LINES: usize = 64;

/// What the histories of all resources hold together.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes(AtomicUsize);

/// The changes after some revision.
pub(super) struct History {
    /// Ordered by revision.
    changes: VecDeque<Arc<ObjectChange>>,
    /// The newest of them, on their way.
    told: VecDeque<Arc<Told>>,
    /// How many changes came before the first one.
    forgotten: u64,
    /// Changes after this revision are all here.
    complete_after: ResourceVersion,
    bytes: usize,
    all: Arc<HeldBytes>,
}

/// What is at some place in the history.
pub(super) enum Place {
    Change(Arc<Told>),
    /// It is yet to come.
    Ahead,
    /// It was here once.
    Forgotten,
}

impl History {
    /// A history that begins after `revision`.
    pub(super) fn after(revision: ResourceVersion, all: Arc<HeldBytes>) -> Self {
        Self {
            changes: VecDeque::new(),
            told: VecDeque::new(),
            forgotten: 0,
            complete_after: revision,
            bytes: 0,
            all,
        }
    }

    /// Adds a change, which is not older than those before.
    pub(super) fn push(&mut self, change: Arc<ObjectChange>) {
        let bytes = held_by(&change);
        self.bytes += bytes;
        let all = self.all.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.told.push_back(Arc::new(Told::new(Arc::clone(&change))));
        self.changes.push_back(change);
        let most = if all > BYTES_OF_ALL { BYTES_THEN } else { BYTES };
        // The newest stays however large it is, or watches that keep up would be cut off too.
        while self.changes.len() > CHANGES || (self.changes.len() > 1 && self.bytes > most) {
            self.forget_oldest();
        }
        while self.told.len() > LINES.min(self.changes.len()) {
            self.told.pop_front();
        }
    }

    /// The place of the first change after `revision`.
    pub(super) fn place_after(&self, revision: ResourceVersion) -> u64 {
        let before = self.changes.partition_point(|change| change.revision <= revision);
        self.forgotten + before as u64
    }

    /// The place of the next change to come.
    pub(super) fn end(&self) -> u64 {
        self.forgotten + self.changes.len() as u64
    }

    pub(super) fn at(&self, place: u64) -> Place {
        let Some(index) = place.checked_sub(self.forgotten) else { return Place::Forgotten };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(change) = self.changes.get(index) else { return Place::Ahead };
        let untold = self.changes.len() - self.told.len();
        let told = index.checked_sub(untold).and_then(|index| self.told.get(index));
        Place::Change(told.map_or_else(|| Arc::new(Told::new(Arc::clone(change))), Arc::clone))
    }

    /// The newest first, as far back as is known.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &ObjectChange> {
        self.changes.iter().rev().map(Arc::as_ref)
    }

    /// Changes after this revision are all here.
    pub(super) fn complete_after(&self) -> ResourceVersion {
        self.complete_after
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.changes.pop_front() else { return };
        let bytes = held_by(&oldest);
        self.bytes -= bytes;
        self.all.0.fetch_sub(bytes, Ordering::Relaxed);
        self.forgotten += 1;
        self.complete_after = oldest.revision;
    }
}

/// What a change keeps in memory that would be gone without it: the object as it was before. As it is
/// after the change it belongs to the cache, or is what the next change has before.
fn held_by(change: &ObjectChange) -> usize {
    size_of::<ObjectChange>() + change.previous.as_ref().map_or(0, |previous| previous.memory())
}
