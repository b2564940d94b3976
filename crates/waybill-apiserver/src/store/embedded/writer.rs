//! The one thread that writes.
//!
//! It takes all writes that wait, decides them in their order, puts them into the log with one sync,
//! and only then shows and acknowledges them. While it syncs, the next commit gathers.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use waybill_core::{chain::Chain, id::ResourceVersion};

use super::{
    Shared,
    directory::Directory,
    frame::{FULL, FrameBuilder, RecordRef},
    log::{AppendError, Log},
    recover, snapshot,
    state::{Object, State},
};
use crate::store::{Change, Expected, StoreError, Stored, Write, WriteError};

/// The longest wait for writes that are expected to come.
const PATIENCE: Duration = Duration::from_millis(1);

/// A write on its way.
pub(super) struct Job {
    pub(super) write: Write,
    pub(super) reply: oneshot::Sender<Outcome>,
    /// Held until the write is acknowledged, so that those who wait are bounded.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What became of a write.
pub(super) type Outcome = Result<ResourceVersion, WriteError>;

/// The state of the writing thread.
pub(super) struct Writer {
    pub(super) jobs: mpsc::Receiver<Job>,
    pub(super) shared: Arc<Shared>,
    pub(super) directory: Arc<Directory>,
    pub(super) log: Log,
    /// The bytes of the logs before `log` that no snapshot has replaced.
    pub(super) older_bytes: u64,
    /// A snapshot is taken when the logs are larger than this and than the objects.
    pub(super) snapshot_bytes: u64,
    /// The bytes of the logs when a snapshot last failed.
    pub(super) failed_bytes: u64,
    pub(super) rhythm: Rhythm,
    /// The snapshot being taken.
    pub(super) snapshot: Option<Snapshotter>,
}

impl Writer {
    /// Serves jobs until their senders are gone.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.rhythm.gather(&self.jobs) {
            if let Err(error) = self.commit(batch) {
                tracing::error!(error = %Chain(&error), "the store stops: a commit failed");
                break;
            }
            self.take_snapshot_if_due();
        }
        // A dropped job tells its caller that the store has stopped.
        self.jobs.into_iter().for_each(drop);
    }

    /// Performs the jobs. Fails if what the disk holds is unknown.
    fn commit(&mut self, batch: Vec<Job>) -> Result<(), StoreError> {
        let Decided { frame, changes, outcomes } = decide(&self.shared.read(), &batch);
        if !frame.is_empty() {
            let started = Instant::now();
            match self.log.append(&frame.finish()) {
                Ok(()) => self.rhythm.committed(batch.len(), started.elapsed()),
                Err(AppendError::Undone(error)) => {
                    tracing::error!(error = %error, "a commit failed and was undone");
                    refuse(batch, self.log.path(), &error);
                    return Ok(());
                }
                Err(AppendError::Unknown(source)) => {
                    let path = self.log.path().to_owned();
                    return Err(StoreError::Io { step: "writing", path, source });
                }
            }
            self.shared.show(changes);
        }
        for (job, outcome) in batch.into_iter().zip(outcomes) {
            // The caller may have stopped waiting.
            let _ = job.reply.send(outcome);
        }
        Ok(())
    }

    fn take_snapshot_if_due(&mut self) {
        let log_bytes = self.older_bytes + self.log.len();
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.is_finished()) {
            match snapshot.succeeded() {
                true => (self.older_bytes, self.failed_bytes) = (0, 0),
                false => self.failed_bytes = log_bytes,
            }
        }
        // After a failure, try again when there is twice as much, not at each commit.
        let due = self.snapshot_bytes.max(self.failed_bytes.saturating_mul(2));
        if self.snapshot.is_some() || log_bytes < due.max(self.shared.read().bytes()) {
            return;
        }
        let base = self.shared.read().revision();
        match Log::create(&self.directory, base) {
            Ok(log) => self.log = log,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "cannot start a new log");
                self.failed_bytes = log_bytes;
                return;
            }
        }
        self.older_bytes = log_bytes;
        self.snapshot = Snapshotter::start(&self.shared, &self.directory, base);
    }
}

/// When to wait for more writes before a sync.
///
/// Those who were acknowledged together come back together, a moment apart. Without a pause the
/// first of them would get a sync of its own and the rest would wait for two.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    last_batch: usize,
    last_sync: Duration,
}

impl Rhythm {
    fn gather(&self, jobs: &mpsc::Receiver<Job>) -> Option<Vec<Job>> {
        let first = jobs.recv().ok()?;
        let mut bytes = size(&first);
        let mut batch = vec![first];
        let deadline = Instant::now() + PATIENCE.min(self.last_sync / 4);
        while bytes < FULL {
            let next = if batch.len() < self.last_batch {
                let left = deadline.saturating_duration_since(Instant::now());
                jobs.recv_timeout(left).ok()
            } else {
                jobs.try_recv().ok()
            };
            let Some(job) = next else { break };
            bytes += size(&job);
            batch.push(job);
        }
        Some(batch)
    }

    fn committed(&mut self, batch: usize, sync: Duration) {
        (self.last_batch, self.last_sync) = (batch, sync);
    }
}

/// A thread that takes a snapshot. On drop it is told to give up, and waited for.
pub(super) struct Snapshotter {
    /// `None` only while this is dropped.
    thread: Option<JoinHandle<bool>>,
    stop: Arc<AtomicBool>,
}

impl Snapshotter {
    /// Takes a snapshot at `base` and then removes what it replaces.
    fn start(
        shared: &Arc<Shared>,
        directory: &Arc<Directory>,
        base: ResourceVersion,
    ) -> Option<Self> {
        let (shared, directory) = (Arc::clone(shared), Arc::clone(directory));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let written = snapshot::write(&directory, base, &shared.state, &stopped);
            let done = written.and_then(|()| recover::remove_before(&directory, base));
            if let Err(error) = &done
                && !stopped.load(Ordering::Relaxed)
            {
                tracing::error!(error = %Chain(error), "taking a snapshot failed");
            }
            done.is_ok()
        };
        let thread = thread::Builder::new().name("store-snapshot".into()).spawn(run);
        if let Err(error) = &thread {
            tracing::error!(%error, "cannot start a thread for a snapshot");
        }
        thread.ok().map(|thread| Self { thread: Some(thread), stop })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn succeeded(mut self) -> bool {
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

impl Drop for Snapshotter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// What a batch comes to.
struct Decided {
    frame: FrameBuilder,
    changes: Vec<Change>,
    /// One for each job, in the same order.
    outcomes: Vec<Outcome>,
}

/// Decides the jobs in their order, each on what those before it left.
fn decide(state: &State, batch: &[Job]) -> Decided {
    let mut revision = state.revision();
    let mut frame = FrameBuilder::new(revision.get().saturating_add(1).into());
    let mut changes = Vec::with_capacity(batch.len());
    let mut touched: HashMap<&str, Option<Object>> = HashMap::new();
    let outcomes = batch.iter().map(|Job { write, .. }| {
        let current = match touched.get(write.key.as_str()) {
            Some(object) => object.as_ref(),
            None => state.object(&write.key),
        };
        match (write.expected, current) {
            (Expected::Absent, None) if write.value.is_none() => return Ok(revision),
            (Expected::Absent, None) => {}
            (Expected::At(expected), Some(object)) if object.revision == expected => {}
            _ => return Err(WriteError::Conflict(conflict(&write.key, current))),
        }
        revision = revision.get().saturating_add(1).into();
        let (key, value) = (write.key.as_str(), write.value.as_deref());
        frame.push(RecordRef { key, revision, value });
        let change = Change {
            key: write.key.clone(),
            revision,
            value: write.value.clone(),
            previous: current.map(|object| object.value.clone()),
        };
        changes.push(change);
        touched.insert(key, write.value.clone().map(|value| Object { value, revision }));
        Ok(revision)
    });
    let outcomes = outcomes.collect();
    Decided { frame, changes, outcomes }
}

fn conflict(key: &str, current: Option<&Object>) -> Option<Stored> {
    current.map(|object| object.stored(key))
}

fn refuse(batch: Vec<Job>, path: &Path, error: &io::Error) {
    for job in batch {
        let source = error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error);
        let error = StoreError::Io { step: "writing", path: path.into(), source };
        // The caller may have stopped waiting.
        let _ = job.reply.send(Err(error.into()));
    }
}

fn size(job: &Job) -> usize {
    job.write.key.len() + job.write.value.as_ref().map_or(0, bytes::Bytes::len)
}
