//! What the rules behind a request have to say for its audit record, as upstream's admission plugins do.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
};

use super::{bound, recorder::RequestAudit};

/// Why variables of drivers were denied to a pod (CSI-63). The reason names class, key and account, and no value.
pub(crate) const CSI_DENIED: &str = "csi.waybill.dev/denied";

/// A client chooses much of what a rule says.
const LONGEST: usize = 1024;

/// A webhook chooses keys, too, and how many there are.
const LONGEST_KEY: usize = 512;
const MOST: usize = 128;

/// Annotations for one request; the first under a key stands.
#[derive(Debug, Default)]
pub(crate) struct AuditNotes {
    /// What a rule has to say.
    said: Mutex<Vec<(Cow<'static, str>, String)>>,
    /// What happened.
    stated: Mutex<Vec<(&'static str, String)>>,
}

impl AuditNotes {
    /// Adds what the server itself knows: whole, and whatever rules say under that key.
    pub(crate) fn state(&self, key: &'static str, value: String) {
        self.stated.lock().unwrap_or_else(PoisonError::into_inner).push((key, value));
    }

    /// Adds an annotation, cut to a length that fills no log; those beyond any use are left out.
    pub(crate) fn add(&self, key: impl Into<Cow<'static, str>>, value: &str) {
        let key = key.into();
        let mut notes = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        // A write that meets a newer object is judged again.
        let fits = key.len() <= LONGEST_KEY && notes.len() < MOST;
        if fits && notes.iter().all(|(known, _)| *known != key) {
            notes.push((key, bound::cut(value, LONGEST)));
        }
    }

    /// Writes them into the record of the request.
    pub(crate) fn tell(&self, audit: &mut RequestAudit) {
        for (key, value) in &*self.stated.lock().unwrap_or_else(PoisonError::into_inner) {
            audit.annotate(key, value);
        }
        let notes = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in &*notes {
            audit.annotate(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_webhook_fills_a_record_with_keys_of_its_own() {
        let notes = AuditNotes::default();
        for number in 0..100_000 {
            notes.add(number.to_string(), "x");
        }
        notes.add("k".repeat(1_000), "x");
        assert_eq!(notes.said.into_inner().unwrap().len(), MOST);
    }

    /// CSI-63
    #[test]
    fn the_first_reason_stands_and_none_is_long_csi_63() {
        let notes = AuditNotes::default();
        notes.add(CSI_DENIED, &"k".repeat(5_000));
        notes.add(CSI_DENIED, "another");
        let told = notes.said.into_inner().unwrap();
        let [(key, reason)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(key, CSI_DENIED);
        assert!(reason.len() < 1_100 && reason.ends_with("TRUNCATED"), "{reason}");
    }
}
