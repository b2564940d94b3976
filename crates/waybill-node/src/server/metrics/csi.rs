//! Variables from CSI drivers, under the names of the proposal. Drivers and classes are labels because it
//! says so; both are names that administrators chose, and no user.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::csi::{ErrorType, FallbackReason};

/// OP-40
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The counters.
pub(crate) struct CsiMetrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<ClassLabels, Histogram>,
    errors: Family<ErrorLabels, Counter>,
    fallbacks: Family<FallbackLabels, Counter>,
    in_flight: Family<DriverLabel, Gauge>,
    rotations: Family<RequestLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    driver: String,
    provider_class: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    driver: String,
    provider_class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    driver: String,
    error_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FallbackLabels {
    driver: String,
    provider_class: String,
    fallback_reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriverLabel {
    driver: String,
}

impl Default for CsiMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            errors: Family::default(),
            fallbacks: Family::default(),
            in_flight: Family::default(),
            rotations: Family::default(),
        }
    }
}

impl CsiMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kubelet_csi_env_injection_requests",
            "Starts of containers that needed variables of a class, by what came of it",
            self.requests.clone(),
        );
        registry.register(
            "kubelet_csi_env_injection_duration_seconds",
            "How long calls of NodeGetEnvVars took, each attempt for itself",
            self.durations.clone(),
        );
        registry.register(
            "kubelet_csi_env_injection_errors",
            "Starts of containers that failed for want of variables of a class, by reason",
            self.errors.clone(),
        );
        registry.register(
            "kubelet_csi_env_injection_fallbacks",
            "Limits of calls that were not the driver's own, by where they came from",
            self.fallbacks.clone(),
        );
        registry.register(
            "kubelet_csi_env_injection_inflight_requests",
            "Calls of NodeGetEnvVars that run or wait",
            self.in_flight.clone(),
        );
        registry.register(
            "waybill_csi_env_rotations",
            "Classes that were asked again for containers that run, by what came of it",
            self.rotations.clone(),
        );
    }

    /// A class was asked again; `result` is `restarted`, `kept`, `unchanged` or `failed`.
    pub(crate) fn rotation(&self, driver: &str, class: &str, result: &'static str) {
        let (driver, provider_class) = (driver.to_owned(), class.to_owned());
        self.rotations.get_or_create(&RequestLabels { driver, provider_class, result }).inc();
    }

    /// A class was asked for the variables of a container; `result` is `success`, `partial` or `failure`.
    pub(crate) fn request(&self, driver: &str, class: &str, result: &'static str) {
        let (driver, provider_class) = (driver.to_owned(), class.to_owned());
        self.requests.get_or_create(&RequestLabels { driver, provider_class, result }).inc();
    }

    /// One call ended, well or not.
    pub(crate) fn duration(&self, driver: &str, class: &str, took: Duration) {
        let labels = ClassLabels { driver: driver.to_owned(), provider_class: class.to_owned() };
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A container did not start.
    pub(crate) fn error(&self, driver: &str, error_type: ErrorType) {
        let labels = ErrorLabels { driver: driver.to_owned(), error_type: error_type.as_str() };
        self.errors.get_or_create(&labels).inc();
    }

    /// A limit was not the driver's own.
    pub(crate) fn fallback(&self, driver: &str, class: &str, reason: FallbackReason) {
        let (driver, provider_class) = (driver.to_owned(), class.to_owned());
        let fallback_reason = reason.as_str();
        let labels = FallbackLabels { driver, provider_class, fallback_reason };
        self.fallbacks.get_or_create(&labels).inc();
    }

    /// The calls to a driver that run or wait.
    pub(crate) fn in_flight(&self, driver: &str) -> Gauge {
        self.in_flight.get_or_create_owned(&DriverLabel { driver: driver.to_owned() })
    }
}
