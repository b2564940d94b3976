//! What the scheduler knows of a pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Deserialize;
use serde_json::Value;
use waybill_api::pod::PodEnvSpec;

use crate::schedule::{
    affinity::Affinity,
    resources::{Amounts, Consumer, Given, Requirements, if_readable, pod_requests},
    taint::Toleration,
};

/// The name of a pod, which another may bear after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One life of a pod; decisions are about this and never about its successor.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodRef {
    pub(crate) key: PodKey,
    pub(crate) uid: String,
}

/// A pod, reduced to what decides on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) id: PodRef,
    pub(super) place: Place,
    /// A higher one goes first, and of equals the older.
    pub(super) priority: i32,
    pub(super) created: String,
    pub(super) node_selector: BTreeMap<String, String>,
    pub(super) affinity: Affinity,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) requests: Amounts,
    pub(super) host_ports: Vec<HostPort>,
    /// The CSI drivers that fetch its variables.
    pub(super) csi_drivers: BTreeSet<String>,
}

/// Whether the pod has a node, and if not, who has to find one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    On(String),
    /// It is ours to place, but not before its gates are gone.
    Gated,
    Wanted,
    /// It has ended, or ends before it began, or another scheduler places it.
    None,
}

/// A port of the node that only one pod can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostPort {
    protocol: String,
    address: String,
    port: u16,
}

impl HostPort {
    /// Whether both cannot be on one node; the wildcard address takes the port on all others.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let wildcard = |one: &Self| matches!(one.address.as_str(), "0.0.0.0" | "::");
        (&self.protocol, self.port) == (&other.protocol, other.port)
            && (self.address == other.address || wildcard(self) || wildcard(other))
    }
}

impl Pod {
    /// Reads a `v1.Pod`.
    pub(super) fn read(object: &Value) -> Result<Self, serde_json::Error> {
        let Document { metadata, mut spec, status } = Document::deserialize(object)?;
        spec.count_given(&status);
        let csi_drivers = match object.get("spec") {
            Some(spec) => PodEnvSpec::from_value(spec)?.csi_drivers().map(str::to_owned).collect(),
            None => BTreeSet::new(),
        };
        let place = if matches!(status.phase.as_str(), "Succeeded" | "Failed") {
            Place::None
        } else if !spec.node_name.is_empty() {
            Place::On(spec.node_name)
        } else if metadata.deletion_timestamp.is_some()
            || !matches!(spec.scheduler_name.as_str(), "" | "default-scheduler")
        {
            Place::None
        } else if spec.scheduling_gates.is_empty() {
            Place::Wanted
        } else {
            Place::Gated
        };
        let requests = pod_requests(
            spec.init_containers.iter().map(|container| &container.consumer),
            spec.containers.iter().map(|container| &container.consumer),
            &spec.resources,
            &spec.overhead,
        );
        let sidecars = spec.init_containers.iter().filter(|one| one.consumer.is_sidecar());
        let host_ports =
            spec.containers.iter().chain(sidecars).flat_map(Container::host_ports).collect();
        Ok(Self {
            id: PodRef {
                key: PodKey { namespace: metadata.namespace, name: metadata.name },
                uid: metadata.uid,
            },
            place,
            priority: spec.priority,
            created: metadata.creation_timestamp.unwrap_or_default(),
            node_selector: spec.node_selector,
            affinity: spec.affinity,
            tolerations: spec.tolerations,
            requests,
            host_ports,
            csi_drivers,
        })
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
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    scheduler_name: String,
    scheduling_gates: Vec<Value>,
    priority: i32,
    node_selector: BTreeMap<String, String>,
    affinity: Affinity,
    tolerations: Vec<Toleration>,
    init_containers: Vec<Container>,
    containers: Vec<Container>,
    resources: Requirements,
    overhead: Amounts,
}

impl Spec {
    /// Counts what the containers were given beside what they ask for.
    fn count_given(&mut self, status: &Status) {
        let is_infeasible = status.conditions.iter().any(|condition| {
            (&*condition.kind, &*condition.status, &*condition.reason)
                == ("PodResizePending", "True", "Infeasible")
        });
        // What runs before the others ends, and is never resized.
        let sidecars = self.init_containers.iter_mut().filter(|one| one.consumer.is_sidecar());
        for container in sidecars {
            container.consumer.count_given(&status.init_container_statuses, is_infeasible);
        }
        for container in &mut self.containers {
            container.consumer.count_given(&status.container_statuses, is_infeasible);
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    #[serde(deserialize_with = "if_readable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "if_readable")]
    container_statuses: Vec<Given>,
    #[serde(deserialize_with = "if_readable")]
    init_container_statuses: Vec<Given>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Container {
    #[serde(flatten)]
    consumer: Consumer,
    ports: Vec<Port>,
}

impl Container {
    fn host_ports(&self) -> impl Iterator<Item = HostPort> {
        let or =
            |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
        self.ports.iter().filter(|port| port.host_port != 0).map(move |port| HostPort {
            protocol: or(&port.protocol, "TCP"),
            address: or(&port.host_ip, "0.0.0.0"),
            port: port.host_port,
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    host_port: u16,
    #[serde(rename = "hostIP")]
    host_ip: String,
    protocol: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(object: &Value, expected: &Place) {
        assert_eq!(&Pod::read(object).unwrap().place, expected, "{object}");
    }

    #[test]
    fn only_living_pods_of_ours_want_a_place() {
        check(&json!({}), &Place::Wanted);
        check(&json!({"spec": {"schedulerName": "default-scheduler"}}), &Place::Wanted);
        check(&json!({"spec": {"schedulerName": "other"}}), &Place::None);
        check(&json!({"spec": {"schedulingGates": [{"name": "g"}]}}), &Place::Gated);
        check(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), &Place::None);
        check(&json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}), &Place::None);
        check(&json!({"spec": {"nodeName": "n", "schedulerName": "x"}}), &Place::On("n".into()));
    }

    #[test]
    fn ports_conflict_by_protocol_number_and_address() {
        let port = |text: &str| {
            let (address, port) = text.split_once('/').unwrap();
            let ports = json!([{"hostPort": port.parse::<u16>().unwrap(), "hostIP": address}]);
            let pod = json!({"spec": {"containers": [{"name": "c", "ports": ports}]}});
            Pod::read(&pod).unwrap().host_ports.remove(0)
        };
        assert!(port("/80").conflicts(&port("/80")));
        assert!(port("/80").conflicts(&port("10.0.0.1/80")));
        assert!(!port("10.0.0.2/80").conflicts(&port("10.0.0.1/80")));
        assert!(!port("/80").conflicts(&port("/81")));
        let udp = HostPort { protocol: "UDP".into(), ..port("/80") };
        assert!(!udp.conflicts(&port("/80")));
    }

    #[test]
    fn a_resize_counts_until_it_is_done_or_cannot_be() {
        let pod = |asked: &str, given: &Value, reason: &str| {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": asked}}});
            let pod = json!({
                "spec": {"containers": [container], "initContainers": [
                    {"name": "init", "resources": {"requests": {"cpu": "50m"}}}]},
                "status": {
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                    "containerStatuses": [given], "initContainerStatuses": [
                        {"name": "init", "resources": {"requests": {"cpu": "9"}}}]},
            });
            Pod::read(&pod).unwrap().requests.get("cpu")
        };
        let given = |allocated: &str, has: &str| {
            json!({"name": "c", "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": has}}})
        };
        // More, which it does not have yet; less, which it still has.
        assert_eq!(pod("2", &given("1", "1"), "Deferred"), 2000);
        assert_eq!(pod("1", &given("2", "2"), ""), 2000);
        assert_eq!(pod("1", &given("1", "2"), ""), 2000);
        assert_eq!(pod("1", &given("1", "1"), ""), 1000);
        assert_eq!(pod("64", &given("1", "1"), "Infeasible"), 1000);
        // A node that does not tell does not resize, and none makes a pod unreadable.
        assert_eq!(pod("2", &json!({"name": "c", "allocatedResources": {"cpu": "4"}}), ""), 2000);
        assert_eq!(pod("2", &given("x", "1"), ""), 2000);
        assert_eq!(pod("2", &given("1", "x"), ""), 2000);
    }

    #[test]
    fn a_quantity_that_is_none_is_an_error() {
        let bad = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}});
        assert!(Pod::read(&bad).is_err());
    }
}
