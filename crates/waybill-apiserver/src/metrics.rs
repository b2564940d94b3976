//! Metrics under upstream's names. Labels come from closed sets: verbs, resources we serve, codes.

use std::{sync::Mutex, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use waybill_api::gates::FeatureGates;

use crate::{
    http::Answer,
    proxy::exec::AuditIdInjection,
    route::{ResourceRoute, Route},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: u16,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    verb: &'static str,
    version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    name: &'static str,
    stage: &'static str,
}

/// What the server counts.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram>,
    audit_ids: Family<ResultLabel, Counter>,
}

impl Metrics {
    pub(crate) fn new(gates: FeatureGates) -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let durations: Family<DurationLabels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16)));
        let audit_ids = Family::default();
        let features: Family<GateLabels, Gauge> = Family::default();
        for state in gates.iter() {
            let labels = GateLabels { name: state.gate.name(), stage: state.stage.as_str() };
            features.get_or_create(&labels).set(i64::from(state.enabled));
        }
        registry.register(
            "apiserver_request",
            "Requests by verb, resource and code",
            Family::clone(&requests),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "How long requests took until their answer began",
            Family::clone(&durations),
        );
        registry.register(
            "apiserver_exec_audit_id_injected",
            "Exec requests by what was done about their audit ID",
            Family::clone(&audit_ids),
        );
        registry.register("kubernetes_feature_enabled", "Feature gates", features);
        Self { registry: Mutex::new(registry), requests, durations, audit_ids }
    }

    /// Lets another part of the server add its own.
    pub(crate) fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    /// Counts an answered request; `verb` is the one of RBAC.
    pub(crate) fn observe(&self, route: &Route, verb: &str, code: u16, elapsed: Duration) {
        let (group, version, resource, subresource) = match route {
            Route::Resource(route) => {
                let ResourceRoute { resource, subresource, .. } = route;
                let part = resource.subresource(subresource).map_or("", |part| part.name);
                (resource.group, resource.version, resource.plural, part)
            }
            Route::Path => ("", "", "", ""),
        };
        let verb = label(verb);
        self.requests
            .get_or_create(&RequestLabels { code, group, resource, subresource, verb, version })
            .inc();
        self.durations
            .get_or_create(&DurationLabels { group, resource, subresource, verb, version })
            .observe(elapsed.as_secs_f64());
    }

    /// One exec request passed the point where an audit ID is added, or is not (EXEC-46).
    pub(crate) fn count_injection(&self, injection: AuditIdInjection) {
        self.audit_ids.get_or_create(&ResultLabel { result: injection.label() }).inc();
    }

    pub(crate) fn answer(&self) -> Answer {
        let registry = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        Answer::text(text)
    }
}

/// The verb as a label; a client can make up methods, but no labels.
fn label(verb: &str) -> &'static str {
    match verb {
        "create" => "CREATE",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "get" => "GET",
        "head" => "HEAD",
        "list" => "LIST",
        "patch" => "PATCH",
        "post" => "POST",
        "put" => "PUT",
        "update" => "UPDATE",
        "watch" => "WATCH",
        _ => "other",
    }
}
