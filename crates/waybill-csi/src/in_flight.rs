//! How many calls a driver answers at the same time: as many as it says itself (OP-30), whatever callers do.

use std::sync::atomic::{AtomicU32, Ordering};

/// The calls that a driver answers now.
#[derive(Debug, Default)]
pub(crate) struct InFlight(AtomicU32);

/// A call that is answered; it ends with this, also if the caller hangs up.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a AtomicU32);

impl InFlight {
    /// Begins a call, unless as many run as may.
    pub(crate) fn enter(&self, limit: Option<u32>) -> Option<Running<'_>> {
        let limit = limit.unwrap_or(u32::MAX);
        let one_more = |running: u32| (running < limit).then(|| running + 1);
        let entered = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more);
        entered.is_ok().then_some(Running(&self.0))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CSI-07
    #[test]
    fn a_place_is_free_again_when_its_call_ends_csi_07() {
        let calls = InFlight::default();
        let first = calls.enter(Some(2));
        let second = calls.enter(Some(2));
        assert!(first.is_some() && second.is_some() && calls.enter(Some(2)).is_none());
        assert!(calls.enter(None).is_some(), "who says nothing answers all");
        drop(first);
        assert!(calls.enter(Some(2)).is_some());
    }
}
