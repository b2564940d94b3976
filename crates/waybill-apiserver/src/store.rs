//! Where objects live: one private trait, two implementations, one contract.
//!
//! The store knows keys and bytes, nothing of Kubernetes. Revisions count writes: each write of the
//! whole store gets the next number, and an object's `resourceVersion` is the revision of its last
//! write. A write is acknowledged when it would survive the power cord being pulled. Reads of the
//! API come from the watch caches, so this interface serves writes, start-up and the caches' feed.

use bytes::Bytes;
use futures_util::{future::BoxFuture, stream::BoxStream};
use waybill_core::id::ResourceVersion;

/// A durable, ordered map with history.
pub(crate) trait Store: Send + Sync + 'static {
    /// The object at `key`, as of the newest revision.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StoreError>>;

    /// Everything under `prefix`, ordered by key, all as of one revision.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>>;

    /// Performs `write` if its expectation holds. Resolves when the write is durable; many callers
    /// at once share a commit.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<ResourceVersion, WriteError>>;

    /// Every change under `prefix` after `after`, in order, without gaps, until the stream is
    /// dropped. A stream that cannot go on ends with an error.
    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: ResourceVersion,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Change, WatchError>>, WatchError>>;

    /// Forgets the history before `before`; the objects themselves stay.
    fn compact(&self, before: ResourceVersion) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// An object in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: String,
    pub(crate) expected: Expected,
    /// `None` deletes.
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

/// One write, as a watch sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) revision: ResourceVersion,
    /// `None` if the object was deleted.
    pub(crate) value: Option<Bytes>,
    /// What was there before; `None` if the object was created.
    pub(crate) previous: Option<Bytes>,
}

/// Why the store cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {}

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
