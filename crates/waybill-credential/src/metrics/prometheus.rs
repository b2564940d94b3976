//! The metrics of KEP-541 for Prometheus, under upstream's names.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram,
    },
    registry::Registry,
};

use super::{CallStatus, MetricSink};
use crate::Clock;

/// Ages of replaced certificates, from ten minutes to four years.
const BUCKETS: [f64; 11] = [
    600.0,
    1_800.0,
    3_600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// Counts for a [`Registry`].
#[derive(Clone, Debug)]
pub struct PrometheusSink {
    calls: Family<CallLabels, Counter>,
    policy_checks: Family<PolicyLabels, Counter>,
    ages: Histogram,
    expiry: Arc<Mutex<Option<Timestamp>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    code: i32,
    call_status: &'static str,
}

/// Upstream has a label for each verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    allowed: &'static str,
    denied: &'static str,
}

impl PolicyLabels {
    const ALLOWED: Self = Self { allowed: "true", denied: "false" };
    const DENIED: Self = Self { allowed: "false", denied: "true" };
}

impl PrometheusSink {
    /// Adds the metrics to `registry`. The clock is that of [`crate::Options`].
    pub fn register(registry: &mut Registry, clock: Arc<dyn Clock>) -> Self {
        let sink = Self {
            calls: Family::default(),
            policy_checks: Family::default(),
            ages: Histogram::new(BUCKETS),
            expiry: Arc::default(),
        };
        registry.register(
            "rest_client_exec_plugin_call",
            "Number of calls to an exec plugin, partitioned by the type of event encountered and an \
             optional exit code",
            Family::clone(&sink.calls),
        );
        registry.register(
            "rest_client_exec_plugin_policy_call",
            "Number of comparisons of an exec plugin to the plugin policy and allowlist (if any), \
             partitioned by whether or not the policy permits the plugin",
            Family::clone(&sink.policy_checks),
        );
        registry.register(
            "rest_client_exec_plugin_certificate_rotation_age",
            "Age in seconds of certificates of exec plugins when they were replaced",
            sink.ages.clone(),
        );
        registry.register_collector(Box::new(Ttl { expiry: Arc::clone(&sink.expiry), clock }));
        sink
    }
}

impl MetricSink for PrometheusSink {
    fn set_expiry(&self, earliest: Option<Timestamp>) {
        *self.expiry.lock().unwrap_or_else(PoisonError::into_inner) = earliest;
    }

    fn observe_rotation_age(&self, age: Duration) {
        self.ages.observe(age.as_secs_f64());
    }

    fn count_call(&self, code: i32, status: CallStatus) {
        let labels = CallLabels { code, call_status: status.as_str() };
        self.calls.get_or_create(&labels).inc();
    }

    fn count_policy_check(&self, allowed: bool) {
        let labels = if allowed { PolicyLabels::ALLOWED } else { PolicyLabels::DENIED };
        self.policy_checks.get_or_create(&labels).inc();
    }
}

/// Seconds that are left when somebody asks.
struct Ttl {
    expiry: Arc<Mutex<Option<Timestamp>>>,
    clock: Arc<dyn Clock>,
}

impl Collector for Ttl {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let expiry = *self.expiry.lock().unwrap_or_else(PoisonError::into_inner);
        let left = expiry
            .map_or(f64::INFINITY, |expiry| expiry.duration_since(self.clock.now()).as_secs_f64());
        let encoder = encoder.encode_descriptor(
            "rest_client_exec_plugin_ttl_seconds",
            "Seconds until the first certificate of an exec plugin ends, negative if it has ended",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(left).encode(encoder)
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ttl").finish_non_exhaustive()
    }
}
