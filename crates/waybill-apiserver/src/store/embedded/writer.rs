//! The one thread that writes.
//!
//! It takes all writes that wait, decides them in their order, puts them into the log with one sync,
//! and only then shows and acknowledges them. While it syncs, the next commit gathers.
//!
//! A commit that fails is refused, and the next one is tried. If it is not known what a failed commit
//! left on disk, a new log begins where the last good commit ended, and nothing after that in the old log
//! counts. While the disk takes no writes, it is tried every second whether it does again, and if it is full
//! of writes that no longer count, a snapshot takes their place.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use waybill_core::{chain::Chain, id::ResourceVersion};

use super::{
    Shared,
    directory::{Directory, write_failed},
    frame::{FULL, FrameBuilder, RecordRef},
    log::{AppendError, Holds, Log},
    snapshot,
    snapshotter::{Snapshotter, Taken},
    state::{Object, State},
};
use crate::store::{Change, Expected, StoreError, Stored, Write, WriteError};

/// The longest wait for writes that are expected to come.
const PATIENCE: Duration = Duration::from_millis(1);

/// How often is tried whether the disk takes writes again.
const RETRY: Duration = Duration::from_secs(1);

/// The disk takes writes if there is room for so many bytes.
const HEADROOM: u64 = 1 << 17;

/// A disk that has no more than this besides what a snapshot takes may have no room for one soon.
const SHORT: u64 = 4 << 20;

/// Logs that are smaller are no reason for a snapshot.
const WORTH_A_SNAPSHOT: u64 = 1 << 20;

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
    /// It failed for want of room, and there is none yet.
    pub(super) waits_for_room: bool,
    pub(super) rhythm: Rhythm,
    /// The snapshot being taken.
    pub(super) snapshot: Option<Snapshotter>,
    /// It was begun after somebody asked for it.
    pub(super) snapshot_is_wanted: bool,
}

impl Writer {
    /// Serves jobs until their senders are gone.
    pub(super) fn run(mut self) {
        self.try_again();
        let mut tried = Instant::now();
        loop {
            let patience = self.shared.trouble().is_some().then_some(RETRY);
            match self.rhythm.gather(&self.jobs, patience) {
                Gathered::Batch(batch) => self.commit(batch),
                Gathered::Nothing => {}
                Gathered::Closed => return,
            }
            if self.shared.trouble().is_some() && tried.elapsed() >= RETRY {
                self.try_again();
                tried = Instant::now();
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
        let mut tried = self.make_room();
        if matches!(tried, Err(StoreError::Full { .. })) && self.replace_dead_log() {
            tried = self.make_room();
        }
        if tried.is_ok() {
            // A snapshot that found no room may find some now.
            (self.refused_bytes, self.failed_bytes) = (0, 0);
        }
        self.shared.set_trouble(tried.as_ref().err());
    }

    fn make_room(&mut self) -> Result<(), StoreError> {
        let wanted = HEADROOM.max(self.refused_bytes);
        self.ensure_log()?;
        self.log.make_room(wanted).map_err(|error| self.note(error))
    }

    /// Takes a snapshot at once if most of the logs no longer counts and the objects are few enough for the room that
    /// was kept for deletions. Then the logs go. True if it is so.
    fn replace_dead_log(&mut self) -> bool {
        let (log_bytes, needed) = self.log_and_snapshot_bytes();
        let free = self.directory.free_bytes().unwrap_or(0);
        let fits = needed <= free.saturating_add(self.log.room());
        if self.snapshot.is_some() || log_bytes / 2 < needed || !fits {
            return false;
        }
        if let Err(error) = self.log.give_up_room() {
            tracing::error!(%error, "cannot give up the room of the log");
            return false;
        }
        self.begin_snapshot(log_bytes);
        // It is small, and while the room is its own nobody else gets it.
        let replaced = self.snapshot.take().is_some_and(|snapshot| snapshot.ended() == Taken::Done);
        match replaced {
            true => (self.older_bytes, self.failed_bytes) = (0, 0),
            // Users shall still be able to delete. What is refused here is told by who asked for this.
            false => drop(self.log.make_room(0)),
        }
        replaced
    }

    /// What the logs take, and what a snapshot would.
    fn log_and_snapshot_bytes(&self) -> (u64, u64) {
        (self.older_bytes + self.log.len(), snapshot::size(&self.shared.read()))
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
        let (log_bytes, needed) = self.log_and_snapshot_bytes();
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.is_finished()) {
            let was_wanted = std::mem::take(&mut self.snapshot_is_wanted);
            match snapshot.ended() {
                Taken::Done => {
                    (self.older_bytes, self.failed_bytes) = (0, 0);
                    self.shared.wants_snapshot.fetch_and(!was_wanted, Ordering::Relaxed);
                }
                Taken::Failed => self.failed_bytes = log_bytes,
                Taken::NoRoom => {
                    (self.failed_bytes, self.waits_for_room) = (log_bytes, !self.has_room(needed));
                }
            }
        }
        if self.waits_for_room && self.has_room(needed) {
            (self.failed_bytes, self.waits_for_room) = (0, false);
        }
        // After a failure, try again when there is twice as much, not at each commit.
        let due = self.snapshot_bytes.max(self.failed_bytes.saturating_mul(2));
        let is_due = log_bytes >= due.max(self.shared.read().bytes());
        let is_wanted =
            self.failed_bytes == 0 && self.shared.wants_snapshot.load(Ordering::Relaxed);
        let is_due = is_due || is_wanted || self.is_last_chance(log_bytes, needed);
        if self.snapshot.is_none() && is_due {
            self.begin_snapshot(log_bytes);
            self.snapshot_is_wanted = is_wanted && self.snapshot.is_some();
        }
    }

    /// Whether most of the logs no longer counts, and the disk is about to have no room for a snapshot.
    fn is_last_chance(&self, log_bytes: u64, needed: u64) -> bool {
        let is_mostly_dead = log_bytes >= WORTH_A_SNAPSHOT && log_bytes / 2 >= needed;
        is_mostly_dead
            && self.failed_bytes == 0
            && self.has_room(needed)
            && !self.has_room(needed.saturating_add(SHORT))
    }

    /// Whether there is room for so many bytes, with some for the log. A disk that does not say has room.
    fn has_room(&self, bytes: u64) -> bool {
        let wanted = bytes.saturating_add(HEADROOM);
        self.directory.free_bytes().is_none_or(|free| free >= wanted)
    }

    fn begin_snapshot(&mut self, log_bytes: u64) {
        let base = self.shared.read().revision();
        match Log::create(&self.directory, base) {
            Ok(log) => (self.log, self.log_is_unknown) = (log, false),
            Err(error) => {
                tracing::error!(error = %Chain(&error), "cannot start a new log");
                self.failed_bytes = log_bytes;
                self.waits_for_room = matches!(error, StoreError::Full { .. });
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
