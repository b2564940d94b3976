//! What a driver counts (CSI-55). Labels come from closed sets: nothing that a pod can choose.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tonic::Code;

use crate::driver::FailureKind;

/// In seconds, as for the kubelet's own histogram (OP-40).
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The counters of one driver.
pub(crate) struct Metrics {
    backend: &'static str,
    registry: Mutex<Registry>,
    durations: Family<BackendLabel, Histogram>,
    errors: Family<ErrorLabels, Counter>,
    calls: Family<ResultLabel, Counter>,
    cached: Counter,
    cache_bytes: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    backend_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    backend_type: &'static str,
    error_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl Metrics {
    pub(crate) fn new(backend: &'static str) -> Self {
        let durations: Family<BackendLabel, Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let metrics = Self {
            backend,
            registry: Mutex::default(),
            durations,
            errors: Family::default(),
            calls: Family::default(),
            cached: Counter::default(),
            cache_bytes: Gauge::default(),
        };
        let mut registry = Registry::default();
        registry.register_with_unit(
            "csi_driver_env_backend_duration",
            "How long the backend took for the values of one call",
            Unit::Seconds,
            Family::clone(&metrics.durations),
        );
        registry.register(
            "csi_driver_env_backend_errors",
            "Values that the backend did not give",
            Family::clone(&metrics.errors),
        );
        registry.register(
            "csi_driver_env_calls",
            "Calls by the code of their answer",
            Family::clone(&metrics.calls),
        );
        registry.register(
            "csi_driver_env_cached_values",
            "Values that came out of the cache",
            Counter::clone(&metrics.cached),
        );
        registry.register_with_unit(
            "csi_driver_env_cache",
            "How much the cache holds",
            Unit::Bytes,
            Gauge::clone(&metrics.cache_bytes),
        );
        // What has not happened yet is zero, not missing.
        drop(metrics.durations.get_or_create(&BackendLabel { backend_type: backend }));
        *metrics.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        metrics
    }

    /// The backend was asked once.
    pub(crate) fn asked(&self, took: Duration) {
        let label = BackendLabel { backend_type: self.backend };
        self.durations.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// It failed so.
    pub(crate) fn failed(&self, kind: FailureKind) {
        let error_type = match kind {
            FailureKind::NotFound => "not_found",
            FailureKind::Denied => "unauthorized",
            FailureKind::Invalid => "invalid_argument",
            FailureKind::Unavailable => "unavailable",
            FailureKind::Backend => "backend_error",
        };
        self.errors.get_or_create(&ErrorLabels { backend_type: self.backend, error_type }).inc();
    }

    /// A call was answered so.
    pub(crate) fn answered(&self, code: Code) {
        let result = match code {
            Code::Ok => "success",
            Code::NotFound => "not_found",
            Code::PermissionDenied => "unauthorized",
            Code::InvalidArgument => "invalid_argument",
            Code::ResourceExhausted => "throttled",
            Code::Unavailable => "unavailable",
            _ => "backend_error",
        };
        self.calls.get_or_create(&ResultLabel { result }).inc();
    }

    /// So many values came out of the cache, which holds so many bytes.
    pub(crate) fn cached(&self, values: usize, bytes: usize) {
        self.cached.inc_by(u64::try_from(values).unwrap_or(u64::MAX));
        self.cache_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// All of them, as Prometheus reads them.
    pub(crate) fn text(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CSI-55
    #[test]
    fn the_names_are_those_of_the_proposal_csi_55() {
        let metrics = Metrics::new("vault");
        let empty = "csi_driver_env_backend_duration_seconds_count{backend_type=\"vault\"} 0";
        assert!(metrics.text().contains(empty), "{}", metrics.text());
        metrics.asked(Duration::from_millis(300));
        metrics.failed(FailureKind::Backend);
        metrics.answered(Code::Internal);
        metrics.cached(2, 100);
        let text = metrics.text();
        for line in [
            "csi_driver_env_backend_duration_seconds_bucket{le=\"0.25\",backend_type=\"vault\"} 0",
            "csi_driver_env_backend_duration_seconds_bucket{le=\"0.5\",backend_type=\"vault\"} 1",
            "csi_driver_env_backend_errors_total{backend_type=\"vault\",error_type=\"backend_error\"} 1",
            "csi_driver_env_calls_total{result=\"backend_error\"} 1",
            "csi_driver_env_cached_values_total 2",
            "csi_driver_env_cache_bytes 100",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
