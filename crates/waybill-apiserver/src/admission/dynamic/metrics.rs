//! What webhooks and policies cost and decide. Names are upstream's; labels are of closed sets, so that
//! the names of webhooks are not among them.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Whether a webhook may change objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WebhookType {
    Mutating,
    Validating,
}

impl WebhookType {
    /// As upstream calls it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }
}

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Allowed,
    Refused,
    Failed,
}

impl CallOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Failed => "calling_webhook_error",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    r#type: &'static str,
    operation: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabel {
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ActionLabel {
    enforcement_action: &'static str,
}

/// Counts calls of webhooks and judgements of policies.
#[derive(Clone)]
pub(crate) struct AdmissionMetrics {
    calls: Family<CallLabels, Histogram>,
    failed_open: Family<TypeLabel, Counter>,
    judged: Family<ActionLabel, Histogram>,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            calls: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 16))
            }),
            failed_open: Family::default(),
            judged: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_01, 4.0, 10))
            }),
        }
    }
}

impl AdmissionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Calls of admission webhooks by type, operation and result",
            Family::clone(&self.calls),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open_count",
            "Webhooks that could not be asked, and whose failure policy let the request pass",
            Family::clone(&self.failed_open),
        );
        registry.register(
            "apiserver_validating_admission_policy_check_duration_seconds",
            "Requests that policies judged, by what came of it",
            Family::clone(&self.judged),
        );
    }

    pub(super) fn called(
        &self,
        kind: WebhookType,
        operation: &'static str,
        outcome: CallOutcome,
        took: Duration,
    ) {
        let labels = CallLabels { r#type: kind.as_str(), operation, result: outcome.as_str() };
        self.calls.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(super) fn failed_open(&self, kind: WebhookType) {
        self.failed_open.get_or_create(&TypeLabel { r#type: kind.as_str() }).inc();
    }

    pub(super) fn judged(&self, took: Duration, denied: bool) {
        let enforcement_action = if denied { "deny" } else { "allow" };
        let labels = ActionLabel { enforcement_action };
        self.judged.get_or_create(&labels).observe(took.as_secs_f64());
    }
}
