//! All objects, in memory.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;
use waybill_core::id::ResourceVersion;

use super::frame::Record;
use crate::store::{Change, Snapshot, Stored};

/// The objects as of one revision.
#[derive(Debug)]
pub(super) struct State {
    objects: BTreeMap<Box<str>, Object>,
    revision: ResourceVersion,
    /// Of all keys and values.
    bytes: u64,
}

/// What lies at a key.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) value: Bytes,
    /// The revision of the last write.
    pub(super) revision: ResourceVersion,
}

impl State {
    /// No objects, before the first write.
    pub(super) fn empty() -> Self {
        Self { objects: BTreeMap::new(), revision: 0.into(), bytes: 0 }
    }

    /// Puts back what a snapshot holds.
    pub(super) fn restore(&mut self, record: Record) {
        if let Some(value) = record.value {
            self.put(record.key.into(), Object { value, revision: record.revision });
        }
    }

    /// Says how far the writes reach that the state holds.
    pub(super) fn set_revision(&mut self, revision: ResourceVersion) {
        self.revision = revision;
    }

    /// Performs a write that was decided before.
    pub(super) fn apply(&mut self, change: &Change) {
        self.revision = change.revision;
        match &change.value {
            Some(value) => {
                let object = Object { value: value.clone(), revision: change.revision };
                self.put(change.key.as_str().into(), object);
            }
            None => self.remove(&change.key),
        }
    }

    /// Performs a write that a snapshot, taken while writes went on, may or may not have seen.
    pub(super) fn reapply(&mut self, record: Record) {
        if self
            .objects
            .get(record.key.as_str())
            .is_some_and(|held| held.revision >= record.revision)
        {
            return;
        }
        match record.value {
            Some(value) => {
                self.put(record.key.into(), Object { value, revision: record.revision });
            }
            None => self.remove(&record.key),
        }
    }

    pub(super) fn revision(&self) -> ResourceVersion {
        self.revision
    }

    /// How many objects there are.
    pub(super) fn count(&self) -> u64 {
        self.objects.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn object(&self, key: &str) -> Option<&Object> {
        self.objects.get(key)
    }

    /// Everything under `prefix`.
    pub(super) fn list(&self, prefix: &str) -> Snapshot {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let objects = self
            .objects
            .range::<str, _>(from)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, object)| object.stored(key))
            .collect();
        Snapshot { objects, revision: self.revision }
    }

    /// The objects after the key `after`, or from the first.
    pub(super) fn range_after<'a>(
        &'a self,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a str, &'a Object)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects
            .range::<str, _>((start, Bound::Unbounded))
            .map(|(key, object)| (&**key, object))
    }

    fn put(&mut self, key: Box<str>, object: Object) {
        let length = key.len();
        self.bytes += (length + object.value.len()) as u64;
        if let Some(old) = self.objects.insert(key, object) {
            self.bytes -= (length + old.value.len()) as u64;
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some(old) = self.objects.remove(key) {
            self.bytes -= (key.len() + old.value.len()) as u64;
        }
    }
}

impl Object {
    pub(super) fn stored(&self, key: &str) -> Stored {
        Stored { key: key.into(), value: self.value.clone(), revision: self.revision }
    }
}
