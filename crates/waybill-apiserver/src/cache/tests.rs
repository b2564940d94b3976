//! What the cache remembers, and what it tells to whom.

use serde_json::json;

use super::*;
use crate::document::to_bytes;

fn object(name: &str, revision: u64) -> CachedObject {
    let document = json!({"metadata": {"name": name, "namespace": "n"}});
    CachedObject::new("leases", to_bytes(&document), revision.into()).unwrap()
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
    let cache = Cache::new(vec![object("a", 1)], 1.into());
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
    for revision in 7..8 + HISTORY as u64 {
        put(&cache, "c", revision);
    }
    assert!(at(6).is_err() && at(7 + HISTORY as u64).is_ok());
}

#[test]
fn a_watch_tells_what_came_after_its_version_even_if_that_is_to_come() {
    let cache = Cache::new(Vec::new(), 1.into());
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
fn the_history_keeps_no_lines() {
    let cache = Cache::new(Vec::new(), 1.into());
    let mut watcher = cache.watch(1.into()).ok().unwrap();
    put(&cache, "a", 2);
    let told = watcher.ready().unwrap();
    let line = told.line(ChangeKind::Added);
    assert_eq!(line.as_ptr(), told.line(ChangeKind::Added).as_ptr());
    drop(told);
    assert!(line.is_unique());
}
