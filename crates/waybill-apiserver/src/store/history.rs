//! The newest changes, kept in memory for those who watch.
//!
//! There is one [`History`] per store and no queue per watcher: each [`Watcher`] remembers how far it
//! has read and takes the rest when it is woken. So a watcher that does not read costs nothing, and
//! one that falls behind what is kept gets [`WatchError::Compacted`] and lists again. The history is
//! bounded by number and by bytes; what it drops first is the oldest.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use waybill_core::id::ResourceVersion;

use super::{Change, Event, StoreError, WatchError};

/// How many changes a watcher takes at a time; they are copied while the history is locked.
const BATCH: usize = 256;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The number of changes.
    pub(super) changes: usize,
    /// The bytes of their keys and values, the previous ones included.
    pub(super) bytes: usize,
}

/// The caches read it, a few commits behind the newest change; if they fall further behind, they
/// compare themselves with a snapshot. So it need not be long.
impl Default for Limits {
    fn default() -> Self {
        Self { changes: 16_384, bytes: 16 << 20 }
    }
}

/// The changes after some revision.
#[derive(Debug)]
pub(super) struct History {
    ring: Mutex<Ring>,
    /// Woken at each change of the ring.
    changed: watch::Sender<()>,
    limits: Limits,
}

impl History {
    /// A history that begins after `revision`.
    pub(super) fn after(revision: ResourceVersion, limits: Limits) -> Self {
        let ring = Ring {
            changes: VecDeque::new(),
            bytes: 0,
            floor: revision,
            newest: revision,
            closed: false,
        };
        Self { ring: Mutex::new(ring), changed: watch::Sender::new(()), limits }
    }

    /// Adds `changes`, which are newer than all before, and wakes the watchers.
    pub(super) fn extend(&self, changes: impl IntoIterator<Item = Change>) {
        let mut ring = self.lock();
        for change in changes {
            ring.push(change);
        }
        ring.shrink(self.limits);
        drop(ring);
        self.changed.send_replace(());
    }

    /// Notes that nothing changed up to `revision`.
    pub(super) fn advance(&self, revision: ResourceVersion) {
        let mut ring = self.lock();
        ring.newest = ring.newest.max(revision);
        drop(ring);
        self.changed.send_replace(());
    }

    /// Forgets what came before `before`.
    pub(super) fn compact(&self, before: ResourceVersion) {
        let mut ring = self.lock();
        let before = before.get().min(ring.newest.get().saturating_add(1));
        ring.forget_through(before.saturating_sub(1).into());
        drop(ring);
        self.changed.send_replace(());
    }

    /// Begins anew after `revision`, because changes up to there were missed.
    pub(super) fn restart(&self, revision: ResourceVersion) {
        let mut ring = self.lock();
        ring.newest = ring.newest.max(revision);
        let newest = ring.newest;
        ring.forget_through(newest);
        drop(ring);
        self.changed.send_replace(());
    }

    /// Ends all watchers.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.send_replace(());
    }

    /// How far the history reaches.
    pub(super) fn newest(&self) -> ResourceVersion {
        self.lock().newest
    }

    /// Watches `prefix` from the first change after `after`.
    pub(super) fn watch(
        self: &Arc<Self>,
        prefix: &str,
        after: ResourceVersion,
    ) -> Result<BoxStream<'static, Result<Event, WatchError>>, WatchError> {
        self.lock().check(after)?;
        let watcher = Watcher {
            changed: self.changed.subscribe(),
            history: Arc::clone(self),
            prefix: prefix.into(),
            seen: after,
            ready: VecDeque::new(),
        };
        let step = |watcher: Option<Watcher>| async move {
            let mut watcher = watcher?;
            match watcher.next().await {
                Ok(event) => Some((Ok(event), Some(watcher))),
                Err(error) => Some((Err(error), None)),
            }
        };
        Ok(stream::unfold(Some(watcher), step).boxed())
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Every change of the ring is complete before a call that could panic.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One reader of the history.
#[derive(Debug)]
struct Watcher {
    history: Arc<History>,
    changed: watch::Receiver<()>,
    prefix: Box<str>,
    /// Everything up to here has been read.
    seen: ResourceVersion,
    ready: VecDeque<Event>,
}

impl Watcher {
    async fn next(&mut self) -> Result<Event, WatchError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let seen = self.history.lock().read(&self.prefix, self.seen, &mut self.ready)?;
            if seen == self.seen {
                // The sender lives in the history that we hold.
                let _ = self.changed.changed().await;
            } else {
                self.seen = seen;
            }
        }
    }
}

#[derive(Debug)]
struct Ring {
    /// Ordered by revision.
    changes: VecDeque<Change>,
    bytes: usize,
    /// Changes up to here are not in the ring.
    floor: ResourceVersion,
    newest: ResourceVersion,
    closed: bool,
}

impl Ring {
    fn push(&mut self, change: Change) {
        self.newest = change.revision;
        self.bytes += size(&change);
        self.changes.push_back(change);
    }

    fn shrink(&mut self, limits: Limits) {
        while self.changes.len() > limits.changes || self.bytes > limits.bytes {
            let Some(oldest) = self.changes.front() else { return };
            let revision = oldest.revision;
            self.forget_through(revision);
        }
    }

    fn forget_through(&mut self, revision: ResourceVersion) {
        while let Some(change) = self.changes.pop_front_if(|change| change.revision <= revision) {
            self.bytes -= size(&change);
        }
        self.floor = self.floor.max(revision);
    }

    fn check(&self, after: ResourceVersion) -> Result<(), WatchError> {
        if self.closed {
            return Err(StoreError::Closed.into());
        }
        if after < self.floor {
            return Err(WatchError::Compacted(self.floor.get().saturating_add(1).into()));
        }
        Ok(())
    }

    /// Puts what lies under `prefix` after `after` into `events`, and says how far that reaches.
    fn read(
        &self,
        prefix: &str,
        after: ResourceVersion,
        events: &mut VecDeque<Event>,
    ) -> Result<ResourceVersion, WatchError> {
        self.check(after)?;
        let mut seen = after;
        let start = self.changes.partition_point(|change| change.revision <= after);
        for change in self.changes.range(start..) {
            // Changes of one revision belong together.
            if events.len() >= BATCH && change.revision != seen {
                return Ok(seen);
            }
            seen = change.revision;
            if change.key.starts_with(prefix) {
                events.push_back(Event::Change(change.clone()));
            }
        }
        seen = seen.max(self.newest);
        let told = matches!(events.back(), Some(Event::Change(change)) if change.revision == seen);
        if seen != after && !told {
            events.push_back(Event::Progress(seen));
        }
        Ok(seen)
    }
}

fn size(change: &Change) -> usize {
    let length = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
    change.key.len() + length(&change.value) + length(&change.previous)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, revision: u64) -> Change {
        let value = Some(Bytes::from_static(b"value"));
        Change { key: key.into(), revision: revision.into(), value, previous: None }
    }

    fn history(changes: usize, bytes: usize) -> Arc<History> {
        Arc::new(History::after(0.into(), Limits { changes, bytes }))
    }

    /// What is ready now, in short: `a7` for a change of `/a` at 7, `-8` for progress to 8.
    async fn ready(stream: &mut BoxStream<'static, Result<Event, WatchError>>) -> String {
        let mut seen = Vec::new();
        while let Some(next) = futures_util::FutureExt::now_or_never(stream.next()) {
            seen.push(match next {
                Some(Ok(Event::Change(Change { key, revision, .. }))) => format!("{key}{revision}"),
                Some(Ok(Event::Progress(revision))) => format!("-{revision}"),
                Some(Err(error)) => error.to_string(),
                None => String::from("end"),
            });
            if seen.last().is_some_and(|last| last == "end") {
                break;
            }
        }
        seen.join(" ")
    }

    #[tokio::test]
    async fn a_watch_sees_its_prefix_and_how_far_the_rest_has_come() {
        let history = history(10, 1000);
        let mut stream = history.watch("a", 0.into()).unwrap();
        assert_eq!(ready(&mut stream).await, "");
        history.extend([change("a", 1), change("b", 2)]);
        assert_eq!(ready(&mut stream).await, "a1 -2");
        history.extend([change("b", 3), change("a", 5)]);
        assert_eq!(ready(&mut stream).await, "a5");
        history.advance(9.into());
        let mut late = history.watch("a", 1.into()).unwrap();
        assert_eq!(ready(&mut late).await, "a5 -9");
    }

    #[tokio::test]
    async fn a_slow_watcher_is_ended_when_the_history_is_full() {
        for history in [history(2, 1000), history(10, 12)] {
            let mut stream = history.watch("a", 0.into()).unwrap();
            history.extend([change("a", 1), change("a", 2), change("a", 3)]);
            let seen = ready(&mut stream).await;
            assert_eq!(seen, "the history before revision 2 has been compacted end");
            assert!(history.watch("a", 0.into()).is_err());
            assert_eq!(ready(&mut history.watch("a", 1.into()).unwrap()).await, "a2 a3");
        }
    }

    #[tokio::test]
    async fn compaction_ends_where_it_says() {
        let history = history(10, 1000);
        history.extend([change("a", 1), change("a", 2), change("a", 3)]);
        history.compact(3.into());
        assert!(history.watch("a", 1.into()).is_err());
        assert_eq!(ready(&mut history.watch("a", 2.into()).unwrap()).await, "a3");
        history.compact(1.into());
        history.compact(900.into());
        assert!(matches!(
            history.watch("a", 2.into()),
            Err(WatchError::Compacted(revision)) if revision.get() == 4
        ));
        assert_eq!(ready(&mut history.watch("a", 3.into()).unwrap()).await, "");
    }

    #[tokio::test]
    async fn watchers_end_with_their_store() {
        let history = history(10, 1000);
        let mut stream = history.watch("a", 0.into()).unwrap();
        history.close();
        assert_eq!(ready(&mut stream).await, "watching the store end");
    }
}
