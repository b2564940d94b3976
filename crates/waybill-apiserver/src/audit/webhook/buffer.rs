//! Events that wait for the service, and what became of those before them.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use tokio::{sync::Notify, time::sleep};

use super::{Mode, WebhookOptions};
use crate::audit::notice::Notice;

/// So many bytes may wait, however many events that is: at level `RequestResponse` one may have megabytes.
const MOST_BYTES: usize = 64 << 20;

/// A batch ends when it has so many bytes.
const BATCH_BYTES: usize = 8 << 20;

const HEAD: &[u8] =
    br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
const TAIL: &[u8] = b"]}\n";

/// Events on their way to the service.
pub(super) struct Buffer {
    most: usize,
    state: Mutex<State>,
    /// Something came, or it is to end.
    changed: Notify,
    /// It is to end.
    ending: Notify,
    /// Something went.
    went: Condvar,
    lost: Counter,
}

#[derive(Default)]
struct State {
    events: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Events and bytes that are being sent; they need their places until they are taken.
    under_way: (usize, usize),
    /// How many events ever came in, and how many of them are not here any more.
    came: u64,
    gone: u64,
    /// Those that found no place since the service was last told.
    untold: Option<Untold>,
    stopped: bool,
}

#[derive(Clone, Copy)]
struct Untold {
    events: u64,
    from: Timestamp,
}

/// Events that go together.
pub(super) struct Batch {
    body: Vec<u8>,
    events: u64,
}

impl Batch {
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }
}

impl Buffer {
    pub(super) fn new(most: usize, lost: Counter) -> Self {
        Self {
            most: most.max(1),
            state: Mutex::default(),
            changed: Notify::new(),
            ending: Notify::new(),
            went: Condvar::new(),
            lost,
        }
    }

    /// Takes lines, as far as there is room; returns how many ever came.
    pub(super) fn push(&self, now: Timestamp, lines: &[u8]) -> u64 {
        let mut state = self.lock();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let (events, bytes) = state.under_way;
            let is_full = state.events.len() + events >= self.most
                || state.bytes + bytes + line.len() > MOST_BYTES;
            if is_full || state.stopped {
                self.lost.inc();
                state.untold.get_or_insert(Untold { events: 0, from: now }).events += 1;
            } else {
                state.events.push_back(line.to_vec());
                state.bytes += line.len();
                state.came += 1;
            }
        }
        let came = state.came;
        drop(state);
        self.changed.notify_one();
        came
    }

    /// Waits until the first `count` events are gone, or for so long.
    pub(super) fn wait_for(&self, count: u64, limit: Duration) {
        let waits = |state: &mut State| state.gone < count && !state.stopped;
        let waited = self.went.wait_timeout_while(self.lock(), limit, waits);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for something to send; false if nothing will come any more.
    pub(super) async fn ready(&self, options: &WebhookOptions) -> bool {
        loop {
            let (waiting, stopped) = {
                let state = self.lock();
                (state.events.len(), state.stopped)
            };
            if stopped {
                return waiting > 0;
            }
            if waiting > 0 {
                break;
            }
            self.changed.notified().await;
        }
        if options.mode == Mode::Batch {
            tokio::select! {
                () = sleep(options.max_batch_wait) => {}
                () = self.filled(options.max_batch_size) => {}
            }
        }
        true
    }

    async fn filled(&self, events: usize) {
        loop {
            let is_full = {
                let state = self.lock();
                state.events.len() >= events || state.bytes >= BATCH_BYTES || state.stopped
            };
            if is_full {
                return;
            }
            self.changed.notified().await;
        }
    }

    /// The next batch, with a notice of what the service did not get.
    pub(super) fn take(&self, most: usize, now: Timestamp) -> Option<Batch> {
        let mut state = self.lock();
        state.events.front()?;
        let mut body = HEAD.to_vec();
        if let Some(Untold { events, from }) = state.untold.take() {
            let why = "too many events waited for the audit webhook";
            let notice = Notice::Lost { events, from, to: now, why }.line(now);
            body.extend_from_slice(notice.trim_ascii_end());
        }
        let (mut events, mut bytes) = (0, 0);
        while events < most.max(1)
            && bytes < BATCH_BYTES
            && let Some(event) = state.events.pop_front()
        {
            if body.len() > HEAD.len() {
                body.push(b',');
            }
            body.extend_from_slice(&event);
            (events, bytes) = (events + 1, bytes + event.len());
        }
        body.extend_from_slice(TAIL);
        state.bytes -= bytes;
        state.under_way = (events, bytes);
        Some(Batch { body, events: events as u64 })
    }

    /// The service has a batch.
    pub(super) fn delivered(&self, batch: &Batch) {
        self.is_gone(&mut self.lock(), batch);
    }

    /// The service will get neither a batch nor what is behind it: the server ends.
    pub(super) fn lose(&self, batch: &Batch) {
        let mut state = self.lock();
        let behind = std::mem::take(&mut state.events).len() as u64;
        self.lost.inc_by(batch.events + behind);
        self.is_gone(&mut state, batch);
    }

    fn is_gone(&self, state: &mut State, batch: &Batch) {
        state.under_way = (0, 0);
        state.gone += batch.events;
        self.went.notify_all();
    }

    /// Nothing more is taken.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
        self.ending.notify_one();
        self.went.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Returns when the end has come; at once after that.
    pub(super) async fn stopped(&self) {
        while !self.is_stopped() {
            self.ending.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
