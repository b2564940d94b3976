//! What the node counts, under upstream's names where there are any. Labels come from closed sets.

mod csi;
mod starts;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

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
use tokio::time::Instant;
use waybill_api::gates::FeatureGates;
use waybill_client::register_plugin_metrics;

use self::{csi::CsiMetrics, starts::Starts};

/// The counters of the node.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    exec_envs_unsupported: Counter,
    exec_session_refusals: Family<ReasonLabel, Counter>,
    sessions: Family<KindLabel, Gauge>,
    session_starts: Family<KindLabel, Histogram>,
    session_lengths: Family<KindLabel, Histogram>,
    pod_starts: Histogram,
    environments: Histogram,
    pods: Gauge,
    starts: Starts,
    csi: CsiMetrics,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: u16,
    method: &'static str,
    path: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    name: &'static str,
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// A kind of session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    Attach,
    Exec,
    PortForward,
}

impl StreamKind {
    fn label(self) -> KindLabel {
        let kind = match self {
            Self::Attach => "attach",
            Self::Exec => "exec",
            Self::PortForward => "port_forward",
        };
        KindLabel { kind }
    }
}

/// A session that runs; it ends with this.
pub(super) struct SessionMeter {
    running: Gauge,
    length: Histogram,
    begun: Instant,
}

impl Drop for SessionMeter {
    fn drop(&mut self) {
        self.running.dec();
        self.length.observe(self.begun.elapsed().as_secs_f64());
    }
}

impl Metrics {
    pub(crate) fn new(gates: FeatureGates) -> Self {
        let mut registry = Registry::default();
        let from_milliseconds = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        let from_seconds = || Histogram::new(exponential_buckets(0.1, 4.0, 10));
        let requests = Family::<RequestLabels, Counter>::default();
        let exec_envs_unsupported = Counter::default();
        let exec_session_refusals = Family::<ReasonLabel, Counter>::default();
        let sessions = Family::<KindLabel, Gauge>::default();
        let session_starts =
            Family::<KindLabel, Histogram>::new_with_constructor(from_milliseconds);
        let session_lengths = Family::<KindLabel, Histogram>::new_with_constructor(from_seconds);
        let pod_starts = Histogram::new(exponential_buckets(0.05, 2.0, 14));
        let pods = Gauge::default();
        registry.register("kubelet_http_requests", "Requests by path", requests.clone());
        registry.register(
            "kubelet_exec_envs_unsupported",
            "Exec sessions whose variables the runtime did not take",
            exec_envs_unsupported.clone(),
        );
        registry.register(
            "waybill_node_exec_session_refusals",
            "Exec and attach sessions that were refused for want of a good token of the API server",
            exec_session_refusals.clone(),
        );
        registry.register("waybill_node_stream_sessions", "Sessions that run", sessions.clone());
        registry.register(
            "waybill_node_stream_start_seconds",
            "From the request for a session to its beginning",
            session_starts.clone(),
        );
        registry.register(
            "waybill_node_stream_session_seconds",
            "How long sessions lasted",
            session_lengths.clone(),
        );
        registry.register(
            "kubelet_pod_start_duration_seconds",
            "From the first sight of a pod to the start of its containers",
            pod_starts.clone(),
        );
        let environments = Histogram::new(exponential_buckets(0.000_05, 2.0, 18));
        registry.register(
            "waybill_node_environment_seconds",
            "How long it took to make the environment of a container, files and objects included",
            environments.clone(),
        );
        // The same, under the name that the proposal of CSI variables tells operators to watch (CSI-60).
        registry.register(
            "pod_startup_duration_seconds",
            "From the first sight of a pod to the start of its containers",
            pod_starts.clone(),
        );
        registry.register("kubelet_desired_pods", "Pods that shall run here", pods.clone());
        let starts = Starts::default();
        starts.register(&mut registry);
        let csi = CsiMetrics::default();
        csi.register(&mut registry);
        register_plugin_metrics(&mut registry);
        let features = Family::<GateLabels, Gauge>::default();
        for state in gates.iter() {
            let labels = GateLabels { name: state.gate.name(), stage: state.stage.as_str() };
            features.get_or_create(&labels).set(i64::from(state.enabled));
        }
        registry.register("kubernetes_feature_enabled", "Feature gates", features);
        Self {
            registry: Mutex::new(registry),
            requests,
            exec_envs_unsupported,
            exec_session_refusals,
            sessions,
            session_starts,
            session_lengths,
            pod_starts,
            environments,
            pods,
            starts,
            csi,
        }
    }

    /// Starts of pods and containers.
    pub(crate) fn starts(&self) -> &Starts {
        &self.starts
    }

    /// Variables from CSI drivers.
    pub(crate) fn csi(&self) -> &CsiMetrics {
        &self.csi
    }

    /// All containers of a pod have started, so long after the node first saw it.
    pub(crate) fn pod_started(&self, after: Duration) {
        self.pod_starts.observe(after.as_secs_f64());
    }

    /// An environment was made or could not be.
    pub(crate) fn environment(&self, took: Duration) {
        self.environments.observe(took.as_secs_f64());
    }

    /// Counts an answered request; `path` is the word for its route.
    pub(super) fn request(&self, method: &http::Method, path: &'static str, code: u16) {
        let method = match method.as_str() {
            "GET" => "GET",
            "POST" => "POST",
            _ => "other",
        };
        self.requests.get_or_create(&RequestLabels { code, method, path }).inc();
    }

    /// EXEC-41
    pub(super) fn exec_envs_unsupported(&self) {
        self.exec_envs_unsupported.inc();
    }

    /// A session has no token of the API server, or not a good one; `reason` comes from a closed set.
    pub(super) fn exec_session_refused(&self, reason: &'static str) {
        self.exec_session_refusals.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// A session begins, so long after it was asked for.
    pub(super) fn session(&self, kind: StreamKind, after: Duration) -> SessionMeter {
        let label = kind.label();
        self.session_starts.get_or_create(&label).observe(after.as_secs_f64());
        let running = self.sessions.get_or_create_owned(&label);
        running.inc();
        let length = self.session_lengths.get_or_create_owned(&label);
        SessionMeter { running, length, begun: Instant::now() }
    }

    /// Everything, in the format of OpenMetrics.
    pub(crate) fn text(&self, pods: usize) -> String {
        self.pods.set(i64::try_from(pods).unwrap_or(i64::MAX));
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

    /// EXEC-41
    #[test]
    fn the_names_are_those_that_monitors_look_for_exec_41() {
        let metrics = Metrics::new(FeatureGates::all_on());
        metrics.exec_envs_unsupported();
        metrics.pod_started(Duration::from_millis(80));
        metrics.environment(Duration::from_millis(1));
        metrics.request(&http::Method::GET, "pods", 200);
        let session = metrics.session(StreamKind::Exec, Duration::from_millis(2));
        let text = metrics.text(3);
        for line in [
            // CRED-44: no plugin, so no certificate that could end.
            "rest_client_exec_plugin_ttl_seconds inf",
            "kubelet_exec_envs_unsupported_total 1",
            "kubelet_desired_pods 3",
            "kubelet_pod_start_duration_seconds_bucket{le=\"0.1\"} 1",
            "pod_startup_duration_seconds_bucket{le=\"0.1\"} 1",
            "waybill_node_environment_seconds_count 1",
            "kubelet_http_requests_total{code=\"200\",method=\"GET\",path=\"pods\"} 1",
            "waybill_node_stream_sessions{kind=\"exec\"} 1",
            "waybill_node_stream_start_seconds_count{kind=\"exec\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        drop(session);
        let text = metrics.text(3);
        assert!(text.contains("waybill_node_stream_sessions{kind=\"exec\"} 0"), "{text}");
        assert!(text.contains("waybill_node_stream_session_seconds_count{kind=\"exec\"} 1"));
    }
}
