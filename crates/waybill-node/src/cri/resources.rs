//! Shares, quotas and limits of containers, and how important a pod is when memory runs out.

use k8s_openapi::{
    api::core::v1::Container, apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use waybill_core::quantity::Quantity;
use waybill_proto::cri::LinuxContainerResources;

use crate::{pod::Pod, status::qos};

/// Microseconds of a period of the CPU quota.
const PERIOD: i64 = 100_000;
const LEAST_QUOTA: i64 = 1000;
const LEAST_SHARES: i64 = 2;
const MOST_SHARES: i64 = 262_144;
/// The kernel's killer spares these most.
const GUARANTEED_SCORE: i64 = -997;

/// How much of what it uses a pod has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qos {
    BestEffort,
    Burstable,
    Guaranteed,
}

impl Qos {
    pub(crate) fn of(pod: &Pod) -> Self {
        match qos::class_of(pod) {
            "Guaranteed" => Self::Guaranteed,
            "Burstable" => Self::Burstable,
            _ => Self::BestEffort,
        }
    }
}

/// The limits of one container; `capacity` is the machine's memory in bytes.
pub(super) fn resources(
    pod: &Pod,
    container: &Container,
    capacity: i64,
) -> LinuxContainerResources {
    let cpu_limit = limit(container, "cpu").map_or(0, Quantity::milli_value);
    let cpu = request(container, "cpu").map_or(cpu_limit, Quantity::milli_value);
    let quota = cpu_limit.saturating_mul(PERIOD) / 1000;
    LinuxContainerResources {
        cpu_shares: (cpu.saturating_mul(1024) / 1000).clamp(LEAST_SHARES, MOST_SHARES),
        cpu_period: if cpu_limit > 0 { PERIOD } else { 0 },
        cpu_quota: if cpu_limit > 0 { quota.max(LEAST_QUOTA) } else { 0 },
        memory_limit_in_bytes: limit(container, "memory").map_or(0, Quantity::value),
        oom_score_adj: oom_score(pod, container, capacity),
        ..LinuxContainerResources::default()
    }
}

/// A container that asked for little of what it might use goes first.
fn oom_score(pod: &Pod, container: &Container, capacity: i64) -> i64 {
    if pod.spec().priority_class_name.as_deref() == Some("system-node-critical") {
        return GUARANTEED_SCORE;
    }
    match Qos::of(pod) {
        Qos::Guaranteed => GUARANTEED_SCORE,
        Qos::BestEffort => 1000,
        Qos::Burstable => {
            let asked = request(container, "memory").map_or(0, Quantity::value);
            let share = asked.saturating_mul(1000).checked_div(capacity).unwrap_or(0);
            (1000 - share).clamp(1000 + GUARANTEED_SCORE, 999)
        }
    }
}

fn request(container: &Container, name: &str) -> Option<Quantity> {
    quantity(container.resources.as_ref()?.requests.as_ref()?.get(name))
}

fn limit(container: &Container, name: &str) -> Option<Quantity> {
    quantity(container.resources.as_ref()?.limits.as_ref()?.get(name))
}

fn quantity(found: Option<&ApiQuantity>) -> Option<Quantity> {
    Quantity::parse(&found?.0).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::testing::pod;

    fn with(resources: Value) -> Pod {
        let mut container = json!({ "name": "a", "image": "i" });
        container["resources"] = resources;
        pod(json!({ "containers": [container] }))
    }

    fn of(resources_of: Value) -> (Qos, [i64; 5]) {
        let pod = with(resources_of);
        let found = resources(&pod, &pod.spec().containers[0], 1 << 30);
        let LinuxContainerResources { cpu_shares, cpu_period, cpu_quota, .. } = found;
        let rest = [found.memory_limit_in_bytes, found.oom_score_adj];
        (Qos::of(&pod), [cpu_shares, cpu_period, cpu_quota, rest[0], rest[1]])
    }

    #[test]
    fn limits_become_quotas_and_requests_become_shares() {
        assert_eq!(of(json!({})), (Qos::BestEffort, [2, 0, 0, 0, 1000]));
        assert_eq!(
            of(json!({ "requests": { "cpu": "250m", "memory": "256Mi" } })),
            (Qos::Burstable, [256, 0, 0, 0, 750])
        );
        assert_eq!(
            of(json!({ "limits": { "cpu": "500m", "memory": "64Mi" } })),
            (Qos::Guaranteed, [512, 100_000, 50_000, 64 << 20, -997])
        );
        assert_eq!(
            of(json!({ "limits": { "cpu": "1m" } })),
            (Qos::Burstable, [2, 100_000, 1000, 0, 999])
        );
        assert_eq!(
            of(json!({ "requests": { "memory": "8Gi" } })),
            (Qos::Burstable, [2, 0, 0, 0, 3])
        );
    }
}
