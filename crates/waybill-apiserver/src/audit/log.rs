//! The queue before the audit log and the one thread that writes it.
//!
//! A request takes [`Places`] for all its events before it starts, so that none is lost later,
//! least of all the last one, which may come from a destructor that cannot wait. What has gathered
//! while a write was under way goes out with the next one; so many requests share one system call.
//! What the [`writer`] cannot write, the log tells by [`AuditLog::trouble`], until it can again.

mod writer;

use std::{
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};

use self::writer::Writer;
use crate::{
    audit::{bound, event::Event, metrics::AuditMetrics},
    clock::Clock,
};

/// Losses are logged, and told in the log, at most this often.
const QUIET: SignedDuration = SignedDuration::from_secs(10);

/// Why events are lost that found no place.
const QUEUE_IS_FULL: &str = "the queue is full";

/// So many events that nobody waits for are written without further delay.
const HEAP: usize = 1_024;

/// Where lines go. Only the writer's thread calls it, so it may block.
pub(crate) trait Sink: Send + 'static {
    /// Takes whole lines, as far as the process is concerned: after this they survive its death. If it
    /// fails, none of them is there.
    fn append(&mut self, now: Timestamp, lines: &[u8]) -> io::Result<()>;

    /// Makes what was appended survive a loss of power.
    fn sync(&mut self) -> io::Result<()>;

    /// Sees to it that the next lines find room, whoever fills the disk meanwhile.
    fn make_room(&mut self) -> io::Result<()>;

    /// Lets go of the file, which another program may have moved, and opens it anew.
    fn reopen(&mut self, now: Timestamp) -> io::Result<()>;
}

/// How the log behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// How many events may wait or be promised a place; every running request that is recorded
    /// counts, watches included.
    pub(crate) places: u32,
    pub(crate) overflow: Overflow,
    pub(crate) durability: Durability,
    /// How long the answer to a change waits until its event is written.
    pub(crate) write_wait: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            places: 65_536,
            overflow: Overflow::Wait(Duration::from_millis(500)),
            durability: Durability::Process,
            write_wait: Duration::from_secs(5),
        }
    }
}

/// What a request does when the log has no place for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// It waits so long, then goes on, unrecorded.
    Wait(Duration),
    /// It waits so long, then is refused.
    Reject(Duration),
}

/// What an event survives once it counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The end of this process.
    Process,
    /// The loss of power.
    Disk,
}

/// The log; it writes what is left and ends its thread when it is dropped.
pub(crate) struct AuditLog {
    shared: Arc<Shared>,
    options: LogOptions,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AuditLog {
    /// Starts the writer.
    pub(crate) fn start(
        sink: impl Sink,
        options: LogOptions,
        metrics: AuditMetrics,
        clock: Clock,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            filled: Condvar::new(),
            places: Arc::new(Semaphore::new(options.places as usize)),
            metrics,
            clock,
        });
        let mut writer = Writer::new(Arc::clone(&shared), options.durability, sink);
        let thread = Builder::new().name("audit".to_owned()).spawn(move || writer.run())?;
        Ok(Self { shared, options, writer: Mutex::new(Some(thread)) })
    }

    /// Promises places for `events` events of one request, waiting as long as the options say.
    pub(crate) async fn reserve(&self, events: u32) -> Result<Places, Full> {
        let places = &self.shared.places;
        if let Ok(permit) = Arc::clone(places).try_acquire_many_owned(events) {
            return Ok(Places { permit, shared: Arc::clone(&self.shared) });
        }
        let (Overflow::Wait(wait) | Overflow::Reject(wait)) = self.options.overflow;
        if let Ok(Ok(permit)) = timeout(wait, Arc::clone(places).acquire_many_owned(events)).await {
            return Ok(Places { permit, shared: Arc::clone(&self.shared) });
        }
        match self.options.overflow {
            Overflow::Wait(_) => {
                self.shared.count_overflow(u64::from(events));
                Err(Full::Unrecorded)
            }
            Overflow::Reject(_) => {
                self.shared.metrics.rejected.inc();
                Err(Full::Rejected)
            }
        }
    }

    /// Waits until an event is written. A loss is counted elsewhere.
    pub(crate) async fn wait(&self, written: Written) -> Result<(), Unwritten> {
        match timeout(self.options.write_wait, written.0).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Unwritten(self.trouble().unwrap_or_else(|| "it is lost".to_owned()))),
            Err(_) => Err(Unwritten("writing it takes too long".to_owned())),
        }
    }

    /// Why events cannot be written at the moment.
    pub(crate) fn trouble(&self) -> Option<String> {
        let queue = self.shared.lock();
        let stopped = queue.stopped.then(|| "the writer of the audit log has stopped".to_owned());
        queue.trouble.clone().or(stopped)
    }

    /// Queues an event that belongs to no request, if there is a place for it.
    pub(crate) fn put(&self, event: &Event) {
        if let Ok(permit) = Arc::clone(&self.shared.places).try_acquire_owned() {
            Places { permit, shared: Arc::clone(&self.shared) }.put(event, Urgency::Unawaited);
        } else {
            self.shared.count_overflow(1);
        }
    }

    /// Events were left out, because a budget was used up.
    pub(crate) fn count_left_out(&self) {
        self.shared.metrics.left_out.inc();
    }

    /// A request was refused because it cannot be recorded.
    pub(crate) fn count_rejected(&self) {
        self.shared.metrics.rejected.inc();
    }

    /// Opens the file anew after what is queued is written; for programs that rotate logs.
    pub(crate) fn reopen(&self) {
        self.shared.lock().reopen = true;
        self.shared.filled.notify_one();
    }

    /// Writes what is left and ends the thread; blocks as long as the disk needs for that. Events
    /// that come later are lost, and counted.
    pub(crate) fn shut_down(&self) {
        self.shared.lock().stop = true;
        self.shared.filled.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the audit log's writer panicked");
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Why a request has no places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The request goes on.
    Unrecorded,
    /// The request must be refused.
    Rejected,
}

/// Room for some events; what is not used is given back on drop.
pub(crate) struct Places {
    permit: OwnedSemaphorePermit,
    shared: Arc<Shared>,
}

impl Places {
    /// Queues `event`, in the last place if it takes one too many. Never waits.
    pub(crate) fn put(&mut self, event: &Event, urgency: Urgency) -> Written {
        let line = bound::line(event);
        let (written, receiver) = oneshot::channel();
        let place = self.permit.split(1);
        self.shared.metrics.events.inc();
        let mut queue = self.shared.lock();
        if queue.stopped {
            drop(queue);
            self.shared.count_lost(1, "the log is shut down");
        } else {
            queue.waiting.push(Entry { line, written, _place: place });
            queue.urgent |= urgency == Urgency::Awaited;
            let wakes = queue.urgent || matches!(queue.waiting.len(), 1 | HEAP);
            drop(queue);
            if wakes {
                self.shared.filled.notify_one();
            }
        }
        Written(receiver)
    }
}

/// Whether somebody waits until an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Awaited,
    /// It is written a moment later, together with others.
    Unawaited,
}

/// Resolves when an event is written, or was not.
pub(crate) struct Written(oneshot::Receiver<()>);

/// An event is not on record, or not yet; why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unwritten(pub(crate) String);

struct Entry {
    line: Vec<u8>,
    /// Wakes who waits when the entry is gone: with a word if it is written, without if not.
    written: oneshot::Sender<()>,
    /// Free again when the entry is gone.
    _place: Option<OwnedSemaphorePermit>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Entry>,
    /// Somebody waits for an entry.
    urgent: bool,
    reopen: bool,
    stop: bool,
    /// Nobody will take what is put in.
    stopped: bool,
    /// Why the writer cannot write.
    trouble: Option<String>,
    losses: Losses,
    overflow: Overflowed,
}

/// Events that found no place in the queue, for the log to tell.
#[derive(Default)]
struct Overflowed {
    events: u64,
    /// When the first of them came that is not told yet.
    since: Option<Timestamp>,
    told: Option<Timestamp>,
}

impl Overflowed {
    /// Whether it is time to tell of some.
    fn is_due(&self, now: Timestamp) -> bool {
        let told_lately = self.told.is_some_and(|told| now.duration_since(told) < QUIET);
        self.since.is_some() && !told_lately
    }

    /// How many there are and since when; they count as told.
    fn take(&mut self, now: Timestamp) -> Option<(u64, Timestamp)> {
        let since = self.since.take()?;
        self.told = Some(now);
        Some((mem::take(&mut self.events), since))
    }
}

#[derive(Default)]
struct Losses {
    unreported: u64,
    reported: Option<Timestamp>,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    places: Arc<Semaphore>,
    metrics: AuditMetrics,
    clock: Clock,
}

impl Shared {
    /// Events found no place. The writer tells of them when it has one for that.
    fn count_overflow(&self, events: u64) {
        let now = (self.clock)();
        let mut queue = self.lock();
        let overflow = &mut queue.overflow;
        overflow.events = overflow.events.saturating_add(events);
        overflow.since.get_or_insert(now);
        let is_due = overflow.is_due(now);
        drop(queue);
        if is_due {
            self.filled.notify_one();
        }
        self.count_lost(events, QUEUE_IS_FULL);
    }

    fn count_lost(&self, events: u64, reason: &str) {
        self.metrics.errors.inc_by(events);
        let now = (self.clock)();
        let mut queue = self.lock();
        let losses = &mut queue.losses;
        losses.unreported += events;
        if losses.reported.is_none_or(|last| now.duration_since(last) >= QUIET) {
            losses.reported = Some(now);
            let lost = mem::take(&mut losses.unreported);
            drop(queue);
            tracing::error!(lost, reason, "audit events are lost");
        }
    }

    /// The queue is consistent between any two statements that change it, so a panic elsewhere is
    /// no reason to stop recording.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests;
