//! The watch cache of one resource: reads come from here, never from the store.
//!
//! The feed applies every change of the store in order. Objects are kept as the bytes of the store, so
//! GET and LIST copy them into their answer; labels and selectable fields stand beside them. Recent changes are kept so that a watch can start in the past; further back it must list
//! again. A watcher that does not keep up is cut off, since its client can always come back.

mod history;
mod object;
mod watcher;

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::watch;
use waybill_core::id::ResourceVersion;

use self::history::{History, Place};
pub(crate) use self::{
    history::HeldBytes,
    object::{CachedObject, ObjectKey},
    watcher::{ChangeKind, ObjectChange, Told, Watcher, line_head, object_line},
};

/// All objects of one resource.
pub(crate) struct Cache {
    shared: Arc<Shared>,
}

/// What a cache shares with its watchers.
struct Shared {
    state: RwLock<State>,
    /// Woken at each change.
    changed: watch::Sender<()>,
}

struct State {
    objects: BTreeMap<ObjectKey, Arc<CachedObject>>,
    /// Everything up to here has been applied, of this resource and of all others.
    revision: ResourceVersion,
    history: History,
    /// How often all watches were ended; those that began before have no more to come than there is.
    endings: u64,
}

/// What a list shows: all as of one revision.
pub(crate) struct Listing {
    pub(crate) objects: Vec<Arc<CachedObject>>,
    pub(crate) revision: ResourceVersion,
}

/// The changes that a watch asks for are no longer known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    pub(crate) oldest: ResourceVersion,
}

impl Cache {
    /// A cache that starts with `objects`, as they were at `revision`. What it holds of the past counts in `held`.
    pub(crate) fn new(
        objects: Vec<CachedObject>,
        revision: ResourceVersion,
        held: &Arc<HeldBytes>,
    ) -> Self {
        let entry = |object: CachedObject| (object.key.clone(), Arc::new(object));
        let state = State {
            objects: objects.into_iter().map(entry).collect(),
            revision,
            history: History::after(revision, Arc::clone(held)),
            endings: 0,
        };
        let shared = Shared { state: RwLock::new(state), changed: watch::Sender::new(()) };
        Self { shared: Arc::new(shared) }
    }

    /// Applies one change; `None` deletes. Changes come in the order of their revisions, each with one
    /// of its own.
    pub(crate) fn apply(
        &self,
        key: ObjectKey,
        revision: ResourceVersion,
        new: Option<CachedObject>,
    ) {
        let mut state = self.write();
        state.apply(key, revision, revision, new);
        state.revision = revision;
        drop(state);
        self.shared.changed.send_replace(());
    }

    /// Applies all that led to `revision`, in the order given, as one step: nobody sees a part of it.
    /// What is deleted is shown at `deleted_at`.
    pub(crate) fn apply_together(
        &self,
        revision: ResourceVersion,
        deleted_at: ResourceVersion,
        changes: Vec<(ObjectKey, Option<CachedObject>)>,
    ) {
        let mut state = self.write();
        for (key, new) in changes {
            state.apply(key, revision, deleted_at, new);
        }
        state.revision = state.revision.max(revision);
        drop(state);
        self.shared.changed.send_replace(());
    }

    /// Notes that nothing else has happened up to `revision`.
    pub(crate) fn advance(&self, revision: ResourceVersion) {
        let mut state = self.write();
        state.revision = state.revision.max(revision);
    }

    /// The object at `key`.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<CachedObject>> {
        self.read().objects.get(key).cloned()
    }

    /// The objects of `namespace`, or all if it is empty, for which `keep` holds, at most `limit`,
    /// starting after `after`. Ordered by namespace and name.
    pub(crate) fn list(
        &self,
        namespace: &str,
        after: Option<&ObjectKey>,
        limit: usize,
        keep: impl Fn(&CachedObject) -> bool,
    ) -> Listing {
        let state = self.read();
        let start = match after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(ObjectKey::first_of(namespace)),
        };
        let objects = state
            .objects
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| namespace.is_empty() || &*key.namespace == namespace)
            .map(|(_, object)| object)
            .filter(|object| keep(object))
            .take(limit)
            .cloned()
            .collect();
        Listing { objects, revision: state.revision }
    }

    /// As [`Self::list`] without a limit, but as everything was at `revision`, which has been reached.
    pub(crate) fn list_at(
        &self,
        revision: ResourceVersion,
        namespace: &str,
        keep: impl Fn(&CachedObject) -> bool,
    ) -> Result<Listing, TooOld> {
        let state = self.read();
        state.check(revision)?;
        let mut objects: BTreeMap<&ObjectKey, &Arc<CachedObject>> = state.objects.iter().collect();
        let since = state.history.newest_first().take_while(|change| change.revision > revision);
        for change in since {
            match &change.previous {
                Some(previous) => objects.insert(&previous.key, previous),
                None => objects.remove(&change.object.key),
            };
        }
        let objects = objects
            .into_values()
            .filter(|object| namespace.is_empty() || &*object.key.namespace == namespace)
            .filter(|object| keep(object))
            .cloned()
            .collect();
        Ok(Listing { objects, revision })
    }

    /// The changes after `after`, then those that are yet to come. `after` may be yet to come too.
    pub(crate) fn watch(&self, after: ResourceVersion) -> Result<Watcher, TooOld> {
        let state = self.read();
        state.check(after)?;
        Ok(self.watcher(&state, after, state.history.place_after(after)))
    }

    /// The objects for which `keep` holds, as they are now, and all changes from now on, without a gap
    /// between.
    pub(crate) fn list_and_watch(
        &self,
        keep: impl Fn(&CachedObject) -> bool,
    ) -> (Listing, Watcher) {
        let state = self.read();
        let objects = state.objects.values().filter(|object| keep(object)).cloned().collect();
        let listing = Listing { objects, revision: state.revision };
        let watcher = self.watcher(&state, listing.revision, state.history.end());
        (listing, watcher)
    }

    /// Everything up to this revision has been applied.
    pub(crate) fn revision(&self) -> ResourceVersion {
        self.read().revision
    }

    /// Ends every watch, so that clients come back to another server.
    pub(crate) fn end_watches(&self) {
        self.write().endings += 1;
        self.shared.changed.send_replace(());
    }

    fn watcher(&self, state: &State, after: ResourceVersion, place: u64) -> Watcher {
        Watcher::new(Arc::clone(&self.shared), state.endings, after, place)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.shared.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.shared.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Shared {
    // A panic while the lock was held left the maps usable: each step leaves them whole.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn apply(
        &mut self,
        key: ObjectKey,
        revision: ResourceVersion,
        deleted_at: ResourceVersion,
        new: Option<CachedObject>,
    ) {
        let new = new.map(Arc::new);
        let old = match &new {
            Some(object) => self.objects.insert(key, Arc::clone(object)),
            None => self.objects.remove(&key),
        };
        let Some(change) = ObjectChange::between(old, new, revision, deleted_at) else { return };
        self.history.push(Arc::new(change));
    }

    /// Whether all that happened after `revision` is known.
    fn check(&self, revision: ResourceVersion) -> Result<(), TooOld> {
        let oldest = self.history.complete_after();
        if revision < oldest { Err(TooOld { oldest }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
