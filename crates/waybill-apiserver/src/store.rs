//! Where objects live: one private trait, two implementations, one contract.
//!
//! The store knows keys and bytes, nothing of Kubernetes. Revisions count writes: each write of the
//! whole store gets a greater number than the one before, and an object's `resourceVersion` is the
//! revision of its last write. A write is acknowledged when it would survive the power cord being
//! pulled, and nothing is shown to a reader before that. Reads of the API come from the watch
//! caches, so this interface serves writes, start-up and the caches' feed.
//!
//! Values may be Secrets: no `Debug` in this module prints one, and [`sealed`] keeps them from disks.

mod embedded;
mod etcd;
mod history;
mod sealed;

#[cfg(test)]
mod contract;

use std::{fmt, io, path::PathBuf};

use bytes::Bytes;
use futures_util::{
    future::{BoxFuture, FutureExt, ready},
    stream::BoxStream,
};
use prometheus_client::registry::Registry;
use waybill_core::id::ResourceVersion;

pub(crate) use self::{
    embedded::{Embedded, Settings},
    etcd::{Etcd, EtcdConfig, EtcdIdentity, EtcdTls, EtcdUser, TlsSource},
    sealed::{Forms, KeyFile, KeyId, KeyRing, Sealed, Stamp},
};

/// A durable, ordered map with history.
///
/// A prefix is plain text: `/a/b` covers `/a/bc` too, and a caller who means a directory ends it
/// with a slash. The empty prefix covers everything.
pub(crate) trait Store: Send + Sync + 'static {
    /// The object at `key`, as of the newest revision. Only tests ask: reads come from the caches.
    #[cfg(test)]
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StoreError>>;

    /// Everything under `prefix`, ordered by key, all as of one revision.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>>;

    /// Performs `write` if its expectation holds. Resolves when the write is durable; many callers
    /// at once share a commit. A caller that stops waiting does not stop the write.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<ResourceVersion, WriteError>>;

    /// Every change under `prefix` after `after`, in order, without gaps, until the stream is
    /// dropped. A stream that cannot go on ends with an error; a reader that falls behind the kept
    /// history is told so by [`WatchError::Compacted`].
    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: ResourceVersion,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Event, WatchError>>, WatchError>>;

    /// Forgets the history before `before`; the objects themselves stay. A watch can then start
    /// after `before - 1` or later. What is forgotten already stays so, and a revision that is still
    /// to come counts as the next one.
    fn compact(&self, before: ResourceVersion) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Lets go of what was overwritten or deleted, as far as it lies in files that are this store's own.
    fn forget_overwritten(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }

    /// Why writes cannot be taken at the moment.
    fn trouble(&self) -> BoxFuture<'_, Option<String>>;

    /// Makes the store's metrics visible.
    fn register(&self, _registry: &mut Registry) {}
}

/// An object in the store.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) key: String,
    pub(crate) value: Bytes,
    /// The revision of its last write.
    pub(crate) revision: ResourceVersion,
}

/// What lay under a prefix at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) objects: Vec<Stored>,
    /// The revision of the store at that moment.
    pub(crate) revision: ResourceVersion,
}

/// A compare-and-swap of one key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: String,
    pub(crate) expected: Expected,
    /// `None` deletes. To delete what is expected to be absent changes nothing and yields the
    /// newest revision.
    pub(crate) value: Option<Bytes>,
}

/// What must hold for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// There is nothing at the key.
    Absent,
    /// The object at the key was last written at this revision.
    At(ResourceVersion),
}

/// What a watch yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Something under the prefix was written.
    Change(Change),
    /// Everything up to this revision has been yielded, so a reader of a quiet prefix can say how
    /// fresh it is and resume from here.
    Progress(ResourceVersion),
}

/// One write, as a watch sees it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) revision: ResourceVersion,
    /// `None` if the object was deleted.
    pub(crate) value: Option<Bytes>,
    /// What was there before; `None` if the object was created.
    pub(crate) previous: Option<Bytes>,
}

/// A copy of a value that will be kept for long, in room of one of few sizes.
///
/// A part of a larger buffer would keep all of it in memory. Few sizes let an object that grew a
/// little fit into what another one left.
pub(crate) fn kept(value: &[u8]) -> Bytes {
    let step = (value.len() / 16).next_power_of_two();
    let mut bytes = Vec::with_capacity(value.len().next_multiple_of(step));
    bytes.extend_from_slice(value);
    bytes.into()
}

/// Why the store cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// Another process, or another store of this one, works in the directory.
    #[error("{} is in use by another process", path.display())]
    Locked { path: PathBuf },
    /// The operating system refused.
    #[error("{step} {}", path.display())]
    Io {
        /// What was being done, as "reading".
        step: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The disk has no room for a write, which did not happen.
    #[error("the disk that holds {} is full", path.display())]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file does not hold what was written to it. It is left as it is.
    #[error("{} is damaged at offset {offset}: {reason}", path.display())]
    Damaged { path: PathBuf, offset: u64, reason: &'static str },
    /// The thread that writes is gone; only a restart helps.
    #[error("the store has stopped")]
    Stopped,
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
    /// The object is larger than the store takes.
    #[error("the object has {size} bytes, at most {limit} are allowed")]
    TooLarge { size: usize, limit: usize },
    /// The configuration of the store cannot be used.
    #[error("setting up the connection to etcd")]
    Connect(#[source] tonic::transport::Error),
    /// etcd refused or could not be reached.
    #[error("etcd: {call}")]
    Call {
        /// The procedure called, as "range".
        call: &'static str,
        #[source]
        source: etcd::Failure,
    },
    /// etcd did not answer in time.
    #[error("etcd: {call} timed out")]
    Timeout { call: &'static str },
    /// What was overwritten lies in files until there is a snapshot.
    #[error("no snapshot could be taken yet, so older files of the store are still there")]
    NotForgotten,
    /// A value is encrypted and cannot be read.
    #[error("cannot read {key} in the store")]
    Sealed {
        key: String,
        #[source]
        source: sealed::OpenError,
    },
    /// A value cannot be encrypted, and is not written.
    #[error("the value cannot be encrypted: there is no key, or the cryptographic library refused")]
    Sealing,
    /// etcd answered something that its protocol does not allow.
    #[error("etcd: unexpected answer to {call}")]
    Answer { call: &'static str },
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WriteError {
    /// The expectation does not hold; what is there instead.
    #[error("the object was changed by someone else")]
    Conflict(Option<Stored>),
    /// The store could not say, or could not write. The write may or may not have happened.
    #[error("writing to the store")]
    Store(#[from] StoreError),
}

/// Why a watch cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WatchError {
    /// The history before this revision is gone; list again.
    #[error("the history before revision {0} has been compacted")]
    Compacted(ResourceVersion),
    /// The stream broke off.
    #[error("watching the store")]
    Store(#[from] StoreError),
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("key", &self.key)
            .field("value", &Length(self.value.len()))
            .field("revision", &self.revision)
            .finish()
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("key", &self.key)
            .field("expected", &self.expected)
            .field("value", &self.value.as_ref().map(|value| Length(value.len())))
            .finish()
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |value: &Option<Bytes>| value.as_ref().map(|value| Length(value.len()));
        f.debug_struct("Change")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .field("value", &length(&self.value))
            .field("previous", &length(&self.previous))
            .finish()
    }
}

/// Stands for a value in `Debug` output.
struct Length(usize);

impl fmt::Debug for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_values_have_little_room_to_spare() {
        for length in [1, 15, 16, 17, 900, 4_290, 4_480, 1 << 20] {
            let value = vec![b'x'; length];
            let bytes = kept(&value);
            assert_eq!(bytes, value);
            let room = bytes.try_into_mut().unwrap().capacity();
            assert!(room <= length + length / 8 + 1, "{length}: {room}");
        }
    }

    #[test]
    fn debug_output_never_shows_a_value() {
        let (key, value) = (String::from("/k"), Bytes::from_static(b"hunter2"));
        let revision = ResourceVersion::from(7);
        let stored = Stored { key: key.clone(), value: value.clone(), revision };
        let write =
            Write { key: key.clone(), expected: Expected::Absent, value: Some(value.clone()) };
        let change = Change { key, revision, value: Some(value.clone()), previous: Some(value) };
        let conflict = WriteError::Conflict(Some(stored.clone()));
        let shown = format!("{stored:?} {write:?} {:?} {conflict:?}", Event::Change(change));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("7 bytes"), "{shown}");
    }
}
