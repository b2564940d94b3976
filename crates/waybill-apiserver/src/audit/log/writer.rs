//! The thread that writes the audit log, and what it does while it cannot.
//!
//! Lines that the disk does not take are kept, as far as a bound allows, and tried again: with the next
//! batch, and every second without one. Who waits for them is told at once that they are not written.
//! What does not fit the bound is lost, as is what found no place in the queue; the first line after that says how much.

use std::{
    error::Error,
    mem,
    sync::{Arc, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use super::{Durability, Entry, HEAP, QUEUE_IS_FULL, Queue, Shared, Sink};
use crate::audit::notice::Notice;

/// How long an event may lie that nobody waits for. The writer is woken once for all of them, because
/// waking a thread costs more than answering a read does.
const LINGER: Duration = Duration::from_millis(10);

/// How much memory the writer keeps between batches.
const BUFFER: usize = 1 << 20;

/// How many bytes of lines are kept while they cannot be written.
const BACKLOG: usize = 8 << 20;

/// How often is tried whether lines can be written again.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Writer<S> {
    shared: Arc<Shared>,
    durability: Durability,
    sink: S,
    backlog: Backlog,
    /// The last attempt failed.
    troubled: bool,
}

/// What could not be written so far.
#[derive(Default)]
struct Backlog {
    lines: Vec<u8>,
    events: u64,
    lost: u64,
    /// When the first was lost, and why.
    first_lost: Option<(Timestamp, String)>,
}

/// What the queue had for the writer.
struct Work {
    batch: Vec<Entry>,
    reopen: bool,
    stop: bool,
}

impl<S: Sink> Writer<S> {
    pub(super) fn new(shared: Arc<Shared>, durability: Durability, sink: S) -> Self {
        Self { shared, durability, sink, backlog: Backlog::default(), troubled: false }
    }

    pub(super) fn run(&mut self) {
        // If the sink panics, nobody may wait for it.
        let _stopped = Stopped(Arc::clone(&self.shared));
        self.make_room();
        loop {
            let Work { batch, reopen, stop } = self.take();
            if self.troubled || self.backlog.first_lost.is_some() || !batch.is_empty() {
                self.write(batch);
            }
            if reopen && let Err(error) = self.sink.reopen((self.shared.clock)()) {
                tracing::error!(error = &error as &dyn Error, "cannot reopen the audit log");
            }
            if stop {
                let unwritten = mem::take(&mut self.backlog);
                if unwritten.events > 0 {
                    self.shared.count_lost(unwritten.events, "the log is shut down");
                }
                return;
            }
        }
    }

    /// All that waits, once there is something to do.
    fn take(&mut self) -> Work {
        let mut queue = self.shared.lock();
        let idle = |queue: &mut Queue| {
            let tells = queue.overflow.is_due((self.shared.clock)());
            queue.waiting.is_empty() && !tells && !queue.reopen && !queue.stop
        };
        if self.troubled {
            let waited = self.shared.filled.wait_timeout_while(queue, RETRY, idle);
            (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        } else {
            let waited = self.shared.filled.wait_while(queue, idle);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let lingers = |queue: &mut Queue| {
            !queue.urgent && !queue.reopen && !queue.stop && queue.waiting.len() < HEAP
        };
        let waited = self.shared.filled.wait_timeout_while(queue, LINGER, lingers);
        (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.urgent = false;
        queue.stopped = queue.stop;
        let now = (self.shared.clock)();
        if (queue.stop || queue.overflow.is_due(now))
            && let Some((events, since)) = queue.overflow.take(now)
        {
            self.backlog.lost += events;
            self.backlog.first_lost.get_or_insert_with(|| (since, QUEUE_IS_FULL.to_owned()));
        }
        let reopen = mem::take(&mut queue.reopen);
        Work { batch: mem::take(&mut queue.waiting), reopen, stop: queue.stop }
    }

    /// Writes what was left over, and a batch. Those who wait learn what became of it.
    fn write(&mut self, batch: Vec<Entry>) {
        let now = (self.shared.clock)();
        let kept = self.backlog.lines.len();
        let notice = self.backlog.notice(now);
        let mut lines = mem::take(&mut self.backlog.lines);
        lines.extend_from_slice(&notice);
        batch.iter().for_each(|entry| lines.extend_from_slice(&entry.line));
        let outcome = self.sink.append(now, &lines).and_then(|()| match self.durability {
            Durability::Process => Ok(()),
            Durability::Disk => self.sink.sync(),
        });
        match outcome {
            Ok(()) => {
                lines.clear();
                lines.shrink_to(BUFFER);
                self.backlog = Backlog { lines, ..Backlog::default() };
                self.make_room();
                for entry in batch {
                    // Whoever asked may have stopped waiting.
                    let _ = entry.written.send(());
                }
            }
            Err(error) => {
                lines.truncate(kept);
                self.backlog.lines = lines;
                self.in_trouble(&error.to_string());
                self.keep(batch, now, &error.to_string());
            }
        }
    }

    /// Keeps a batch for later, as far as there is room.
    fn keep(&mut self, batch: Vec<Entry>, now: Timestamp, why: &str) {
        let mut lost = 0;
        for entry in batch {
            if self.backlog.lines.len() + entry.line.len() <= BACKLOG {
                self.backlog.lines.extend_from_slice(&entry.line);
                self.backlog.events += 1;
            } else {
                lost += 1;
            }
        }
        if lost > 0 {
            self.backlog.lost += lost;
            self.backlog.first_lost.get_or_insert_with(|| (now, why.to_owned()));
            self.shared.count_lost(lost, why);
        }
    }

    /// Asks for room for what is under way. Without it nothing new should begin.
    fn make_room(&mut self) {
        match self.sink.make_room() {
            Ok(()) => {
                if mem::take(&mut self.troubled) {
                    tracing::info!("the audit log can be written again");
                }
                self.shared.lock().trouble = None;
                self.shared.metrics.failing.set(0);
            }
            Err(error) => self.in_trouble(&error.to_string()),
        }
    }

    fn in_trouble(&mut self, why: &str) {
        self.shared.lock().trouble = Some(why.to_owned());
        self.shared.metrics.failing.set(1);
        if !mem::replace(&mut self.troubled, true) {
            tracing::error!(error = why, "the audit log cannot be written");
        }
    }
}

impl Backlog {
    /// A line about what was lost, if anything was.
    fn notice(&self, now: Timestamp) -> Vec<u8> {
        let Some((since, why)) = self.first_lost.as_ref() else { return Vec::new() };
        Notice::Lost { events: self.lost, from: *since, to: now, why }.line(now)
    }
}

/// Marks the queue as dead and counts what is in it.
struct Stopped(Arc<Shared>);

impl Drop for Stopped {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.stopped = true;
        let left = mem::take(&mut queue.waiting);
        drop(queue);
        if !left.is_empty() {
            self.0.count_lost(left.len() as u64, "the writer stopped");
        }
    }
}
