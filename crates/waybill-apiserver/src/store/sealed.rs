//! A store in which the values of some resources are encrypted, whatever store it is.
//!
//! What goes down is sealed under the first key of the ring, and bound to its place: a value that somebody
//! copies to another name in the store does not open there. What comes up is opened: lists, watches,
//! conflicts. So the files of the store below, its logs and snapshots, and an etcd with its backups,
//! have nothing but ciphertext of these resources. A value that does not open is an error and never
//! an object that is not there.
//!
//! Plain values, of a time before there were keys, are read as they are; [`rewrite`] seals them.

mod envelope;
mod key_file;
mod key_ring;
mod rewrite;
mod xaes;

#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::error::Unspecified;
use bytes::Bytes;
use futures_util::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::BoxStream,
};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use waybill_core::id::ResourceVersion;

use self::envelope::Envelope;
pub(crate) use self::{
    key_file::{KeyFile, Stamp},
    key_ring::{KeyId, KeyRing, OpenError},
    rewrite::Forms,
};
use super::{Change, Event, Snapshot, Store, StoreError, Stored, WatchError, Write, WriteError};

/// A store whose values are sealed on their way to `inner`.
pub(crate) struct Sealed {
    inner: Arc<dyn Store>,
    sealer: Arc<Sealer>,
    /// Values that are still plain, or sealed under an older key.
    to_rewrite: Gauge,
    /// Whether the keys that the server uses are not those of the key file.
    keys_failing: Gauge,
}

/// Knows what is sealed, and with what.
struct Sealer {
    ring: ArcSwap<KeyRing>,
    /// Values under these prefixes are sealed.
    prefixes: Vec<String>,
}

impl Sealed {
    /// What is under `prefixes` is sealed from now on; whatever is sealed already is opened.
    pub(crate) fn new(inner: Arc<dyn Store>, ring: KeyRing, prefixes: Vec<String>) -> Self {
        let sealer = Arc::new(Sealer { ring: ArcSwap::from_pointee(ring), prefixes });
        Self { inner, sealer, to_rewrite: Gauge::default(), keys_failing: Gauge::default() }
    }

    /// Uses these keys from now on, if all that is sealed can be read with them.
    pub(crate) async fn set_keys(&self, ring: KeyRing) -> Result<(), StoreError> {
        let forms = self.forms().await?;
        if let Some((id, place)) = forms.under.iter().find(|(id, _)| !ring.has(id)) {
            let source = OpenError::NoSuchKey(id.clone());
            return Err(StoreError::Sealed { key: place.first.clone(), source });
        }
        self.sealer.ring.store(Arc::new(ring));
        Ok(())
    }

    /// Tells whether the keys in use are those of the key file.
    pub(crate) fn set_keys_failing(&self, failing: bool) {
        self.keys_failing.set(i64::from(failing));
    }
}

impl Sealer {
    /// The value of `key` as it is to lie in the store.
    fn seal(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        if !self.is_wanted(key) {
            return Ok(value);
        }
        let sealed = self.ring.load().seal(key, &value).unwrap_or(Err(Unspecified));
        sealed.map(Bytes::from).map_err(|Unspecified| StoreError::Sealing)
    }

    /// The value of `key` as it was before it was sealed, if it was.
    fn open(&self, key: &str, value: Bytes) -> Result<Bytes, StoreError> {
        let opened = self.ring.load().open(key, &value);
        let opened = opened.map_err(|source| StoreError::Sealed { key: key.to_owned(), source })?;
        Ok(opened.map_or(value, Bytes::from))
    }

    fn open_stored(&self, stored: Stored) -> Result<Stored, StoreError> {
        let value = self.open(&stored.key, stored.value)?;
        Ok(Stored { value, ..stored })
    }

    fn open_change(&self, change: Change) -> Result<Change, StoreError> {
        let open = |value: Option<Bytes>| value.map(|it| self.open(&change.key, it)).transpose();
        let (value, previous) = (open(change.value)?, open(change.previous)?);
        Ok(Change { value, previous, ..change })
    }

    fn open_event(&self, event: Event) -> Result<Event, WatchError> {
        match event {
            Event::Change(change) => Ok(Event::Change(self.open_change(change)?)),
            Event::Progress(revision) => Ok(Event::Progress(revision)),
        }
    }

    fn is_wanted(&self, key: &str) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
    }

    /// Whether a value lies in the store as it would be written now.
    fn is_current(&self, key: &str, value: &[u8]) -> bool {
        let ring = self.ring.load();
        let wanted = ring.newest().filter(|_| self.is_wanted(key)).map(KeyId::as_str);
        match Envelope::of(value) {
            Envelope::Plain => wanted.is_none(),
            Envelope::Sealed { key, .. } => wanted == Some(key),
            Envelope::Foreign => false,
        }
    }
}

impl Store for Sealed {
    #[cfg(test)]
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StoreError>> {
        async move {
            let found = self.inner.get(key).await?;
            found.map(|stored| self.sealer.open_stored(stored)).transpose()
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        async move {
            let Snapshot { objects, revision } = self.inner.list(prefix).await?;
            let opened = objects.into_iter().map(|stored| self.sealer.open_stored(stored));
            Ok(Snapshot { objects: opened.collect::<Result<_, _>>()?, revision })
        }
        .boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<ResourceVersion, WriteError>> {
        async move {
            let Write { key, expected, value } = write;
            let value = value.map(|value| self.sealer.seal(&key, value)).transpose()?;
            match self.inner.write(Write { key, expected, value }).await {
                Err(WriteError::Conflict(Some(there))) => {
                    Err(WriteError::Conflict(Some(self.sealer.open_stored(there)?)))
                }
                written => written,
            }
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: ResourceVersion,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Event, WatchError>>, WatchError>> {
        async move {
            let sealer = Arc::clone(&self.sealer);
            let events = self.inner.watch(prefix, after).await?;
            Ok(events.map(move |event| sealer.open_event(event?)).boxed())
        }
        .boxed()
    }

    fn compact(&self, before: ResourceVersion) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(before)
    }

    fn forget_overwritten(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.forget_overwritten()
    }

    fn trouble(&self) -> BoxFuture<'_, Option<String>> {
        self.inner.trouble()
    }

    fn register(&self, registry: &mut Registry) {
        self.inner.register(registry);
        registry.register(
            "waybill_store_values_to_rewrite",
            "Values that are to be encrypted and are not yet, or are under an older key",
            self.to_rewrite.clone(),
        );
        registry.register(
            "waybill_store_keys_failing",
            "1 while the key file cannot be used and the keys from before it changed are",
            self.keys_failing.clone(),
        );
    }
}
