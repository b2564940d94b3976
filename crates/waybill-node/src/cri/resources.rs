//! Shares, quotas and limits of containers and of whole pods, and how important a pod is when memory
//! runs out.

use k8s_openapi::{
    api::core::v1::Container, apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use waybill_core::quantity::Quantity;
use waybill_proto::cri::{HugepageLimit, LinuxContainerResources};

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

/// What can be changed of a container that runs; nothing stands for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerLimits {
    pub(crate) cpu_shares: i64,
    /// Microseconds of each period of [`cpu_period`].
    pub(crate) cpu_quota: i64,
    /// Bytes.
    pub(crate) memory: i64,
}

impl ContainerLimits {
    /// As the spec has them.
    pub(crate) fn wanted(container: &Container) -> Self {
        let cpu_limit = limit(container, "cpu").map_or(0, Quantity::milli_value);
        let cpu = request(container, "cpu").map_or(cpu_limit, Quantity::milli_value);
        Self {
            cpu_shares: shares(cpu),
            cpu_quota: if cpu_limit > 0 { quota(cpu_limit) } else { 0 },
            memory: limit(container, "memory").map_or(0, Quantity::value),
        }
    }

    /// As the runtime tells them.
    pub(crate) fn told(resources: &LinuxContainerResources) -> Self {
        let LinuxContainerResources { cpu_quota, cpu_period, cpu_shares, .. } = *resources;
        let period = if cpu_period > 0 { cpu_period } else { PERIOD };
        Self {
            cpu_shares,
            cpu_quota: cpu_quota.max(0).saturating_mul(PERIOD) / period,
            memory: resources.memory_limit_in_bytes.max(0),
        }
    }

    /// Whether the processors must be shared out otherwise. A limit that is no longer named stays.
    pub(crate) fn differs_in_cpu(self, wanted: Self) -> bool {
        self.cpu_shares != wanted.cpu_shares
            || (wanted.cpu_quota > 0 && self.cpu_quota != wanted.cpu_quota)
    }

    pub(crate) fn differs_in_memory(self, wanted: Self) -> bool {
        wanted.memory > 0 && self.memory != wanted.memory
    }

    /// What the runtime is asked for.
    pub(crate) fn request(self) -> LinuxContainerResources {
        LinuxContainerResources {
            cpu_shares: self.cpu_shares,
            cpu_period: if self.cpu_quota > 0 { PERIOD } else { 0 },
            cpu_quota: self.cpu_quota,
            memory_limit_in_bytes: self.memory,
            ..LinuxContainerResources::default()
        }
    }
}

/// The limits of one container; `capacity` is the machine's memory in bytes.
pub(super) fn resources(
    pod: &Pod,
    container: &Container,
    capacity: i64,
) -> LinuxContainerResources {
    LinuxContainerResources {
        oom_score_adj: oom_score(pod, container, capacity),
        hugepage_limits: huge_pages(container),
        ..ContainerLimits::wanted(container).request()
    }
}

/// Limits of huge pages, by the names that cgroups have for their sizes, such as `2MB`.
fn huge_pages(container: &Container) -> Vec<HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let pages = limits.into_iter().flatten().filter_map(|(name, amount)| {
        let size = Quantity::parse(name.strip_prefix("hugepages-")?).ok()?.value();
        let page_size = match size {
            size if size % (1 << 30) == 0 => format!("{}GB", size >> 30),
            size if size % (1 << 20) == 0 => format!("{}MB", size >> 20),
            size => format!("{}KB", size >> 10),
        };
        let limit = u64::try_from(quantity(Some(amount))?.value()).ok()?;
        Some(HugepageLimit { page_size, limit })
    });
    pages.collect()
}

/// What all containers of a pod may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodLimits {
    /// Of the processors, in relation to others.
    pub(crate) shares: i64,
    /// Microseconds of a processor in each period.
    pub(crate) quota: Option<i64>,
    /// Bytes.
    pub(crate) memory: Option<i64>,
}

impl PodLimits {
    /// A limit holds if every container has one, or if the pod has one as a whole.
    pub(crate) fn of(pod: &Pod) -> Self {
        let cpu = limit_of_all(pod, "cpu", Quantity::milli_value);
        Self {
            shares: shares(cpu_requests(pod)),
            quota: cpu.map(quota),
            memory: limit_of_all(pod, "memory", Quantity::value),
        }
    }
}

/// Microseconds of a period of the CPU quota, for all quotas.
pub(crate) fn cpu_period() -> i64 {
    PERIOD
}

/// What a pod has asked for of the processors, in thousandths of one.
pub(crate) fn cpu_requests(pod: &Pod) -> i64 {
    let whole = pod.spec().resources.as_ref().and_then(|whole| {
        let asked = whole.requests.as_ref().and_then(|list| quantity(list.get("cpu")));
        asked.or_else(|| quantity(whole.limits.as_ref()?.get("cpu")))
    });
    let asked = whole.map_or_else(
        || {
            total(pod, |container| {
                let asked = request(container, "cpu").or_else(|| limit(container, "cpu"));
                asked.map_or(0, Quantity::milli_value)
            })
        },
        Quantity::milli_value,
    );
    asked.saturating_add(overhead(pod, "cpu").map_or(0, Quantity::milli_value))
}

/// What a pod has asked for of `memory` or `ephemeral-storage`, in bytes.
pub(crate) fn bytes_requested(pod: &Pod, name: &str) -> i64 {
    let whole = pod.spec().resources.as_ref().and_then(|whole| whole.requests.as_ref());
    let asked = match whole.and_then(|list| quantity(list.get(name))) {
        Some(asked) => asked.value(),
        None => total(pod, |container| bytes_requested_by(container, name)),
    };
    asked.saturating_add(overhead(pod, name).map_or(0, Quantity::value))
}

/// What one container has asked for of it.
pub(crate) fn bytes_requested_by(container: &Container, name: &str) -> i64 {
    request(container, name).map_or(0, Quantity::value)
}

/// What a number of thousandths of a processor is in relation to others.
pub(crate) fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(LEAST_SHARES, MOST_SHARES)
}

fn quota(milli: i64) -> i64 {
    (milli.saturating_mul(PERIOD) / 1000).max(LEAST_QUOTA)
}

fn limit_of_all(pod: &Pod, name: &str, amount: fn(Quantity) -> i64) -> Option<i64> {
    let whole = pod.spec().resources.as_ref().and_then(|whole| whole.limits.as_ref());
    let of_pod = whole.and_then(|list| quantity(list.get(name)));
    let found = match of_pod {
        Some(whole) => amount(whole),
        None => {
            let limit = |container: &Container| limit(container, name).map_or(0, amount);
            let spec = pod.spec();
            let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            if !all.all(|container| limit(container) > 0) {
                return None;
            }
            total(pod, limit)
        }
    };
    let sum = found.saturating_add(overhead(pod, name).map_or(0, amount));
    (sum > 0).then_some(sum)
}

/// What a pod has at most at one time: init containers run one after the other, sidecars beside all
/// that comes later.
fn total(pod: &Pod, of: impl Fn(&Container) -> i64) -> i64 {
    let (mut sidecars, mut most) = (0_i64, 0);
    for container in pod.init() {
        let own = of(&container.to_container());
        most = most.max(sidecars.saturating_add(own));
        if container.is_sidecar() {
            sidecars = sidecars.saturating_add(own);
        }
    }
    let regular = pod.spec().containers.iter().map(&of);
    most.max(regular.fold(sidecars, i64::saturating_add))
}

/// What the sandbox itself needs.
fn overhead(pod: &Pod, name: &str) -> Option<Quantity> {
    quantity(pod.spec().overhead.as_ref()?.get(name))
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
            1000_i64.saturating_sub(share).clamp(1000 + GUARANTEED_SCORE, 999)
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

    #[test]
    fn huge_pages_are_limited_by_their_size() {
        let limits = json!({ "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi", "cpu": "1" });
        let pod = with(json!({ "limits": limits }));
        let found = resources(&pod, &pod.spec().containers[0], 1 << 30).hugepage_limits;
        let found: Vec<_> = found.iter().map(|it| (it.page_size.as_str(), it.limit)).collect();
        assert_eq!(found, [("1GB", 1 << 30), ("2MB", 4 << 20)]);
    }

    fn whole(spec: Value) -> (i64, Option<i64>, Option<i64>) {
        let PodLimits { shares, quota, memory } = PodLimits::of(&pod(spec));
        (shares, quota, memory)
    }

    fn one(name: &str, resources: Value) -> Value {
        let mut container = json!({ "name": name, "image": "i" });
        container["resources"] = resources;
        container
    }

    #[test]
    fn a_pod_has_the_sum_of_its_containers_if_each_has_a_limit() {
        let limits =
            |cpu: &str, memory: &str| json!({ "limits": { "cpu": cpu, "memory": memory } });
        assert_eq!(whole(json!({})), (2, None, None));
        let two = json!([one("a", limits("500m", "64Mi")), one("b", limits("1", "64Mi"))]);
        assert_eq!(whole(json!({ "containers": two })), (1536, Some(150_000), Some(128 << 20)));
        let cpu_only =
            json!([one("a", limits("1", "1Mi")), one("b", json!({ "limits": { "cpu": "1" } }))]);
        assert_eq!(whole(json!({ "containers": cpu_only })), (2048, Some(200_000), None));
        let requests = json!([one("a", json!({ "requests": { "cpu": "250m", "memory": "1Mi" } }))]);
        assert_eq!(whole(json!({ "containers": requests })), (256, None, None));
        let tiny = json!([one("a", limits("1m", "1Mi"))]);
        assert_eq!(whole(json!({ "containers": tiny })), (2, Some(1000), Some(1 << 20)));
    }

    #[test]
    fn init_containers_run_before_and_sidecars_beside_the_others() {
        let limits = |cpu: &str| json!({ "limits": { "cpu": cpu, "memory": "1Mi" } });
        let mut sidecar = one("s", limits("1"));
        sidecar["restartPolicy"] = "Always".into();
        let spec = |first: &str, later: &str| {
            json!({
                "initContainers": [one("i", limits(first)), sidecar, one("j", limits(later))],
                "containers": [one("a", limits("2"))],
            })
        };
        assert_eq!(whole(spec("1", "1")).1, Some(300_000));
        assert_eq!(whole(spec("4", "1")).1, Some(400_000));
        assert_eq!(whole(spec("1", "4")).1, Some(500_000));
    }

    #[test]
    fn what_the_pod_says_as_a_whole_counts_and_its_sandbox_too() {
        let spec = json!({
            "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "2", "memory": "1Gi" } },
            "overhead": { "cpu": "250m", "memory": "1Mi" },
            "containers": [one("a", json!({}))],
        });
        assert_eq!(whole(spec), (1280, Some(225_000), Some((1 << 30) + (1 << 20))));
        let asked = one("a", json!({ "requests": { "memory": "1Mi" } }));
        let pod = pod(json!({ "overhead": { "memory": "1Mi" }, "containers": [asked] }));
        assert_eq!(bytes_requested(&pod, "memory"), 2 << 20);
    }
}
