//! Counters of the audit log, under upstream's names.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// The counters; clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditMetrics {
    /// Events handed to the log.
    pub(crate) events: Counter,
    /// Events that the log lost.
    pub(crate) errors: Counter,
    /// Requests refused because they could not be recorded.
    pub(crate) rejected: Counter,
    /// Requests that were refused and not recorded, because there were too many of them.
    pub(crate) left_out: Counter,
    /// Full files that were removed while they were young.
    pub(crate) dropped: Counter,
    /// 1 while events cannot be written.
    pub(crate) failing: Gauge,
}

impl AuditMetrics {
    /// Makes the counters visible in `registry`, which adds `_total` to their names.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_audit_event",
            "Audit events generated and sent to the audit log",
            self.events.clone(),
        );
        registry.register(
            "apiserver_audit_error",
            "Audit events that were not written to the audit log",
            self.errors.clone(),
        );
        registry.register(
            "apiserver_audit_requests_rejected",
            "Requests rejected because the audit log could not take their events",
            self.rejected.clone(),
        );
        registry.register(
            "waybill_audit_events_left_out",
            "Refused requests that are not recorded, because there were too many of them",
            self.left_out.clone(),
        );
        registry.register(
            "waybill_audit_files_dropped_early",
            "Full files of the audit log removed for want of room before their time",
            self.dropped.clone(),
        );
        registry.register(
            "waybill_audit_log_failing",
            "1 while the audit log cannot be written, or has no room ahead",
            self.failing.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        let mut registry = Registry::default();
        let metrics = AuditMetrics::default();
        metrics.register(&mut registry);
        metrics.errors.inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "apiserver_audit_event_total 0",
            "apiserver_audit_error_total 1",
            "apiserver_audit_requests_rejected_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
