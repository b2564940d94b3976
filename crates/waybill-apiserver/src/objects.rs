//! All objects: one cache per resource, fed from the store in one ordered stream.
//!
//! A commit goes to the store and returns when the cache has it, so whoever wrote something reads it
//! back. When the stream from the store breaks, the caches are compared with a fresh snapshot and
//! told the difference; watches go on.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use waybill_core::{chain::Chain, id::ResourceVersion};

use crate::{
    cache::{Cache, CachedObject, HeldBytes, ObjectKey},
    document::{metadata, remove_metadata, to_bytes},
    kinds::{
        admission_policy::VALIDATING_ADMISSION_POLICIES,
        admission_policy_binding::VALIDATING_ADMISSION_POLICY_BINDINGS,
        namespace::NAMESPACES,
        pod::PODS,
        role::{CLUSTER_ROLES, ROLES},
        role_binding::{CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS},
        webhook_configuration::{
            MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS,
        },
    },
    registry::{RESOURCES, Resource},
    store::{Change, Event, Expected, Snapshot, Store, StoreError, Stored, Write, WriteError},
};

/// Told of every change before any reader or watcher sees it; old and new document.
pub(crate) type Observer = dyn Fn(&'static Resource, Option<&Value>, Option<&Value>) + Send + Sync;

/// Everything that is stored lies under this prefix.
const ROOT: &str = "/registry/";

/// How long a commit waits for its own change to come back from the store.
const OWN_CHANGE: Duration = Duration::from_secs(10);

/// How long a read waits for a revision that is still to come; upstream's limit.
const FRESH: Duration = Duration::from_secs(3);

/// How many changes are applied before those who wait for them are told.
const TOGETHER: usize = 64;

/// How long the feed waits before it asks a broken store again.
const RETRY: Duration = Duration::from_millis(500);

pub(crate) struct Objects {
    store: Arc<dyn Store>,
    /// Few enough to be searched one by one, by identity or by prefix.
    caches: Vec<Entry>,
    applied: watch::Sender<ResourceVersion>,
    observer: Box<Observer>,
    /// Why the caches do not follow the store.
    behind: Mutex<Option<String>>,
}

/// The objects of one resource that is stored.
struct Entry {
    resource: &'static Resource,
    /// Where they lie in the store.
    prefix: String,
    cache: Cache,
}

/// Why a commit did not happen, or may not have happened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("the object was changed by someone else")]
    Conflict(Option<ResourceVersion>),
    #[error("the store cannot be written")]
    Store(#[source] WriteError),
    #[error("the change is stored but did not come back in time")]
    Slow,
}

impl Objects {
    /// Loads everything from the store.
    pub(crate) async fn load(
        store: Arc<dyn Store>,
        observer: Box<Observer>,
    ) -> Result<Self, StoreError> {
        let snapshot = store.list(ROOT).await?;
        let revision = snapshot.revision;
        let mut found = by_prefix(snapshot);
        let held = Arc::new(HeldBytes::default());
        let caches = RESOURCES
            .iter()
            .copied()
            .filter(|resource| resource.is_stored() && resource.stored_as.is_none())
            .map(|resource| {
                let stored = found.remove(&resource.prefix()).unwrap_or_default();
                let objects: Vec<_> = stored
                    .into_iter()
                    .filter_map(|stored| cached(resource, stored.value, stored.revision))
                    .collect();
                for object in &objects {
                    observe(&*observer, resource, None, Some(object));
                }
                let cache = Cache::new(objects, revision, &held);
                Entry { resource, prefix: resource.prefix(), cache }
            })
            .collect();
        let applied = watch::Sender::new(revision);
        Ok(Self { store, caches, applied, observer, behind: Mutex::default() })
    }

    /// The cache of `resource`; `None` for one whose objects are not kept.
    pub(crate) fn cache(&self, resource: &'static Resource) -> Option<&Cache> {
        let stored = resource.storage();
        let found = self.caches.iter().find(|entry| std::ptr::eq(entry.resource, stored));
        found.map(|entry| &entry.cache)
    }

    /// The namespace of this name, which is not there only if it was deleted: the caches of all kinds
    /// come from one ordered stream. Whoever asks what it forbids must not go on without it.
    pub(crate) fn namespace(&self, name: &str) -> Option<Value> {
        let cache = self.cache(&NAMESPACES)?;
        Some(cache.get(&ObjectKey::new("", name))?.document())
    }

    /// Every cache with its resource.
    pub(crate) fn caches(&self) -> impl Iterator<Item = (&'static Resource, &Cache)> {
        self.caches.iter().map(|entry| (entry.resource, &entry.cache))
    }

    /// Writes `document`, or deletes if there is none, and returns the revision of the change.
    pub(crate) async fn commit(
        &self,
        resource: &'static Resource,
        key: &ObjectKey,
        expected: Expected,
        document: Option<&Value>,
    ) -> Result<ResourceVersion, CommitError> {
        let write = Write {
            key: resource.key(&key.namespace, &key.name),
            expected,
            value: document.map(stored_form),
        };
        let revision = match self.store.write(write).await {
            Ok(revision) => revision,
            Err(WriteError::Conflict(found)) => {
                let found = found.map(|stored| stored.revision);
                if let Some(found) = found {
                    // Who tries again must not meet the old object; if it takes too long they do.
                    let _ = self.reach(found).await;
                }
                return Err(CommitError::Conflict(found));
            }
            Err(error) => return Err(CommitError::Store(error)),
        };
        let mut applied = self.applied.subscribe();
        let own = applied.wait_for(|applied| *applied >= revision);
        match timeout(OWN_CHANGE, own).await {
            Ok(Ok(_)) => Ok(revision),
            _ => Err(CommitError::Slow),
        }
    }

    /// Lets the store forget the history before `before`.
    pub(crate) async fn compact(&self, before: ResourceVersion) -> Result<(), StoreError> {
        self.store.compact(before).await
    }

    /// Why the store takes no writes at the moment.
    pub(crate) async fn trouble(&self) -> Option<String> {
        self.store.trouble().await
    }

    /// Why what is read may be older than what is stored.
    pub(crate) fn behind(&self) -> Option<String> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_behind(&self, why: Option<String>) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Makes the metrics of the store visible.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.store.register(registry);
    }

    /// Everything up to this revision is in the caches.
    pub(crate) fn revision(&self) -> ResourceVersion {
        *self.applied.borrow()
    }

    /// Waits until everything up to `revision` is in the caches. If that takes too long, says how far
    /// they are.
    pub(crate) async fn reach(&self, revision: ResourceVersion) -> Result<(), ResourceVersion> {
        if self.revision() >= revision {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        let reached = timeout(FRESH, applied.wait_for(|applied| *applied >= revision)).await;
        if matches!(reached, Ok(Ok(_))) { Ok(()) } else { Err(self.revision()) }
    }

    /// Feeds the caches until `stop`.
    pub(crate) async fn feed(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = self.follow() => result,
            };
            if let Err(error) = result {
                let error = Chain(error.as_ref()).to_string();
                tracing::warn!(error, "the stream from the store broke");
                self.set_behind(Some(error));
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
            match self.store.list(ROOT).await {
                Ok(snapshot) => {
                    self.catch_up(snapshot);
                    self.set_behind(None);
                }
                Err(error) => tracing::warn!(error = %Chain(&error), "the store cannot be listed"),
            }
        }
    }

    async fn follow(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let changes = self.store.watch(ROOT, self.revision()).await?;
        // Writes that shared a commit come together. Those who wait are woken once for all of them.
        let mut together = changes.ready_chunks(TOGETHER);
        while let Some(events) = together.next().await {
            let mut newest = self.revision();
            for event in events {
                newest = match event {
                    Ok(Event::Change(change)) => self.apply(change),
                    Ok(Event::Progress(revision)) => revision,
                    Err(error) => {
                        self.advance(newest);
                        return Err(error.into());
                    }
                };
            }
            self.advance(newest);
        }
        Ok(())
    }

    fn apply(&self, change: Change) -> ResourceVersion {
        let Change { key, revision, value, .. } = change;
        if let Some((resource, cache, object_key)) = self.place(&key) {
            let object = value.and_then(|value| cached(resource, value, revision));
            self.apply_to(resource, cache, object_key, revision, object);
        }
        revision
    }

    fn apply_to(
        &self,
        resource: &'static Resource,
        cache: &Cache,
        key: ObjectKey,
        revision: ResourceVersion,
        new: Option<CachedObject>,
    ) {
        let old = cache.get(&key);
        observe(&*self.observer, resource, old.as_deref(), new.as_ref());
        cache.apply(key, revision, new);
    }

    fn advance(&self, revision: ResourceVersion) {
        for entry in &self.caches {
            entry.cache.advance(revision);
        }
        self.applied.send_replace(revision);
    }

    /// Tells the caches what happened while nobody was listening.
    ///
    /// The changes of a resource become visible together, at the revision of the snapshot: a list
    /// has all of them or none, and a watch from before it tells all of them. When each happened
    /// is not known, so whoever saw only some of these events must be able to ask for all of them
    /// again: every event but the last shows a version before the snapshot's.
    fn catch_up(&self, snapshot: Snapshot) {
        let revision = snapshot.revision;
        let before = ResourceVersion::from(revision.get().saturating_sub(1));
        let mut found = by_prefix(snapshot);
        for entry in &self.caches {
            let stored = found.remove(&entry.prefix).unwrap_or_default();
            let mut changes = self.missed(entry, stored);
            changes.sort_by_key(|(_, new)| new.as_ref().map_or(before, |new| new.revision));
            for (key, new) in &changes {
                let old = entry.cache.get(key);
                observe(&*self.observer, entry.resource, old.as_deref(), new.as_ref());
            }
            entry.cache.apply_together(revision, before, changes);
        }
        self.advance(revision);
    }

    /// What differs between the objects of a cache and those that are stored.
    fn missed(&self, entry: &Entry, stored: Vec<Stored>) -> Vec<(ObjectKey, Option<CachedObject>)> {
        let Entry { resource, cache, .. } = entry;
        let mut seen = HashSet::new();
        let mut changes = Vec::new();
        for Stored { key, value, revision: written } in stored {
            let Some((_, _, object_key)) = self.place(&key) else { continue };
            seen.insert(object_key.clone());
            let known = cache.get(&object_key).map(|object| object.revision);
            if known != Some(written)
                && let Some(object) = cached(resource, value, written)
            {
                changes.push((object_key, Some(object)));
            }
        }
        let gone = cache.list("", None, usize::MAX, |object| !seen.contains(&object.key)).objects;
        changes.extend(gone.iter().map(|object| (object.key.clone(), None)));
        changes
    }

    fn place(&self, key: &str) -> Option<(&'static Resource, &Cache, ObjectKey)> {
        let prefix = prefix_of(key)?;
        let entry = self.caches.iter().find(|entry| entry.prefix == prefix)?;
        let rest = key.get(prefix.len()..)?;
        let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
        Some((entry.resource, &entry.cache, ObjectKey::new(namespace, name)))
    }
}

/// The resources whose changes somebody inside the server lives by.
static FOLLOWED: [&Resource; 9] = [
    &PODS,
    &CLUSTER_ROLE_BINDINGS,
    &CLUSTER_ROLES,
    &ROLE_BINDINGS,
    &ROLES,
    &MUTATING_WEBHOOK_CONFIGURATIONS,
    &VALIDATING_WEBHOOK_CONFIGURATIONS,
    &VALIDATING_ADMISSION_POLICIES,
    &VALIDATING_ADMISSION_POLICY_BINDINGS,
];

fn observe(
    observer: &Observer,
    resource: &'static Resource,
    old: Option<&CachedObject>,
    new: Option<&CachedObject>,
) {
    if FOLLOWED.iter().any(|followed| resource.is(followed)) {
        let (old, new) = (old.map(CachedObject::content), new.map(CachedObject::content));
        observer(resource, old.as_ref(), new.as_ref());
    }
}

/// The document without its version: what is written gets a new one.
fn stored_form(document: &Value) -> Bytes {
    if metadata(document, "resourceVersion").is_empty() {
        return to_bytes(document);
    }
    let mut bare = document.clone();
    remove_metadata(&mut bare, "resourceVersion");
    to_bytes(&bare)
}

/// `/registry/<group>/<resource>/` of a key below it.
fn prefix_of(key: &str) -> Option<&str> {
    let end = key.match_indices('/').nth(3)?.0;
    key.get(..=end)
}

fn by_prefix(snapshot: Snapshot) -> HashMap<String, Vec<Stored>> {
    let mut found: HashMap<String, Vec<Stored>> = HashMap::new();
    for stored in snapshot.objects {
        if let Some(prefix) = prefix_of(&stored.key) {
            found.entry(prefix.to_owned()).or_default().push(stored);
        }
    }
    found
}

fn cached(
    resource: &'static Resource,
    value: Bytes,
    revision: ResourceVersion,
) -> Option<CachedObject> {
    let object = CachedObject::new(resource, value, revision);
    if let Err(error) = &object {
        tracing::error!(resource = resource.plural, %revision, %error, "an object in the store is damaged");
    }
    object.ok()
}

#[cfg(test)]
mod tests;
