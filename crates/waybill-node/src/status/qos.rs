//! The quality of service that the resources of a pod entitle it to.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use waybill_core::quantity::Quantity;

use crate::pod::Pod;

/// Only these make a difference.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// What the API server said when the pod was made, or else what its spec says.
pub(crate) fn class_of(pod: &Pod) -> &str {
    let told = pod.object().status.as_ref().and_then(|status| status.qos_class.as_deref());
    told.filter(|class| !class.is_empty()).unwrap_or_else(|| class(pod.spec()))
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn class(spec: &PodSpec) -> &'static str {
    let nothing = ResourceRequirements::default();
    // Resources of the pod as a whole count in place of those of its containers.
    let all: Vec<&ResourceRequirements> = match &spec.resources {
        Some(whole) => vec![whole],
        None => {
            let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            containers.map(|container| container.resources.as_ref().unwrap_or(&nothing)).collect()
        }
    };
    let has_any = all.iter().any(|resources| {
        RESOURCES.iter().any(|name| {
            amount(resources.requests.as_ref(), name).is_some()
                || amount(resources.limits.as_ref(), name).is_some()
        })
    });
    let is_guaranteed = all.iter().all(|resources| {
        RESOURCES.iter().all(|name| {
            let limit = amount(resources.limits.as_ref(), name);
            // The API server copies limits to requests that are missing; files have none who does.
            let request = amount(resources.requests.as_ref(), name);
            limit.is_some() && (request.is_none() || limit == request)
        })
    });
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What is asked for, if it is more than nothing.
fn amount(list: Option<&BTreeMap<String, ApiQuantity>>, name: &str) -> Option<Quantity> {
    let quantity = Quantity::parse(&list?.get(name)?.0).ok()?;
    (!quantity.is_zero() && !quantity.is_negative()).then_some(quantity)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(resources: &[Value], expected: &str) {
        let containers: Vec<_> =
            resources.iter().map(|r| json!({"name": "c", "resources": r})).collect();
        let spec: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
        assert_eq!(class(&spec), expected, "{resources:?}");
    }

    #[test]
    fn classes() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        check(&[json!({})], "BestEffort");
        check(&[json!({"limits": {"cpu": "0"}})], "BestEffort");
        check(&[json!({"requests": {"cpu": "1"}})], "Burstable");
        check(&[json!({"limits": both, "requests": both})], "Guaranteed");
        check(&[json!({"limits": both})], "Guaranteed");
        check(&[json!({"limits": both, "requests": {"cpu": "500m"}})], "Burstable");
        check(&[json!({"limits": both, "requests": {"cpu": "1000m"}})], "Guaranteed");
        check(&[json!({"limits": both}), json!({})], "Burstable");
    }
}
