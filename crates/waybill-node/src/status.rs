//! The status of a pod: computed from what the runtime has, and written to the API server.
//!
//! [`compute`] is pure. People read its result through `kubectl get pods`, controllers through
//! conditions, so reasons, phases and the moments of change are those that kubelets would report.

mod condition;
mod container;
mod patch;
mod phase;
pub(crate) mod qos;
mod writer;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{HostIP, PodIP, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

pub(crate) use self::writer::Writer;
use crate::{observed::Observed, pod::Pod, probe};

/// What a status needs that neither the pod nor the runtime tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Why containers that should run do not, by name: failures and pauses alike, such as
    /// `ImagePullBackOff` and `CrashLoopBackOff`.
    pub(crate) waiting: BTreeMap<String, Waiting>,
    pub(crate) probes: probe::Results,
    pub(crate) host_ip: String,
    /// When the node first saw the pod, for as long as its object does not say.
    pub(crate) started: Option<Timestamp>,
    /// The addresses of the pod. If there are none, those of its sandbox count.
    pub(crate) pod_ips: Vec<String>,
    /// The pod shall end: containers that are gone do not come again.
    pub(crate) terminating: bool,
    /// Why the pod failed as a whole, such as `DeadlineExceeded`.
    pub(crate) failed: Option<Failed>,
    /// What stands before `://` in the ids of containers: the runtime's name.
    pub(crate) runtime_name: String,
    pub(crate) resize: ResizeState,
}

/// How far other resources for a pod that runs are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResizeState {
    /// Why the node does not give them.
    pub(crate) pending: Option<PendingResize>,
    /// Names of containers that do not have theirs yet.
    pub(crate) under_way: BTreeSet<String>,
    /// Why they do not.
    pub(crate) error: Option<String>,
}

/// Why a node does not give a pod what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingResize {
    /// `Infeasible` or `Deferred`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Why a container waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The reason of pods that took more than they may.
pub(crate) const EVICTED: &str = "Evicted";

/// Why a pod failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The status of `pod`. What is unknown is taken over from the status that its object has.
pub(crate) fn compute(pod: &Pod, observed: &Observed, facts: &Facts, now: Timestamp) -> PodStatus {
    let nothing = PodStatus::default();
    let old = pod.object().status.as_ref().unwrap_or(&nothing);
    let now = to_the_second(now);
    let started = facts.started.map_or(now, to_the_second);
    let mut status = PodStatus {
        host_ip: Some(facts.host_ip.clone()),
        host_ips: Some(vec![HostIP { ip: facts.host_ip.clone() }]),
        observed_generation: pod.object().metadata.generation,
        qos_class: Some(qos::class_of(pod).to_owned()),
        start_time: Some(old.start_time.clone().unwrap_or(Time(started))),
        ..PodStatus::default()
    };
    set_pod_ips(&mut status, old, pod, observed, facts);
    container::fill(&mut status, old, pod, observed, facts);
    phase::fill(&mut status, old, pod, observed, facts);
    condition::fill(&mut status, old, pod, observed, facts, now);
    status
}

/// The API keeps no fractions of a second, so none may make a difference.
fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A pod that has ended keeps the addresses that it had.
fn set_pod_ips(
    status: &mut PodStatus,
    old: &PodStatus,
    pod: &Pod,
    observed: &Observed,
    facts: &Facts,
) {
    let of_sandbox = observed.sandboxes.first().map(|sandbox| sandbox.ips.as_slice());
    let of_sandbox = of_sandbox.unwrap_or_default();
    let ips = if pod.spec().host_network == Some(true) {
        vec![facts.host_ip.clone()]
    } else if !facts.pod_ips.is_empty() {
        facts.pod_ips.clone()
    } else if !of_sandbox.is_empty() {
        of_sandbox.to_vec()
    } else {
        old.pod_ips.iter().flatten().map(|known| known.ip.clone()).collect()
    };
    status.pod_ip = ips.first().cloned();
    status.pod_ips = (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect());
}

#[cfg(test)]
mod tests;
