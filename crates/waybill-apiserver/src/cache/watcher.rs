//! Changes on their way to one watch.

use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use tokio::sync::watch;
use waybill_core::id::ResourceVersion;

use super::{Place, Shared, object::CachedObject};

/// What happened to an object, as one watch sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Deleted,
    Modified,
}

impl ChangeKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Deleted => "DELETED",
            Self::Modified => "MODIFIED",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct ObjectChange {
    pub(crate) revision: ResourceVersion,
    /// The object after the change, or the last state of a deleted one.
    pub(crate) object: Arc<CachedObject>,
    pub(super) previous: Option<Arc<CachedObject>>,
    pub(crate) kind: ChangeKind,
    /// The object for watches whose selection it leaves.
    left: OnceLock<Arc<CachedObject>>,
}

impl ObjectChange {
    pub(super) fn between(
        old: Option<Arc<CachedObject>>,
        new: Option<Arc<CachedObject>>,
        revision: ResourceVersion,
        deleted_at: ResourceVersion,
    ) -> Option<Self> {
        let (object, kind) = match (&old, new) {
            (None, Some(new)) => (new, ChangeKind::Added),
            (Some(_), Some(new)) => (new, ChangeKind::Modified),
            // It is shown as it last was, at the revision of its deletion.
            (Some(old), None) => (Arc::new(old.at(deleted_at)), ChangeKind::Deleted),
            (None, None) => return None,
        };
        Some(Self { revision, object, previous: old, kind, left: OnceLock::new() })
    }

    /// What a watch that sees only what `keep` lets through is told, if anything.
    pub(crate) fn as_seen(&self, keep: impl Fn(&CachedObject) -> bool) -> Option<ChangeKind> {
        let before = self.previous.as_deref().is_some_and(&keep);
        let after = self.kind != ChangeKind::Deleted && keep(&self.object);
        match (before, after) {
            (false, true) => Some(ChangeKind::Added),
            (true, true) => Some(ChangeKind::Modified),
            (true, false) => Some(ChangeKind::Deleted),
            (false, false) => None,
        }
    }

    /// The object that an event of `kind` shows. To whom it leaves the selection it is deleted: it
    /// is shown as they last saw it, at the revision of the change.
    pub(crate) fn object_as(&self, kind: ChangeKind) -> &Arc<CachedObject> {
        match (&self.previous, kind) {
            (Some(previous), ChangeKind::Deleted) if self.kind == ChangeKind::Modified => {
                self.left.get_or_init(|| Arc::new(previous.at(self.revision)))
            }
            _ => &self.object,
        }
    }
}

/// A change on its way to everyone who watches. The history keeps the change alone.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) change: Arc<ObjectChange>,
    /// The event as most watchers get it, made once for all of them.
    line: OnceLock<Bytes>,
}

impl Told {
    pub(super) fn new(change: Arc<ObjectChange>) -> Self {
        Self { change, line: OnceLock::new() }
    }

    /// The event as one line of a watch response.
    pub(crate) fn line(&self, kind: ChangeKind) -> Bytes {
        if kind == self.change.kind {
            self.line.get_or_init(|| object_line(kind, &self.change.object)).clone()
        } else {
            object_line(kind, self.change.object_as(kind))
        }
    }
}

/// `{"type":…,"object":…}` and a line break, of an object as it is stored.
pub(crate) fn object_line(kind: ChangeKind, object: &CachedObject) -> Bytes {
    let mut line = BytesMut::with_capacity(object.json_len() + 40);
    line_head(kind, &mut line);
    object.put_json(&mut line);
    line.put_slice(b"}\n");
    line.freeze()
}

/// What comes before the object in the line of an event. After it come a brace and a line break.
pub(crate) fn line_head(kind: ChangeKind, line: &mut BytesMut) {
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_str().as_bytes());
    line.put_slice(b"\",\"object\":");
}

/// First what has happened already, then what happens.
pub(crate) struct Watcher {
    cache: Arc<Shared>,
    changed: watch::Receiver<()>,
    /// How often all watches had been ended when this one began.
    endings: u64,
    after: ResourceVersion,
    /// Where in the history the next change is, or will be.
    place: u64,
}

impl Watcher {
    pub(super) fn new(
        cache: Arc<Shared>,
        endings: u64,
        after: ResourceVersion,
        place: u64,
    ) -> Self {
        let changed = cache.changed.subscribe();
        Self { cache, changed, endings, after, place }
    }

    /// The next change; `None` when this watcher was cut off.
    pub(crate) async fn next(&mut self) -> Option<Arc<Told>> {
        loop {
            // Noted before the look, so that what comes after it wakes.
            self.changed.mark_unchanged();
            let (place, ended) = {
                let state = self.cache.read();
                (state.history.at(self.place), state.endings != self.endings)
            };
            match place {
                Place::Change(told) => {
                    self.place += 1;
                    if told.change.revision > self.after {
                        return Some(told);
                    }
                }
                Place::Ahead if !ended => self.changed.changed().await.ok()?,
                Place::Ahead | Place::Forgotten => return None,
            }
        }
    }

    /// The next change if it is there already.
    pub(crate) fn ready(&mut self) -> Option<Arc<Told>> {
        self.next().now_or_never().flatten()
    }

    /// Changes up to here are not shown.
    pub(crate) fn after(&self) -> ResourceVersion {
        self.after
    }
}
