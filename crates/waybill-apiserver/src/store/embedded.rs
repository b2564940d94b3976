//! The store of a single server: a directory, no other process.
//!
//! All objects are in memory; on disk are a log of the writes and, now and then, a snapshot that
//! lets the older log go. [`writer`] commits, [`recover`] reads it all back, and `docs/adr` says why
//! this is not a database library. Whoever holds the directory holds it alone.

mod directory;
mod frame;
mod log;
mod reader;
mod recover;
mod snapshot;
mod snapshotter;
mod state;
mod writer;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod full_disk;

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use futures_util::{
    future::{BoxFuture, FutureExt, ready},
    stream::BoxStream,
};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use tokio::sync::{Semaphore, oneshot};
use waybill_core::{chain::Chain, id::ResourceVersion};

use self::{
    directory::Directory,
    frame::LARGEST_VALUE,
    recover::Recovered,
    state::State,
    writer::{Job, Outcome, Rhythm, Writer},
};
use super::{
    Change, Event, Expected, Snapshot, Store, StoreError, WatchError, Write, WriteError,
    history::{History, Limits},
};

/// How many writes may wait for a commit; the others wait for their place.
const WAITING: usize = 1024;

/// How long who asked for a snapshot waits for it; it is taken when it can be.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at whether it is there.
const SNAPSHOT_POLL: Duration = Duration::from_millis(20);

/// What can be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How much history is kept for watches.
    pub(super) history: Limits,
    /// The size from which a log is replaced by a snapshot, if the objects are not larger.
    pub(super) snapshot_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { history: Limits::default(), snapshot_bytes: 32 << 20 }
    }
}

/// A store in a directory.
pub(crate) struct Embedded {
    shared: Arc<Shared>,
    waiting: Arc<Semaphore>,
    /// `None` only while the store is dropped.
    writer: Option<(mpsc::Sender<Job>, JoinHandle<()>)>,
}

impl Embedded {
    /// Opens the store in `path`, which is made if it is missing. Reads the disk, so it blocks.
    pub(crate) fn open(path: &Path, settings: Settings) -> Result<Self, StoreError> {
        let directory = Arc::new(Directory::take(path)?);
        let recovered = recover::recover(&directory, settings.history)?;
        let Recovered { state, history, log, older_bytes } = recovered;
        let shared = Arc::new(Shared {
            state: RwLock::new(state),
            history: Arc::new(history),
            trouble: Mutex::default(),
            failing: Gauge::default(),
            wants_snapshot: AtomicBool::new(false),
        });
        let (sender, jobs) = mpsc::channel();
        let writer = Writer {
            jobs,
            shared: Arc::clone(&shared),
            directory,
            log,
            log_is_unknown: false,
            refused_bytes: 0,
            older_bytes,
            snapshot_bytes: settings.snapshot_bytes,
            failed_bytes: 0,
            waits_for_room: false,
            rhythm: Rhythm::default(),
            snapshot: None,
            snapshot_is_wanted: false,
        };
        let thread = thread::Builder::new().name("store-writer".into()).spawn(|| writer.run());
        let thread = thread.map_err(directory::failed("starting a thread for", path))?;
        let waiting = Arc::new(Semaphore::new(WAITING));
        Ok(Self { shared, waiting, writer: Some((sender, thread)) })
    }

    async fn submit(&self, write: Write) -> Outcome {
        let size = write.key.len() + write.value.as_ref().map_or(0, bytes::Bytes::len);
        if size > LARGEST_VALUE {
            return Err(StoreError::TooLarge { size, limit: LARGEST_VALUE }.into());
        }
        let permit = Arc::clone(&self.waiting).acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::Closed)?;
        let (reply, outcome) = oneshot::channel();
        let (writer, _) = self.writer.as_ref().ok_or(StoreError::Closed)?;
        writer.send(Job { write, reply, _permit: permit }).map_err(|_| StoreError::Stopped)?;
        outcome.await.unwrap_or(Err(StoreError::Stopped.into()))
    }

    /// Has a snapshot taken that begins after now, and waits until it is the oldest file.
    async fn replace_files(&self) -> Result<(), StoreError> {
        self.shared.wants_snapshot.store(true, Ordering::Relaxed);
        let given_up = tokio::time::Instant::now() + SNAPSHOT_PATIENCE;
        while tokio::time::Instant::now() < given_up {
            // It changes nothing, and the writer looks around after it.
            let nothing = Write { key: String::new(), expected: Expected::Absent, value: None };
            match self.submit(nothing).await {
                Ok(_) | Err(WriteError::Conflict(_)) => {}
                Err(WriteError::Store(error)) => return Err(error),
            }
            if !self.shared.wants_snapshot.load(Ordering::Relaxed) {
                return Ok(());
            }
            tokio::time::sleep(SNAPSHOT_POLL).await;
        }
        Err(StoreError::NotForgotten)
    }
}

impl Store for Embedded {
    #[cfg(test)]
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<super::Stored>, StoreError>> {
        let found = self.shared.read().object(key).map(|object| object.stored(key));
        ready(Ok(found)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        ready(Ok(self.shared.read().list(prefix))).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<ResourceVersion, WriteError>> {
        self.submit(write).boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: ResourceVersion,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Event, WatchError>>, WatchError>> {
        ready(self.shared.history.watch(prefix, after)).boxed()
    }

    fn compact(&self, before: ResourceVersion) -> BoxFuture<'_, Result<(), StoreError>> {
        self.shared.history.compact(before);
        ready(Ok(())).boxed()
    }

    fn forget_overwritten(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.replace_files().boxed()
    }

    fn trouble(&self) -> BoxFuture<'_, Option<String>> {
        let ended = self.writer.as_ref().is_none_or(|(_, thread)| thread.is_finished());
        let ended = ended.then(|| StoreError::Stopped.to_string());
        ready(self.shared.trouble().or(ended)).boxed()
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "waybill_store_failing",
            "1 while the disk takes no writes of the embedded store",
            self.shared.failing.clone(),
        );
    }
}

/// Performs the writes that wait, and ends the threads.
impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.history.close();
        if let Some((jobs, thread)) = self.writer.take() {
            drop(jobs);
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// What the writer shows to all others. Everything in it is on disk.
struct Shared {
    state: RwLock<State>,
    history: Arc<History>,
    /// Why the disk takes no writes.
    trouble: Mutex<Option<String>>,
    /// Whether there is trouble, as a metric.
    failing: Gauge,
    /// Somebody waits for a snapshot that begins from now on.
    wants_snapshot: AtomicBool,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, error: Option<&StoreError>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (error, trouble.is_some()) {
            (Some(error), false) => {
                tracing::error!(error = %Chain(error), "the disk takes no writes of the store");
            }
            (None, true) => tracing::info!("the disk takes writes of the store again"),
            _ => {}
        }
        *trouble = error.map(|error| Chain(error).to_string());
        self.failing.set(i64::from(error.is_some()));
    }

    fn show(&self, changes: Vec<Change>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for change in &changes {
            state.apply(change);
        }
        drop(state);
        self.history.extend(changes);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;
    use futures_util::future::join_all;

    use super::{directory::Kind, *};
    use crate::store::{contract, sealed::tests::all_sealed};

    fn open(path: &Path) -> Result<Embedded, StoreError> {
        Embedded::open(path, Settings::default())
    }

    fn create(key: &str, value: &str) -> Write {
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        Write { key: key.into(), expected: Expected::Absent, value }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keeps_the_contract() {
        contract::check_all(async |_| {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path()).unwrap();
            (Arc::new(store) as Arc<dyn Store>, directory)
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keeps_the_contract_when_it_is_sealed() {
        contract::check_all(async |_| {
            let directory = tempfile::tempdir().unwrap();
            let store = open(directory.path()).unwrap();
            (all_sealed(Arc::new(store)), directory)
        })
        .await;
    }

    #[tokio::test]
    async fn reopening_keeps_objects_revisions_and_history() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).unwrap();
        let first = store.write(create("/a", "1")).await.unwrap();
        store.write(create("/b", "2")).await.unwrap();
        let delete = Write { key: "/a".into(), expected: Expected::At(first), value: None };
        let newest = store.write(delete).await.unwrap();
        let before = store.list("").await.unwrap();
        drop(store);

        let store = open(directory.path()).unwrap();
        assert_eq!(store.list("").await.unwrap(), before);
        let mut watch = store.watch("/a", 0.into()).await.unwrap();
        let previous = Some(Bytes::from_static(b"1"));
        let created =
            Change { key: "/a".into(), revision: first, value: previous.clone(), previous: None };
        let deleted = Change { key: "/a".into(), revision: newest, value: None, previous };
        assert_eq!(contract::changes(&mut watch, 2).await, [created, deleted]);
        assert!(store.write(create("/a", "3")).await.unwrap() > newest);
    }

    #[tokio::test]
    async fn a_second_store_in_the_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _store = open(directory.path()).unwrap();
        assert!(matches!(open(directory.path()), Err(StoreError::Locked { .. })));
    }

    #[tokio::test]
    async fn an_object_beyond_the_limit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).unwrap();
        let value = Some(Bytes::from(vec![b'x'; LARGEST_VALUE]));
        let write = Write { key: "/a".into(), expected: Expected::Absent, value };
        let refusal = store.write(write).await.unwrap_err();
        assert!(matches!(refusal, WriteError::Store(StoreError::TooLarge { .. })), "{refusal}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn snapshots_replace_the_log_while_writes_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { snapshot_bytes: 20_000, ..Settings::default() };
        for round in 0..3 {
            let store = Embedded::open(directory.path(), settings).unwrap();
            let value = "x".repeat(1000);
            for at in 0..40 {
                let writes = (0..8)
                    .map(|client| store.write(create(&format!("/{round}/{at}/{client}"), &value)));
                assert!(join_all(writes).await.iter().all(|written| written.is_ok()));
                // Deleting keeps the state small, so that snapshots are due again and again.
                for object in store.list(&format!("/{round}/{at}/")).await.unwrap().objects {
                    if !object.key.ends_with('7') {
                        let expected = Expected::At(object.revision);
                        let delete = Write { key: object.key, expected, value: None };
                        store.write(delete).await.unwrap();
                    }
                }
            }
            let before = store.list("").await.unwrap();
            drop(store);
            assert_eq!(before.objects.len(), 40 * (round + 1));
            assert_eq!(before.revision.get(), 40 * 15 * (round as u64 + 1));
            let store = Embedded::open(directory.path(), settings).unwrap();
            assert_eq!(store.list("").await.unwrap(), before);
        }
        let owned = Directory::take(directory.path()).unwrap();
        assert!(owned.list(Kind::Snapshot).unwrap().last().is_some_and(|base| base.get() > 100));
        let files = fs::read_dir(directory.path()).unwrap().count();
        assert!(files <= 5, "{files} files");
    }
}
