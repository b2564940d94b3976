//! What readers see while the caches catch up with the store.

use std::{
    collections::BTreeSet,
    sync::{Mutex, OnceLock, Weak},
};

use futures_util::{future::BoxFuture, stream::BoxStream};
use serde_json::json;

use super::*;
use crate::{cache::Watcher, registry::find, store::WatchError};

/// A store that shows what it is told to show.
struct ShownStore(Mutex<Snapshot>);

impl Store for ShownStore {
    fn get<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StoreError>> {
        unreachable!("reads come from the caches")
    }

    fn list<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        let shown = self.0.lock().unwrap().clone();
        Box::pin(async move { Ok(shown) })
    }

    fn write(&self, _: Write) -> BoxFuture<'_, Result<ResourceVersion, WriteError>> {
        unreachable!("nobody writes here")
    }

    fn watch<'a>(
        &'a self,
        _: &'a str,
        _: ResourceVersion,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Event, WatchError>>, WatchError>> {
        unreachable!("the feed is the test")
    }

    fn compact(&self, _: ResourceVersion) -> BoxFuture<'_, Result<(), StoreError>> {
        unreachable!("nothing is forgotten here")
    }

    fn trouble(&self) -> BoxFuture<'_, Option<String>> {
        unreachable!("nobody asks for it")
    }
}

/// Pods by name, each with the revision of its last write.
fn snapshot(revision: u64, pods: &[(&str, u64)]) -> Snapshot {
    let stored = |&(name, written): &(&str, u64)| {
        let pod = json!({"kind": "Pod", "metadata": {"namespace": "n", "name": name}});
        let key = pods_resource().key("n", name);
        Stored { key, value: to_bytes(&pod), revision: written.into() }
    };
    Snapshot { objects: pods.iter().map(stored).collect(), revision: revision.into() }
}

fn pods_resource() -> &'static Resource {
    find("", "v1", "pods").unwrap()
}

/// Names and versions of pods, as a client knows them.
type Known = BTreeSet<(String, u64)>;

fn apply_to(known: &mut Known, watcher: &mut Watcher) -> Vec<ResourceVersion> {
    let mut versions = Vec::new();
    while let Some(told) = watcher.ready() {
        versions.push(see(known, &told.change));
    }
    versions
}

fn see(known: &mut Known, change: &crate::cache::ObjectChange) -> ResourceVersion {
    let kind = change.as_seen(|_| true).unwrap();
    let object = change.object_as(kind);
    known.retain(|(name, _)| **name != *object.key.name);
    if kind.as_str() != "DELETED" {
        known.insert((object.key.name.to_string(), object.revision.get()));
    }
    object.revision
}

fn listed(cache: &Cache) -> (Known, ResourceVersion) {
    let listing = cache.list("", None, usize::MAX, |_| true);
    let known = |object: &Arc<CachedObject>| (object.key.name.to_string(), object.revision.get());
    (listing.objects.iter().map(known).collect(), listing.revision)
}

const BEFORE: &[(&str, u64)] = &[("a", 1), ("b", 2), ("c", 3), ("d", 4)];
/// `b` and `d` were deleted, `a` and `c` changed, `e` is new; the last write was of something else,
/// or of `e`.
const AFTER: &[(&str, u64)] = &[("a", 9), ("c", 6), ("e", 10)];

fn after() -> Known {
    known_of(AFTER)
}

/// Hole: the cache moved to the revision of the whole snapshot with the first change of it. A list at
/// that moment lacked the others, and the watch that continued it never told them.
#[tokio::test]
async fn a_list_while_the_caches_catch_up_misses_nothing() {
    let lists: Arc<Mutex<Vec<(Known, ResourceVersion)>>> = Arc::default();
    let itself: Arc<OnceLock<Weak<Objects>>> = Arc::default();
    let (noted, found) = (Arc::clone(&lists), Arc::clone(&itself));
    // The observer is told before each change is shown: there a client lists.
    let observer = move |resource: &'static Resource, _: Option<&Value>, _: Option<&Value>| {
        if let Some(objects) = found.get().and_then(Weak::upgrade) {
            noted.lock().unwrap().push(listed(objects.cache(resource).unwrap()));
        }
    };
    let store = Arc::new(ShownStore(Mutex::new(snapshot(4, BEFORE))));
    let objects = Arc::new(Objects::load(store, Box::new(observer)).await.unwrap());
    itself.set(Arc::downgrade(&objects)).unwrap();
    objects.catch_up(snapshot(11, AFTER));
    let lists = std::mem::take(&mut *lists.lock().unwrap());
    assert_eq!(lists.len(), 5, "one before each change");
    let cache = objects.cache(pods_resource()).unwrap();
    for (mut known, revision) in lists {
        let told = format!("{known:?} at {revision}");
        let mut watcher = cache.watch(revision).ok().unwrap();
        apply_to(&mut known, &mut watcher);
        assert_eq!(known, after(), "a client that listed {told}");
    }
}

/// A client that loses its watch after any of these events asks for what came after the version that
/// it saw last, and must then learn of all the others.
#[tokio::test]
async fn a_watch_that_breaks_off_while_the_caches_catch_up_goes_on_without_loss() {
    for revision in [10, 11] {
        let store = Arc::new(ShownStore(Mutex::new(snapshot(4, BEFORE))));
        let objects = Objects::load(store, Box::new(|_, _, _| ())).await.unwrap();
        let cache = objects.cache(pods_resource()).unwrap();
        objects.catch_up(snapshot(revision, AFTER));
        for seen in 1..=5 {
            let mut known = known_of(BEFORE);
            let mut watcher = cache.watch(4.into()).ok().unwrap();
            let mut last = ResourceVersion::from(4);
            for _ in 0..seen {
                last = see(&mut known, &watcher.ready().unwrap().change);
            }
            let mut again = cache.watch(last).ok().unwrap();
            apply_to(&mut known, &mut again);
            assert_eq!(known, after(), "after {seen} events, from {last} on");
        }
        let (mut known, mut watcher) = (known_of(BEFORE), cache.watch(4.into()).ok().unwrap());
        let versions = apply_to(&mut known, &mut watcher);
        assert!(versions.is_sorted(), "versions never fall: {versions:?}");
    }
}

fn known_of(pods: &[(&str, u64)]) -> Known {
    pods.iter().map(|&(name, written)| (name.to_owned(), written)).collect()
}
