//! What the rules behind a request have to say for its audit record, as upstream's admission plugins do.

use std::sync::{Mutex, PoisonError};

use super::{bound, recorder::RequestAudit};

/// Why variables of drivers were denied to a pod (CSI-63). The reason names class, key and account, and no value.
pub(crate) const CSI_DENIED: &str = "csi.waybill.dev/denied";

/// A client chooses much of what a rule says.
const LONGEST: usize = 1024;

/// Annotations for one request; the first under a key stands.
#[derive(Debug, Default)]
pub(crate) struct AuditNotes(Mutex<Vec<(&'static str, String)>>);

impl AuditNotes {
    /// Adds an annotation, cut to a length that fills no log.
    pub(crate) fn add(&self, key: &'static str, value: &str) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A write that meets a newer object is judged again.
        if notes.iter().all(|(known, _)| *known != key) {
            notes.push((key, bound::cut(value, LONGEST)));
        }
    }

    /// Writes them into the record of the request.
    pub(crate) fn tell(&self, audit: &mut RequestAudit) {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in &*notes {
            audit.annotate(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CSI-63
    #[test]
    fn the_first_reason_stands_and_none_is_long_csi_63() {
        let notes = AuditNotes::default();
        notes.add(CSI_DENIED, &"k".repeat(5_000));
        notes.add(CSI_DENIED, "another");
        let told = notes.0.into_inner().unwrap();
        let [(CSI_DENIED, reason)] = &told[..] else { panic!("{told:?}") };
        assert!(reason.len() < 1_100 && reason.ends_with("TRUNCATED"), "{reason}");
    }
}
