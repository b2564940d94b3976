//! The one thread that writes.
//!
//! It takes all writes that wait, decides them in their order, puts them into the log with one sync,
//! and only then shows and acknowledges them. While it syncs, the next commit gathers.
//!
//! A commit that fails is refused, and the next one is tried. If it is not known what a failed commit
//! left on disk, a new log begins where the last good commit ended, and nothing after that in the old log
//! counts. While the disk takes no writes, it is tried every second whether it does again.

use std::{
    collections::HashMap,
    io,
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
    directory::{Directory, write_failed},
    frame::{FULL, FrameBuilder, RecordRef},
    log::{AppendError, Holds, Log},
    recover, snapshot,
    state::{Object, State},
};
use crate::store::{Change, Expected, StoreError, Stored, Write, WriteError};

/// The longest wait for writes that are expected to come.
const PATIENCE: Duration = Duration::from_millis(1);

/// How often is tried whether the disk takes writes again.
const RETRY: Duration = Duration::from_secs(1);

/// The disk takes writes if there is room for so many bytes.
const HEADROOM: u64 = 1 << 17;

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
    /// Nobody knows what `log` holds on disk after its last good commit.
    pub(super) log_is_unknown: bool,
    /// The largest commit for which there was no room.
    pub(super) refused_bytes: u64,
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
        self.try_again();
        loop {
            let patience = self.shared.trouble().is_some().then_some(RETRY);
            match self.rhythm.gather(&self.jobs, patience) {
                Gathered::Batch(batch) => self.commit(batch),
                Gathered::Nothing => self.try_again(),
                Gathered::Closed => return,
            }
            self.take_snapshot_if_due();
        }
    }

    /// Performs the jobs, or refuses them.
    fn commit(&mut self, batch: Vec<Job>) {
        if let Err(error) = self.ensure_log() {
            self.shared.set_trouble(Some(&error));
            return refuse(batch, &error);
        }
        let Decided { frame, changes, outcomes } = decide(&self.shared.read(), &batch);
        if !frame.is_empty() {
            let started = Instant::now();
            let holds = match changes.iter().all(|change| change.value.is_none()) {
                true => Holds::OnlyDeletions,
                false => Holds::AnyWrites,
            };
            let frame = frame.finish();
            if let Err(error) = self.log.append(&frame, holds) {
                self.refused_bytes = self.refused_bytes.max(frame.len() as u64);
                return self.failed(batch, error, holds);
            }
            self.rhythm.committed(batch.len(), started.elapsed());
            self.shared.show(changes);
        }
        for (job, outcome) in batch.into_iter().zip(outcomes) {
            // The caller may have stopped waiting.
            let _ = job.reply.send(outcome);
        }
    }

    /// Refuses what could not be committed. Deletions get another chance without the other writes.
    fn failed(&mut self, batch: Vec<Job>, error: AppendError, holds: Holds) {
        let undone = matches!(error, AppendError::Undone(_));
        let error = self.note(error);
        let (deletions, others): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|job| undone && holds == Holds::AnyWrites && job.write.value.is_none());
        refuse(others, &error);
        if !deletions.is_empty() {
            self.commit(deletions);
        }
    }

    /// Tells that the disk does not take writes.
    fn note(&mut self, error: AppendError) -> StoreError {
        let (unknown, source) = match error {
            AppendError::Undone(source) => (false, source),
            AppendError::Unknown(source) => (true, source),
        };
        self.log_is_unknown |= unknown;
        let error = write_failed(self.log.path(), source);
        self.shared.set_trouble(Some(&error));
        error
    }

    /// Sees whether the disk takes writes again.
    fn try_again(&mut self) {
        let wanted = HEADROOM.max(self.refused_bytes);
        let tried = self.ensure_log();
        let tried = tried.and_then(|()| self.log.make_room(wanted).map_err(|it| self.note(it)));
        if tried.is_ok() {
            self.refused_bytes = 0;
        }
        self.shared.set_trouble(tried.as_ref().err());
    }

    /// Begins a new log if nobody knows what the old one holds.
    fn ensure_log(&mut self) -> Result<(), StoreError> {
        if self.log_is_unknown {
            let base = self.shared.read().revision();
            let log = Log::create(&self.directory, base)?;
            self.older_bytes += self.log.len();
            (self.log, self.log_is_unknown) = (log, false);
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
            Ok(log) => (self.log, self.log_is_unknown) = (log, false),
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

/// What came to be written.
enum Gathered {
    Batch(Vec<Job>),
    /// The time was up.
    Nothing,
    /// Nobody is left who could send more.
    Closed,
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
    /// What waits, once something does. With `patience` that is not waited for longer.
    fn gather(&self, jobs: &mpsc::Receiver<Job>, patience: Option<Duration>) -> Gathered {
        let first = match patience {
            Some(patience) => jobs.recv_timeout(patience),
            None => jobs.recv().map_err(|mpsc::RecvError| mpsc::RecvTimeoutError::Disconnected),
        };
        let first = match first {
            Ok(first) => first,
            Err(mpsc::RecvTimeoutError::Timeout) => return Gathered::Nothing,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Gathered::Closed,
        };
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
        Gathered::Batch(batch)
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

/// Tells each caller of a failure that is theirs alone to handle.
fn refuse(batch: Vec<Job>, error: &StoreError) {
    for job in batch {
        let error = match error {
            StoreError::Full { path, source } => {
                StoreError::Full { path: path.clone(), source: copy(source) }
            }
            StoreError::Io { step, path, source } => {
                StoreError::Io { step, path: path.clone(), source: copy(source) }
            }
            _ => StoreError::Stopped,
        };
        // The caller may have stopped waiting.
        let _ = job.reply.send(Err(error.into()));
    }
}

fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error)
}

fn size(job: &Job) -> usize {
    job.write.key.len() + job.write.value.as_ref().map_or(0, bytes::Bytes::len)
}
