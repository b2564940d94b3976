//! Writing anew what does not lie in the store as it would be written now: plain values, older keys.
//!
//! A write by anybody else seals too, so a conflict is no trouble: that value is new already. Nothing of
//! an object changes but its `resourceVersion`; this is the one writer that admission does not see.

use std::collections::BTreeMap;

use waybill_core::{chain::Chain, id::ResourceVersion};

use super::{Envelope, Sealed};
use crate::store::{Expected, Store, StoreError, Stored, Write, WriteError};

/// In what forms values lie in the store.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    /// By the id of their key.
    pub(crate) under: BTreeMap<String, Counted>,
    /// Values that would be sealed if they were written now.
    pub(crate) plain: u64,
}

/// How many values there are of a form.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) values: u64,
    /// The key of one of them, to be told.
    pub(crate) first: String,
}

impl Sealed {
    /// In what forms values lie in the store.
    pub(crate) async fn forms(&self) -> Result<Forms, StoreError> {
        let mut forms = Forms::default();
        for Stored { key, value, .. } in self.inner.list("").await?.objects {
            match Envelope::of(&value) {
                Envelope::Plain if self.sealer.is_wanted(&key) => forms.plain += 1,
                Envelope::Plain | Envelope::Foreign => {}
                Envelope::Sealed { key: id, .. } => {
                    let under = forms.under.entry(id.to_owned());
                    under.or_insert(Counted { values: 0, first: key }).values += 1;
                }
            }
        }
        Ok(forms)
    }

    /// Writes anew what is not as it would be written now, and lets files go that have it as it was.
    /// Returns how many values there were.
    pub(crate) async fn rewrite(&self) -> Result<u64, StoreError> {
        let mut old = self.inner.list("").await?.objects;
        old.retain(|stored| !self.sealer.is_current(&stored.key, &stored.value));
        let mut rewritten = 0;
        self.show_left(old.len());
        let mut left = old.len();
        for Stored { key, value, revision } in old {
            rewritten += u64::from(self.rewrite_one(key, value, revision).await?);
            left -= 1;
            self.show_left(left);
        }
        if rewritten > 0 {
            self.inner.forget_overwritten().await?;
        }
        Ok(rewritten)
    }

    /// False if somebody else wrote it meanwhile.
    async fn rewrite_one(
        &self,
        key: String,
        value: bytes::Bytes,
        revision: ResourceVersion,
    ) -> Result<bool, StoreError> {
        let plain = self.sealer.open(&key, value)?;
        let write = Write { key, expected: Expected::At(revision), value: Some(plain) };
        match self.write(write).await {
            Ok(_) => Ok(true),
            Err(WriteError::Conflict(_)) => Ok(false),
            Err(WriteError::Store(error)) => Err(error),
        }
    }

    fn show_left(&self, values: usize) {
        self.to_rewrite.set(i64::try_from(values).unwrap_or(i64::MAX));
    }

    /// Does [`Sealed::rewrite`] and tells how it went; what is left is done at the next start or change of keys.
    pub(crate) async fn rewrite_and_tell(&self) {
        match self.rewrite().await {
            Ok(0) => {}
            Ok(values) => tracing::info!(values, "values in the store were encrypted anew"),
            Err(error) => {
                tracing::error!(error = %Chain(&error), "not all values in the store were encrypted anew");
            }
        }
    }
}
