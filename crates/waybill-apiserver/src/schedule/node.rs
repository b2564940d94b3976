//! What the scheduler knows of a node, and what is in use there.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::schedule::{
    pod::{HostPort, Pod},
    resources::Amounts,
    taint::Taint,
};

/// A node, reduced to what decides on its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) ready: bool,
    pub(super) unschedulable: bool,
    pub(super) taints: Vec<Taint>,
    pub(super) allocatable: Amounts,
}

impl Node {
    /// Reads a `v1.Node`.
    pub(super) fn read(object: &Value) -> Result<Self, serde_json::Error> {
        let Document { metadata, spec, status } = Document::deserialize(object)?;
        let ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        Ok(Self {
            name: metadata.name,
            labels: metadata.labels,
            ready: status.conditions.iter().any(ready),
            unschedulable: spec.unschedulable,
            taints: spec.taints,
            // As the API defaults it.
            allocatable: status.allocatable.unwrap_or(status.capacity),
        })
    }
}

/// What the pods of a node use together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) pods: usize,
    /// Wide enough that no sum of 64-bit amounts overflows, so taking away undoes adding.
    requested: BTreeMap<String, i128>,
    host_ports: Vec<HostPort>,
}

impl Usage {
    pub(super) fn add(&mut self, pod: &Pod) {
        self.pods += 1;
        for (name, amount) in &pod.requests.0 {
            *self.requested.entry(name.clone()).or_default() += i128::from(*amount);
        }
        self.host_ports.extend_from_slice(&pod.host_ports);
    }

    pub(super) fn remove(&mut self, pod: &Pod) {
        self.pods = self.pods.saturating_sub(1);
        for (name, amount) in &pod.requests.0 {
            *self.requested.entry(name.clone()).or_default() -= i128::from(*amount);
        }
        for port in &pod.host_ports {
            if let Some(at) = self.host_ports.iter().position(|used| used == port) {
                self.host_ports.swap_remove(at);
            }
        }
    }

    pub(super) fn requested(&self, name: &str) -> i128 {
        self.requested.get(name).copied().unwrap_or_default()
    }

    /// Whether a port that `pod` wants is taken.
    pub(super) fn has_conflict(&self, pod: &Pod) -> bool {
        pod.host_ports.iter().any(|port| self.host_ports.iter().any(|used| used.conflicts(port)))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Document {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
    allocatable: Option<Amounts>,
    capacity: Amounts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}
