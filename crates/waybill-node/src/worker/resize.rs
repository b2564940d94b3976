//! Other resources for a pod that runs: whether the node has them, and what its containers have until then. Pure.
//!
//! What a container was given is in its status, as `resources`; the spec says what it shall have. While the node cannot give that, the
//! pod is treated in all as if its spec had not been changed.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ResourceRequirements;
use waybill_core::quantity::Quantity;

use crate::{
    cri::resources::{bytes_requested, cpu_requests},
    pod::{ContainerRef, Pod},
    status::PendingResize,
};

/// A pod with what the node gives it, and why that is not what it asks for.
pub(super) struct Allocated {
    pub(super) pod: Arc<Pod>,
    pub(super) pending: Option<PendingResize>,
}

/// What a pod asks for: thousandths of processors, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

impl Requests {
    pub(super) fn of(pod: &Pod) -> Self {
        Self { cpu: cpu_requests(pod), memory: bytes_requested(pod, "memory") }
    }

    /// What a pod keeps from others: the larger of what it has and what it asks for. What the node will never give it is kept from nobody.
    pub(super) fn held(pod: &Pod) -> Self {
        let (asked, before) = (Self::of(pod), given_otherwise(pod));
        if before.is_empty() {
            return asked;
        }
        let has = Self::of(&pod.with_resources(&before));
        if pod.has_infeasible_resize() {
            return has;
        }
        Self { cpu: asked.cpu.max(has.cpu), memory: asked.memory.max(has.memory) }
    }

    pub(super) fn saturating_add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }
}

/// Decides. `others` is what all other pods of the node ask for.
pub(super) fn allocate(
    pod: &Arc<Pod>,
    allocatable: &BTreeMap<String, Quantity>,
    others: impl FnOnce() -> Requests,
) -> Allocated {
    let before = given_otherwise(pod);
    if before.is_empty() {
        return Allocated { pod: Arc::clone(pod), pending: None };
    }
    let old = pod.with_resources(&before);
    let (asked, had) = (Requests::of(pod), Requests::of(&old));
    let amount =
        |name: &str, of: fn(Quantity) -> i64| allocatable.get(name).copied().map_or(i64::MAX, of);
    let capacity = Requests {
        cpu: amount("cpu", Quantity::milli_value),
        memory: amount("memory", Quantity::value),
    };
    let rows = |used: Requests| {
        [
            ("cpu", asked.cpu, had.cpu, used.cpu, capacity.cpu),
            ("memory", asked.memory, had.memory, used.memory, capacity.memory),
        ]
    };
    let infeasible = rows(Requests::default()).into_iter().find_map(|(name, asked, _, _, all)| {
        (asked > all).then(|| {
            format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {all}")
        })
    });
    if let Some(message) = infeasible {
        let pending = Some(PendingResize { reason: "Infeasible", message });
        return Allocated { pod: Arc::new(old), pending };
    }
    let deferred = rows(others()).into_iter().find_map(|(name, asked, had, used, all)| {
        (asked > had && asked.saturating_add(used) > all).then(|| {
            format!(
                "Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {all}"
            )
        })
    });
    match deferred {
        Some(message) => Allocated {
            pod: Arc::new(old),
            pending: Some(PendingResize { reason: "Deferred", message }),
        },
        None => Allocated { pod: Arc::clone(pod), pending: None },
    }
}

/// What containers have by their status, where that is other than what they shall have.
fn given_otherwise(pod: &Pod) -> BTreeMap<String, ResourceRequirements> {
    let given = pod.containers().filter_map(|container| {
        let given = pod.container_status(container)?.resources.clone()?;
        differs(container, &given).then(|| (container.name().to_owned(), given))
    });
    given.collect()
}

/// Whether a container shall have other processors or memory than it was given.
pub(super) fn differs(container: ContainerRef<'_>, given: &ResourceRequirements) -> bool {
    let wanted = container.to_container().resources.unwrap_or_default();
    let lists = [(&wanted.limits, &given.limits), (&wanted.requests, &given.requests)];
    lists.into_iter().any(|(wanted, given)| {
        ["cpu", "memory"].into_iter().any(|name| {
            let amount = |list: &Option<BTreeMap<String, _>>| {
                let text: &k8s_openapi::apimachinery::pkg::api::resource::Quantity =
                    list.as_ref()?.get(name)?;
                Quantity::parse(&text.0).ok()
            };
            amount(wanted) != amount(given)
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodOrigin;

    fn object(wanted: &str, given: Option<&str>) -> Value {
        let resources = |cpu: &str| json!({ "requests": { "cpu": cpu }, "limits": { "cpu": cpu } });
        let status = given.map_or(Value::Null, |given| {
            json!({ "containerStatuses": [{
                "name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "resources": resources(given),
            }] })
        });
        json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "uid-1" },
            "spec": { "containers": [{ "name": "a", "image": "i", "resources": resources(wanted) }] },
            "status": status,
        })
    }

    fn pod(wanted: &str, given: Option<&str>) -> Arc<Pod> {
        Arc::new(Pod::from_value(object(wanted, given), PodOrigin::ApiServer).unwrap())
    }

    #[test]
    fn what_is_never_given_is_kept_from_nobody() {
        let milli = |asked: &str, given: Option<&str>| Requests::held(&pod(asked, given)).cpu;
        assert_eq!(milli("2", None), 2000);
        assert_eq!(milli("2", Some("1")), 2000);
        assert_eq!(milli("1", Some("2")), 2000);
        let mut object = object("64", Some("1"));
        object["status"]["conditions"] =
            json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        let pod = Pod::from_value(object, PodOrigin::ApiServer).unwrap();
        assert_eq!(Requests::held(&pod).cpu, 1000);
    }

    #[track_caller]
    fn check(pod: &Arc<Pod>, used: i64, milli: i64, expected: Option<(&str, &str)>) {
        let allocatable = BTreeMap::from([("cpu".to_owned(), Quantity::parse("4").unwrap())]);
        let found = allocate(pod, &allocatable, || Requests { cpu: used, memory: 0 });
        assert_eq!(cpu_requests(&found.pod), milli);
        let pending = found.pending.as_ref().map(|it| (it.reason, it.message.as_str()));
        assert_eq!(pending, expected);
    }

    #[test]
    fn a_pod_gets_what_the_node_has_and_keeps_what_it_had_until_then() {
        check(&pod("8", None), 0, 8000, None);
        check(&pod("1000m", Some("1")), 9000, 1000, None);
        check(&pod("2", Some("1")), 1000, 2000, None);
        check(
            &pod("3", Some("1")),
            1500,
            1000,
            Some((
                "Deferred",
                "Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 4000",
            )),
        );
        check(
            &pod("5", Some("1")),
            0,
            1000,
            Some((
                "Infeasible",
                "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000",
            )),
        );
        // Who asks for less gets it, however full the node is.
        check(&pod("1", Some("2")), 9000, 1000, None);
    }
}
