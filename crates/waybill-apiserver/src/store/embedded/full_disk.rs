//! What a full disk, and a disk that fails, may and may not do to the store.

use std::{fs, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::timeout;
use waybill_testkit::disk::SmallDisk;

use super::{directory::Kind, frame::RecordRef, *};
use crate::store::Expected;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(path: &Path) -> Arc<Embedded> {
    Arc::new(Embedded::open(path, Settings::default()).unwrap())
}

async fn create(store: &Embedded, key: &str, bytes: usize) -> Outcome {
    let value = Some(Bytes::from(vec![b'v'; bytes]));
    store.write(Write { key: key.into(), expected: Expected::Absent, value }).await
}

/// Creates objects until the store refuses one; returns those that it took, and why it refused.
async fn create_until_refused(store: &Embedded) -> (Vec<(String, ResourceVersion)>, WriteError) {
    let mut taken = Vec::new();
    for at in 0.. {
        let key = format!("/{at}");
        match create(store, &key, 50_000).await {
            Ok(revision) => taken.push((key, revision)),
            Err(error) => return (taken, error),
        }
    }
    unreachable!("the numbers do not end")
}

async fn wait_until_healed(store: &Embedded) {
    let healed = async {
        while store.trouble().await.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, healed).await.unwrap();
}

/// The hole: the first write that found no room ended the store until a restart.
#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room_and_keeps_what_was_acknowledged() {
    let Some(disk) = SmallDisk::mount(4) else { return };
    let path = disk.path().join("store");
    let store = open(&path);
    create(&store, "/before", 10).await.unwrap();
    disk.fill();
    let (taken, error) = create_until_refused(&store).await;
    assert!(matches!(error, WriteError::Store(StoreError::Full { .. })), "{error:?}");
    assert!(store.trouble().await.is_some());
    // Again and again, and reads go on.
    for _ in 0..3 {
        assert!(create(&store, "/refused", 50_000).await.is_err());
    }
    assert_eq!(store.list("").await.unwrap().objects.len(), taken.len() + 1);

    disk.free();
    wait_until_healed(&store).await;
    create(&store, "/after", 50_000).await.unwrap();
    let before = store.list("").await.unwrap();
    assert!(taken.iter().all(|(key, revision)| {
        before.objects.iter().any(|object| object.key == *key && object.revision == *revision)
    }));
    drop(store);
    assert_eq!(open(&path).list("").await.unwrap(), before);
}

/// Who needs room must be able to delete, also after a restart on the full disk.
#[tokio::test]
async fn objects_can_be_deleted_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(4) else { return };
    let path = disk.path().join("store");
    let store = open(&path);
    create(&store, "/before", 10).await.unwrap();
    disk.fill();
    let (mut taken, _) = create_until_refused(&store).await;
    let delete = |(key, revision)| Write { key, expected: Expected::At(revision), value: None };
    store.write(delete(taken.pop().unwrap())).await.unwrap();
    drop(store);
    let store = open(&path);
    timeout(PATIENCE, async {
        while store.trouble().await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    let kept = taken.len();
    // A deletion that comes with a write that finds no room is not refused with it.
    let (refused, deleted) =
        tokio::join!(create(&store, "/large", 500_000), store.write(delete(taken.pop().unwrap())));
    assert!(refused.is_err());
    deleted.unwrap();
    assert_eq!(store.list("").await.unwrap().objects.len(), kept);
    drop(store);
    assert_eq!(open(&path).list("").await.unwrap().objects.len(), kept);
}

/// The hole: a disk full of writes that no longer counted stayed full, because the log goes only with a snapshot.
#[tokio::test]
async fn a_disk_full_of_deleted_objects_takes_writes_again() {
    let Some(disk) = SmallDisk::mount(4) else { return };
    let path = disk.path().join("store");
    let store = open(&path);
    let kept = create(&store, "/kept", 10).await.unwrap();
    let (taken, _) = create_until_refused(&store).await;
    assert!(store.trouble().await.is_some());
    for (key, revision) in taken {
        let delete = Write { key, expected: Expected::At(revision), value: None };
        store.write(delete).await.unwrap();
    }
    wait_until_healed(&store).await;
    create(&store, "/after", 50_000).await.unwrap();
    let before = store.list("").await.unwrap();
    assert!(before.objects.iter().any(|it| it.key == "/kept" && it.revision == kept));
    assert_eq!(before.objects.len(), 2);
    drop(store);
    assert_eq!(open(&path).list("").await.unwrap(), before);
}

/// A few objects that are written again and again do not fill a disk.
#[tokio::test]
async fn a_small_disk_outlives_many_writes_of_the_same_object() {
    let Some(disk) = SmallDisk::mount(6) else { return };
    let path = disk.path().join("store");
    let store = open(&path);
    let mut revision = create(&store, "/live", 300_000).await.unwrap();
    for round in 0..60 {
        let value = Some(Bytes::from(vec![round; 300_000]));
        let write = || Write {
            key: "/live".into(),
            expected: Expected::At(revision),
            value: value.clone(),
        };
        revision = match store.write(write()).await {
            Ok(revision) => revision,
            Err(_) => {
                // Quicker than the snapshot.
                wait_until_healed(&store).await;
                store.write(write()).await.unwrap()
            }
        };
    }
    drop(store);
    assert_eq!(open(&path).list("").await.unwrap().objects[0].revision, revision);
}

/// The hole: after a snapshot that found no room the next was tried when the log was twice as large.
#[tokio::test]
async fn a_snapshot_that_found_no_room_is_taken_when_there_is_some() {
    let Some(disk) = SmallDisk::mount(8) else { return };
    let path = disk.path().join("store");
    let settings = Settings { snapshot_bytes: 1 << 19, ..Settings::default() };
    let store = Arc::new(Embedded::open(&path, settings).unwrap());
    // In the room of the log, while the disk has none for a snapshot.
    let first = create(&store, "/live", 300_000).await.unwrap();
    disk.fill();
    let replace = |expected, bytes: usize| Write {
        key: "/live".into(),
        expected: Expected::At(expected),
        value: Some(Bytes::from(vec![b'w'; bytes])),
    };
    let second = store.write(replace(first, 300_000)).await.unwrap();
    // By the time of the next commit it was found that there is no room.
    let third = store.write(replace(second, 10)).await.unwrap();
    assert!(store.trouble().await.is_none());
    assert!(!has_snapshot(&path));
    disk.free();
    let fourth = store.write(replace(third, 20)).await.unwrap();
    timeout(PATIENCE, async {
        while !has_snapshot(&path) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    drop(store);
    assert_eq!(open(&path).list("").await.unwrap().revision, fourth);
}

fn has_snapshot(store: &Path) -> bool {
    let names = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name());
    names.into_iter().any(|name| {
        name.to_str().is_some_and(|name| name.starts_with("snapshot.") && !name.ends_with(".new"))
    })
}

/// A commit whose sync failed may be on disk or not. Nobody was told of it, so it must not come back when
/// a new log has begun in its place.
#[tokio::test]
async fn what_a_failed_commit_left_in_the_old_log_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    create(&store, "/1", 10).await.unwrap();
    let newest = create(&store, "/2", 10).await.unwrap();
    let before = store.list("").await.unwrap();
    drop(store);
    {
        let owned = Directory::take(directory.path()).unwrap();
        let Recovered { mut log, .. } =
            recover::recover(&owned, Settings::default().history).unwrap();
        let mut frame = frame::FrameBuilder::new((newest.get() + 1).into());
        let revision = (newest.get() + 1).into();
        frame.push(RecordRef { key: "/lost", revision, value: Some(&Bytes::from_static(b"x")) });
        log.append(&frame.finish(), log::Holds::AnyWrites).unwrap();
        log::Log::create(&owned, newest).unwrap();
    }
    let store = open(directory.path());
    assert_eq!(store.list("").await.unwrap(), before);
    assert!(create(&store, "/3", 10).await.unwrap() > newest);
    drop(store);
    assert_eq!(open(directory.path()).list("").await.unwrap().objects.len(), 3);
}

/// What a disk does whose sync fails: the writer begins a new log and goes on.
#[tokio::test]
async fn a_log_that_is_not_known_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    create(&store, "/1", 10).await.unwrap();
    drop(store);
    let owned = Arc::new(Directory::take(directory.path()).unwrap());
    let recovered = recover::recover(&owned, Settings::default().history).unwrap();
    let (sender, jobs) = mpsc::channel();
    let shared = Arc::new(Shared {
        state: RwLock::new(recovered.state),
        history: Arc::new(recovered.history),
        trouble: Mutex::default(),
        failing: Gauge::default(),
        wants_snapshot: AtomicBool::new(false),
    });
    let writer = Writer {
        jobs,
        shared,
        directory: Arc::clone(&owned),
        log: recovered.log,
        log_is_unknown: true,
        refused_bytes: 0,
        older_bytes: 0,
        snapshot_bytes: 1 << 20,
        failed_bytes: 0,
        waits_for_room: false,
        rhythm: Rhythm::default(),
        snapshot: None,
        snapshot_is_wanted: false,
    };
    drop(sender);
    writer.run();
    assert_eq!(owned.list(Kind::Log).unwrap(), [0.into(), 1.into()]);
    drop(owned);
    let store = open(directory.path());
    assert_eq!(store.list("").await.unwrap().objects.len(), 1);
    assert!(fs::read_dir(directory.path()).unwrap().count() >= 3);
}
