//! What every store must do, as checks that run over each implementation.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    StreamExt,
    future::{BoxFuture, FutureExt, join_all},
    stream::BoxStream,
};
use waybill_core::id::ResourceVersion;

use super::{Change, Event, Expected, Store, Stored, WatchError, Write, WriteError};

/// Runs every check, each on a store of its own. The guard is what the store stands on.
pub(super) async fn check_all<G>(open: impl AsyncFn(&str) -> (Arc<dyn Store>, G)) {
    for (name, check) in CHECKS {
        eprintln!("contract: {name}");
        let (store, _guard) = open(name).await;
        tokio::time::timeout(Duration::from_secs(60), check(store)).await.expect(name);
    }
}

type Check = fn(Arc<dyn Store>) -> BoxFuture<'static, ()>;

macro_rules! checks {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), |store| $name(store).boxed())),*] };
}

const CHECKS: &[(&str, Check)] = checks![
    an_empty_store_answers,
    a_write_needs_its_expectation,
    a_conflict_shows_what_is_there,
    deleting_the_absent_changes_nothing,
    revisions_increase_over_all_keys,
    a_list_is_ordered_and_whole,
    a_long_list_is_whole,
    prefixes_are_told_apart,
    values_of_all_sizes_are_kept,
    concurrent_increments_are_not_lost,
    a_watch_sees_everything_once_in_order,
    a_watch_sees_concurrent_writes_as_they_happened,
    a_watch_of_a_quiet_prefix_learns_of_progress,
    list_and_watch_meet_without_a_gap,
    history_ends_at_compaction,
    a_running_watch_outlives_compaction,
];

async fn an_empty_store_answers(store: Arc<dyn Store>) {
    assert_eq!(store.get("/a").await.unwrap(), None);
    assert_eq!(store.list("").await.unwrap().objects, []);
}

async fn a_write_needs_its_expectation(store: Arc<dyn Store>) {
    let created = put(&store, "/a", Expected::Absent, "1").await.unwrap();
    check_holds(&store, "/a", "1", created).await;
    assert!(put(&store, "/a", Expected::Absent, "2").await.is_err());
    assert!(put(&store, "/a", Expected::At((created.get() + 1).into()), "2").await.is_err());
    check_holds(&store, "/a", "1", created).await;
    let updated = put(&store, "/a", Expected::At(created), "2").await.unwrap();
    check_holds(&store, "/a", "2", updated).await;
    assert!(delete(&store, "/a", created).await.is_err());
    assert!(delete(&store, "/b", updated).await.is_err());
    let deleted = delete(&store, "/a", updated).await.unwrap();
    assert!(created < updated && updated < deleted);
    assert_eq!(store.get("/a").await.unwrap(), None);
    assert!(put(&store, "/a", Expected::At(updated), "3").await.is_err());
    assert!(put(&store, "/a", Expected::Absent, "3").await.unwrap() > deleted);
}

async fn a_conflict_shows_what_is_there(store: Arc<dyn Store>) {
    let revision = put(&store, "/a", Expected::Absent, "1").await.unwrap();
    let there = Stored { key: "/a".into(), value: "1".into(), revision };
    let conflict = |result| match result {
        Err(WriteError::Conflict(there)) => there,
        other => panic!("{other:?}"),
    };
    assert_eq!(conflict(put(&store, "/a", Expected::Absent, "2").await), Some(there.clone()));
    assert_eq!(conflict(delete(&store, "/a", 1_000_000.into()).await), Some(there));
    assert_eq!(conflict(put(&store, "/b", Expected::At(revision), "2").await), None);
}

async fn deleting_the_absent_changes_nothing(store: Arc<dyn Store>) {
    let newest = put(&store, "/a", Expected::Absent, "1").await.unwrap();
    let nothing = Write { key: "/b".into(), expected: Expected::Absent, value: None };
    assert_eq!(store.write(nothing).await.unwrap(), newest);
    let something = Write { key: "/a".into(), expected: Expected::Absent, value: None };
    assert!(matches!(store.write(something).await, Err(WriteError::Conflict(Some(_)))));
}

async fn revisions_increase_over_all_keys(store: Arc<dyn Store>) {
    let mut last = store.list("").await.unwrap().revision;
    for at in 0..20 {
        let key = format!("/{}/{at}", at % 3);
        let revision = put(&store, &key, Expected::Absent, "x").await.unwrap();
        assert!(revision > last, "{revision} after {last}");
        assert_eq!(store.list("/0/").await.unwrap().revision, revision);
        last = revision;
    }
}

async fn a_list_is_ordered_and_whole(store: Arc<dyn Store>) {
    let keys = ["/b", "/a/2", "/a/10", "/a", "/c", "/a/1", "/ä", "/a-"];
    let mut expected = BTreeMap::new();
    for key in keys {
        expected.insert(key, put(&store, key, Expected::Absent, key).await.unwrap());
    }
    let list = store.list("").await.unwrap();
    let found: Vec<_> = list.objects.iter().map(|object| (&*object.key, object.revision)).collect();
    assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>());
    assert!(list.objects.iter().all(|object| object.value == object.key));
    assert_eq!(Some(&list.revision), expected.values().max());
}

/// Long enough to need pages where a store has them.
async fn a_long_list_is_whole(store: Arc<dyn Store>) {
    let keys: Vec<_> = (0..1200).map(|at| format!("/long/{at:04}")).collect();
    let writes = keys.iter().map(|key| put(&store, key, Expected::Absent, "x"));
    assert!(join_all(writes).await.iter().all(|written| written.is_ok()));
    let writer = async {
        for at in 0..50 {
            put(&store, &format!("/long/0000/{at}"), Expected::Absent, "x").await.unwrap();
        }
    };
    let (list, ()) = futures_util::future::join(store.list("/long/"), writer).await;
    let list = list.unwrap();
    let extra = list.objects.len() - keys.len();
    let newest = list.objects.iter().map(|object| object.revision).max();
    assert!(extra <= 50 && newest.is_some_and(|newest| newest <= list.revision));
    // The writer is the only one, so what the list has of it is what its revision says.
    let written = list.objects.iter().filter(|object| object.key.len() > 10).count();
    assert_eq!(written, extra);
    let again = store.list("/long/").await.unwrap();
    assert_eq!(again.objects.len(), keys.len() + 50);
    assert!(again.objects.is_sorted_by(|one, next| one.key < next.key));
}

async fn prefixes_are_told_apart(store: Arc<dyn Store>) {
    for key in ["/a/b/1", "/a/b/2", "/a/bc/1", "/a/b", "/a/c/1"] {
        put(&store, key, Expected::Absent, "x").await.unwrap();
    }
    let keys = async |prefix| {
        let list = store.list(prefix).await.unwrap();
        list.objects.into_iter().map(|object| object.key).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys("/a/b/").await, "/a/b/1 /a/b/2");
    assert_eq!(keys("/a/b").await, "/a/b /a/b/1 /a/b/2 /a/bc/1");
    assert_eq!(keys("/a/bc/").await, "/a/bc/1");
    assert_eq!(keys("/x").await, "");
}

async fn values_of_all_sizes_are_kept(store: Arc<dyn Store>) {
    let start = store.list("").await.unwrap().revision;
    for (key, size) in [("/empty", 0), ("/one", 1), ("/large", 3 << 19)] {
        let value = Bytes::from(vec![0; size]);
        let write =
            Write { key: key.into(), expected: Expected::Absent, value: Some(value.clone()) };
        store.write(write).await.unwrap();
        assert_eq!(store.get(key).await.unwrap().unwrap().value, value);
        assert_eq!(store.list(key).await.unwrap().objects[0].value, value);
    }
    let seen = changes(&mut store.watch("", start).await.unwrap(), 3).await;
    let sizes: Vec<_> = seen.iter().map(|change| change.value.as_ref().unwrap().len()).collect();
    assert_eq!(sizes, [0, 1, 3 << 19]);
}

async fn concurrent_increments_are_not_lost(store: Arc<dyn Store>) {
    put(&store, "/count", Expected::Absent, "0").await.unwrap();
    let increment = async || {
        for _ in 0..10 {
            let mut current = store.get("/count").await.unwrap().unwrap();
            loop {
                let next = text(&current.value).parse::<u32>().unwrap() + 1;
                let expected = Expected::At(current.revision);
                match put(&store, "/count", expected, &next.to_string()).await {
                    Ok(_) => break,
                    Err(WriteError::Conflict(there)) => current = there.unwrap(),
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
    };
    join_all((0..16).map(|_| increment())).await;
    assert_eq!(store.get("/count").await.unwrap().unwrap().value, "160");
}

async fn a_watch_sees_everything_once_in_order(store: Arc<dyn Store>) {
    let start = store.list("").await.unwrap().revision;
    let first = put(&store, "/w/a", Expected::Absent, "1").await.unwrap();
    put(&store, "/other", Expected::Absent, "x").await.unwrap();
    let second = put(&store, "/w/a", Expected::At(first), "2").await.unwrap();
    let third = delete(&store, "/w/a", second).await.unwrap();
    let mut from_now = store.watch("/w/", third).await.unwrap();
    let fourth = put(&store, "/w/a", Expected::Absent, "").await.unwrap();
    let expected = [
        (first, Some("1"), None),
        (second, Some("2"), Some("1")),
        (third, None, Some("2")),
        (fourth, Some(""), None),
    ];
    let expected = expected.map(|(revision, value, previous)| Change {
        key: "/w/a".into(),
        revision,
        value: value.map(Bytes::from),
        previous: previous.map(Bytes::from),
    });
    for (after, skip) in [(start, 0), (first, 1), (second, 2), (third, 3)] {
        let mut watch = store.watch("/w/", after).await.unwrap();
        assert_eq!(changes(&mut watch, 4 - skip).await, expected[skip..], "after {after}");
    }
    assert_eq!(changes(&mut from_now, 1).await, expected[3..]);
}

async fn a_watch_sees_concurrent_writes_as_they_happened(store: Arc<dyn Store>) {
    let start = store.list("").await.unwrap().revision;
    let mut watch = store.watch("/c/", start).await.unwrap();
    let client = async |client: u32| {
        let mut expected = Expected::Absent;
        for round in 0..20 {
            let key = format!("/c/{client}");
            let written = put(&store, &key, expected, &round.to_string()).await.unwrap();
            expected = Expected::At(written);
        }
    };
    let (seen, _) =
        futures_util::future::join(changes(&mut watch, 16 * 20), join_all((0..16).map(client)))
            .await;
    assert!(seen.is_sorted_by(|one, next| one.revision < next.revision));
    let mut values: BTreeMap<String, Bytes> = BTreeMap::new();
    for change in seen {
        let value = change.value.unwrap();
        assert_eq!(values.insert(change.key, value), change.previous);
    }
    assert!(values.len() == 16 && values.values().all(|value| value == "19"));
}

async fn a_watch_of_a_quiet_prefix_learns_of_progress(store: Arc<dyn Store>) {
    let start = store.list("").await.unwrap().revision;
    let mut watch = store.watch("/quiet/", start).await.unwrap();
    let newest = put(&store, "/loud/a", Expected::Absent, "x").await.unwrap();
    let progress = loop {
        match watch.next().await.unwrap().unwrap() {
            Event::Progress(revision) if revision < newest => {}
            Event::Progress(revision) => break revision,
            Event::Change(change) => panic!("{change:?}"),
        }
    };
    assert_eq!(progress, newest);
}

async fn list_and_watch_meet_without_a_gap(store: Arc<dyn Store>) {
    let writer = async {
        for at in 0..200 {
            put(&store, &format!("/m/{at}"), Expected::Absent, "x").await.unwrap();
        }
    };
    let reader = async {
        for _ in 0..5 {
            let list = store.list("/m/").await.unwrap();
            let mut watch = store.watch("/m/", list.revision).await.unwrap();
            let rest = changes(&mut watch, 200 - list.objects.len()).await;
            let mut keys: Vec<_> = list.objects.into_iter().map(|object| object.key).collect();
            keys.extend(rest.into_iter().map(|change| change.key));
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 200);
        }
    };
    futures_util::future::join(reader, writer).await;
}

async fn history_ends_at_compaction(store: Arc<dyn Store>) {
    let start = store.list("").await.unwrap().revision;
    let mut revisions = Vec::new();
    for at in 0..5 {
        let key = format!("/h/{at}");
        let created = put(&store, &key, Expected::Absent, "x").await.unwrap();
        revisions.push(delete(&store, &key, created).await.unwrap());
    }
    let (kept, newest) = (revisions[2], revisions[4]);
    changes(&mut store.watch("/h/", start).await.unwrap(), 10).await;
    store.compact(kept).await.unwrap();
    store.compact(revisions[0]).await.unwrap();
    for after in [start, revisions[0], (kept.get() - 2).into()] {
        let error = first_error(&store, after).await;
        assert!(matches!(error, WatchError::Compacted(at) if at == kept), "{after}: {error:?}");
    }
    let mut watch = store.watch("/h/", (kept.get() - 1).into()).await.unwrap();
    let seen = changes(&mut watch, 5).await;
    assert_eq!(seen[0].revision, kept);
    assert_eq!((&seen[0].value, seen[0].previous.as_deref()), (&None, Some(&b"x"[..])));
    store.compact((newest.get() + 1_000).into()).await.unwrap();
    let error = first_error(&store, (newest.get() - 1).into()).await;
    assert!(matches!(error, WatchError::Compacted(_)), "{error:?}");
    let mut watch = store.watch("/h/", newest).await.unwrap();
    put(&store, "/h/new", Expected::Absent, "x").await.unwrap();
    assert_eq!(changes(&mut watch, 1).await[0].key, "/h/new");
}

async fn a_running_watch_outlives_compaction(store: Arc<dyn Store>) {
    let start = store.list("").await.unwrap().revision;
    let mut watch = store.watch("/r/", start).await.unwrap();
    for at in 0..5 {
        let revision = put(&store, &format!("/r/{at}"), Expected::Absent, "x").await.unwrap();
        assert_eq!(changes(&mut watch, 1).await[0].revision, revision);
        store.compact(revision).await.unwrap();
    }
}

async fn put(
    store: &Arc<dyn Store>,
    key: &str,
    expected: Expected,
    value: &str,
) -> Result<ResourceVersion, WriteError> {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    store.write(Write { key: key.into(), expected, value }).await
}

async fn delete(
    store: &Arc<dyn Store>,
    key: &str,
    at: ResourceVersion,
) -> Result<ResourceVersion, WriteError> {
    store.write(Write { key: key.into(), expected: Expected::At(at), value: None }).await
}

async fn check_holds(store: &Arc<dyn Store>, key: &str, value: &str, revision: ResourceVersion) {
    let value = Bytes::copy_from_slice(value.as_bytes());
    let expected = Stored { key: key.into(), value, revision };
    assert_eq!(store.get(key).await.unwrap(), Some(expected.clone()));
    assert_eq!(store.list(key).await.unwrap().objects, [expected]);
}

type Watch = BoxStream<'static, Result<Event, WatchError>>;

/// The next `count` changes; progress must be told in order between them.
pub(super) async fn changes(watch: &mut Watch, count: usize) -> Vec<Change> {
    let (mut seen, mut last) = (Vec::new(), ResourceVersion::from(0));
    while seen.len() < count {
        let revision = match watch.next().await.unwrap().unwrap() {
            Event::Change(change) => {
                seen.push(change.clone());
                change.revision
            }
            Event::Progress(revision) => revision,
        };
        assert!(revision > last, "{revision} after {last}");
        last = revision;
    }
    seen
}

async fn first_error(store: &Arc<dyn Store>, after: ResourceVersion) -> WatchError {
    match store.watch("/h/", after).await {
        Err(error) => error,
        Ok(mut watch) => loop {
            if let Err(error) = watch.next().await.unwrap() {
                break error;
            }
        },
    }
}

fn text(value: &Bytes) -> &str {
    str::from_utf8(value).unwrap()
}
