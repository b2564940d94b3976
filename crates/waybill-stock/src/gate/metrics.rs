//! What the gate counts. Labels come from closed sets.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use waybill_api::stock::Mode;
use waybill_client::register_plugin_metrics;

/// Where webhooks are in the aggregated API.
const AGGREGATED_HOOKS: &str = "/apis/exec.waybill.dev/v1/hooks/";

/// A webhook that the gate serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Webhook {
    Attach,
    Classes,
    /// Ephemeral containers.
    Debug(Mode),
    Exec(Mode),
    /// New pods, which are changed.
    NewPods,
    Pods,
}

impl Webhook {
    /// The webhook that is served at this path: by itself, or below our group of the aggregated API.
    pub(super) fn at(path: &str) -> Option<Self> {
        match path.strip_prefix(AGGREGATED_HOOKS).or_else(|| path.strip_prefix('/'))? {
            "attach" => Some(Self::Attach),
            // Where configurations of an older release ask, it is not known for which namespaces.
            "debug-enforce" | "debug" => Some(Self::Debug(Mode::Enforce)),
            "debug-record" => Some(Self::Debug(Mode::Record)),
            "exec-enforce" => Some(Self::Exec(Mode::Enforce)),
            "exec-record" => Some(Self::Exec(Mode::Record)),
            "new-pods" => Some(Self::NewPods),
            "validate" => Some(Self::Classes),
            "validate-pods" => Some(Self::Pods),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Debug(Mode::Enforce) => "debug-enforce",
            Self::Debug(Mode::Record) => "debug-record",
            Self::Exec(Mode::Enforce) => "exec-enforce",
            Self::Exec(Mode::Record) => "exec-record",
            Self::NewPods => "new-pods",
            Self::Classes => "providerclasses",
            Self::Pods => "pods",
        }
    }
}

/// How a review went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Denied,
    /// Nobody could be asked, so there was no verdict.
    Failed,
    Unreadable,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The counters of a gate.
pub(super) struct Metrics {
    registry: Mutex<Registry>,
    reviews: Family<ReviewLabels, Counter>,
    durations: Family<WebhookLabel, Histogram>,
    classes: Gauge,
    refused: Counter,
    strangers: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    webhook: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabel {
    webhook: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let reviews = Family::default();
        let durations =
            Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let classes = Gauge::default();
        registry.register(
            "waybill_gate_reviews",
            "Admission reviews by webhook and outcome",
            reviews.clone(),
        );
        registry.register(
            "waybill_gate_review_duration_seconds",
            "Time for one admission review",
            durations.clone(),
        );
        registry.register(
            "waybill_gate_provider_classes",
            "ProviderClasses that the gate knows",
            classes.clone(),
        );
        register_plugin_metrics(&mut registry);
        let refused = Counter::default();
        registry.register(
            "waybill_gate_connections_refused",
            "Connections that were closed because there were too many, of all or of one address",
            refused.clone(),
        );
        let strangers = Counter::default();
        registry.register(
            "waybill_gate_strangers",
            "Requests for a verdict or for records from somebody who may not ask",
            strangers.clone(),
        );
        Self { registry: Mutex::new(registry), reviews, durations, classes, refused, strangers }
    }
}

impl Metrics {
    /// Counts a review.
    pub(super) fn review(&self, webhook: Webhook, outcome: Outcome, took: Duration) {
        let (webhook, outcome) = (webhook.name(), outcome.name());
        self.reviews.get_or_create(&ReviewLabels { webhook, outcome }).inc();
        self.durations.get_or_create(&WebhookLabel { webhook }).observe(took.as_secs_f64());
    }

    /// Counts a connection that was closed at once.
    pub(super) fn refuse_connection(&self) {
        self.refused.inc();
    }

    /// Counts a request of somebody who may not ask.
    pub(super) fn refuse_stranger(&self) {
        self.strangers.inc();
    }

    /// All of them, in the text format.
    pub(super) fn text(&self, classes: usize) -> String {
        self.classes.set(i64::try_from(classes).unwrap_or(i64::MAX));
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a text does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

const BUCKETS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0];
