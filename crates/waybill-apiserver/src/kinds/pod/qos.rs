//! The quality of service that the resources of a pod entitle it to.

use serde_json::Value;
use waybill_api::quantity;
use waybill_core::quantity::Quantity;

use crate::kinds::document::member;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn class(spec: &Value) -> &'static str {
    // Resources of the pod as a whole count in place of those of its containers.
    let whole = member(spec, "resources");
    let all: Vec<&Value> = if whole.is_null() {
        let lists = ["containers", "initContainers"].into_iter();
        let containers = lists.flat_map(|list| member(spec, list).as_array().into_iter().flatten());
        containers.map(|container| member(container, "resources")).collect()
    } else {
        vec![whole]
    };
    let has_any = |resources: &&Value| {
        RESOURCES.iter().any(|name| {
            amount(resources, "requests", name).is_some()
                || amount(resources, "limits", name).is_some()
        })
    };
    let is_guaranteed = |resources: &&Value| {
        RESOURCES.iter().all(|name| {
            let limit = amount(resources, "limits", name);
            limit.is_some() && limit == amount(resources, "requests", name)
        })
    };
    match (all.iter().any(has_any), all.iter().all(is_guaranteed)) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Only these make a difference.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// What is asked for, if it is more than nothing.
fn amount(resources: &Value, list: &str, name: &str) -> Option<Quantity> {
    let quantity = quantity::read(member(member(resources, list), name)).ok()?;
    (!quantity.is_zero() && !quantity.is_negative()).then_some(quantity)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(resources: &[Value], expected: &str) {
        let containers: Vec<_> = resources.iter().map(|r| json!({"resources": r})).collect();
        assert_eq!(class(&json!({"containers": containers})), expected, "{resources:?}");
    }

    #[test]
    fn classes() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        let guaranteed = json!({"limits": full, "requests": {"cpu": "1000m", "memory": "1024Mi"}});
        check(&[json!({})], "BestEffort");
        check(&[json!(null), json!({"limits": {"cpu": "0"}})], "BestEffort");
        check(std::slice::from_ref(&guaranteed), "Guaranteed");
        check(&[guaranteed.clone(), json!({})], "Burstable");
        check(&[json!({"requests": {"cpu": "1m"}})], "Burstable");
        check(&[json!({"limits": full, "requests": {"cpu": "1m", "memory": "1Gi"}})], "Burstable");
        check(&[json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})], "Burstable");
        let spec = json!({"containers": [{"resources": {}}], "resources": guaranteed});
        assert_eq!(class(&spec), "Guaranteed");
        assert_eq!(class(&json!(5)), "BestEffort");
    }
}
