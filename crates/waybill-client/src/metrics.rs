//! What roles tell monitors about their credential plugins.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use waybill_credential::{Authenticators, PrometheusSink, SystemClock};

/// Adds the metrics of credential plugins to `registry`, under upstream's names. They count for all clients of this
/// process, from now on.
pub fn register_plugin_metrics(registry: &mut Registry) {
    let sink = PrometheusSink::register(registry, Arc::new(SystemClock));
    Authenticators::of_this_process().add_sink(Arc::new(sink));
}
