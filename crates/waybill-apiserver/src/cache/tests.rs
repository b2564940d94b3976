//! What the cache remembers, and what it tells to whom.

use serde_json::json;

use super::{history::CHANGES, *};
use crate::document::to_bytes;

/// A cache as of revision 1.
fn cache(objects: Vec<CachedObject>) -> Cache {
    Cache::new(objects, 1.into(), &Arc::default())
}

fn object(name: &str, revision: u64) -> CachedObject {
    let document = json!({"metadata": {"name": name, "namespace": "n"}});
    CachedObject::new(crate::registry::named("leases"), to_bytes(&document), revision.into())
        .unwrap()
}

fn put(cache: &Cache, name: &str, revision: u64) {
    cache.apply(ObjectKey::new("n", name), revision.into(), Some(object(name, revision)));
}

fn delete(cache: &Cache, name: &str, revision: u64) {
    cache.apply(ObjectKey::new("n", name), revision.into(), None);
}

/// Name and revision of each object.
fn shown(listing: &Listing) -> String {
    let one = |object: &Arc<CachedObject>| format!("{}{}", object.key.name, object.revision);
    listing.objects.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Kind, name and revision of each change that is there.
fn heard(watcher: &mut Watcher) -> String {
    let mut heard = Vec::new();
    while let Some(told) = watcher.ready() {
        let kind = told.change.as_seen(|_| true).unwrap();
        let object = told.change.object_as(kind);
        heard.push(format!("{}:{}{}", kind.as_str(), object.key.name, object.revision));
    }
    heard.join(" ")
}

#[test]
fn the_past_can_be_listed_while_it_is_known() {
    let cache = cache(vec![object("a", 1)]);
    put(&cache, "b", 2);
    put(&cache, "a", 3);
    delete(&cache, "b", 4);
    put(&cache, "b", 6);
    let at = |revision: u64| cache.list_at(revision.into(), "n", |_| true).map(|it| shown(&it));
    assert_eq!(at(1), Ok("a1".to_owned()));
    assert_eq!(at(2), Ok("a1 b2".to_owned()));
    assert_eq!(at(3), Ok("a3 b2".to_owned()));
    assert_eq!(at(4), Ok("a3".to_owned()));
    assert_eq!(at(5), Ok("a3".to_owned()));
    assert_eq!(at(6), Ok("a3 b6".to_owned()));
    assert_eq!(at(0), Err(TooOld { oldest: 1.into() }));
    assert_eq!(shown(&cache.list_at(4.into(), "m", |_| true).unwrap()), "");
    for revision in 7..8 + CHANGES as u64 {
        put(&cache, "c", revision);
    }
    assert!(at(6).is_err() && at(7 + CHANGES as u64).is_ok());
}

#[test]
fn a_watch_tells_what_came_after_its_version_even_if_that_is_to_come() {
    let cache = cache(Vec::new());
    put(&cache, "a", 2);
    let mut past = cache.watch(1.into()).ok().unwrap();
    let mut future = cache.watch(4.into()).ok().unwrap();
    put(&cache, "a", 3);
    delete(&cache, "a", 4);
    put(&cache, "b", 5);
    assert_eq!(heard(&mut past), "ADDED:a2 MODIFIED:a3 DELETED:a4 ADDED:b5");
    assert_eq!(heard(&mut future), "ADDED:b5");
}

/// The line is as large as the object, and old changes are rarely watched.
#[test]
fn the_history_keeps_no_old_lines() {
    let cache = cache(Vec::new());
    let mut watcher = cache.watch(1.into()).ok().unwrap();
    put(&cache, "a", 2);
    let told = watcher.ready().unwrap();
    let line = told.line(ChangeKind::Added);
    assert_eq!(line.as_ptr(), told.line(ChangeKind::Added).as_ptr());
    let mut late = cache.watch(1.into()).ok().unwrap();
    assert_eq!(line.as_ptr(), late.ready().unwrap().line(ChangeKind::Added).as_ptr());
    drop(told);
    for revision in 3..100 {
        put(&cache, "b", revision);
    }
    assert!(line.is_unique());
}

const MIB: usize = 1 << 20;

/// Versions of one large object, and how many of them something holds apart from the test.
#[derive(Default)]
struct Versions(Vec<bytes::Bytes>);

impl Versions {
    fn put(&mut self, cache: &Cache, revision: u64) {
        let document = json!({"metadata": {"name": "fat"}, "data": "x".repeat(MIB)});
        let stored = to_bytes(&document);
        self.0.push(stored.clone());
        let object =
            CachedObject::new(crate::registry::named("configmaps"), stored, revision.into())
                .unwrap();
        cache.apply(ObjectKey::new("", "fat"), revision.into(), Some(object));
    }

    fn held(&self) -> usize {
        self.0.iter().filter(|stored| !stored.is_unique()).count()
    }
}

/// Hole: one pod of 2.9 MB and patches of 40 bytes took 12 GB, as old versions were counted and not weighed.
#[test]
fn old_versions_of_large_objects_are_not_kept_by_their_number() {
    let cache = cache(Vec::new());
    let mut versions = Versions::default();
    for revision in 2..66 {
        versions.put(&cache, revision);
    }
    assert!(versions.held() <= 17, "{} MiB are held", versions.held());
    assert!(versions.held() > 8, "watches can still begin a little in the past");
    assert!(cache.watch(2.into()).is_err() && cache.watch(64.into()).is_ok());
}

/// When all resources together hold too much, each keeps a little; a watch that keeps up hears all the same.
#[test]
fn a_large_change_is_told_also_when_the_past_takes_too_much() {
    let held = Arc::default();
    let caches: Vec<_> = (0..12).map(|_| Cache::new(Vec::new(), 1.into(), &held)).collect();
    for cache in &caches {
        let (mut versions, mut watcher) =
            (Versions::default(), cache.watch(1.into()).ok().unwrap());
        for revision in 2..24 {
            versions.put(cache, revision);
            assert!(watcher.ready().is_some(), "revision {revision}");
        }
    }
}

/// Hole: what waited for a watch that nobody reads was as many changes, each as large as it liked, for
/// each watch another part of the past.
#[test]
fn watches_that_nobody_reads_hold_no_versions_of_their_own() {
    let cache = cache(Vec::new());
    let (mut versions, mut watchers) = (Versions::default(), Vec::new());
    for revision in 2..66 {
        versions.put(&cache, revision);
        watchers.extend(cache.watch((revision - 1).into()).ok());
        watchers.push(cache.list_and_watch(|_| true).1);
    }
    assert!(versions.held() <= 17, "{} MiB are held", versions.held());
    assert!(watchers[0].ready().is_none(), "it is cut off");
    assert!(watchers.last_mut().unwrap().ready().is_none(), "it has seen all");
    versions.put(&cache, 66);
    assert!(watchers.last_mut().unwrap().ready().is_some());
}
