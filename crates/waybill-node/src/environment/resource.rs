//! Limits and requests of containers, as `resourceFieldRef` names them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity as Text,
};
use waybill_api::pod::ResourceFieldSelector;
use waybill_core::quantity::{Quantity, QuantityError};

use super::node::NodeFacts;
use crate::pod::{ContainerRef, ContainerSpec, Pod};

/// The resources for which a container without a limit gets what the node has.
const OF_THE_NODE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// A resource that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePath<'p> {
    text: &'p str,
    /// Empty for the container that asks.
    container: &'p str,
    bound: Bound,
    resource: &'p str,
    divisor: Quantity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Limit,
    Request,
}

impl<'p> ResourcePath<'p> {
    pub(crate) fn parse(selector: &'p ResourceFieldSelector) -> Result<Self, ResourceError> {
        Self::new(&selector.container_name, &selector.resource, selector.divisor)
    }

    pub(crate) fn new(
        container: &'p str,
        text: &'p str,
        divisor: Quantity,
    ) -> Result<Self, ResourceError> {
        let unsupported = || ResourceError::Resource { resource: text.to_owned() };
        let (bound, resource) = match text.split_once('.') {
            Some(("limits", resource)) => (Bound::Limit, resource),
            Some(("requests", resource)) => (Bound::Request, resource),
            _ => return Err(unsupported()),
        };
        if !OF_THE_NODE.contains(&resource) && !resource.starts_with("hugepages-") {
            return Err(unsupported());
        }
        Ok(Self { text, container, bound, resource, divisor })
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &'p str {
        self.text
    }

    /// The amount in units of the divisor, rounded up. `asking` is the container whose spec holds the path.
    pub(crate) fn look_up(
        &self,
        pod: &Pod,
        asking: ContainerRef<'_>,
        node: &NodeFacts,
    ) -> Result<String, ResourceError> {
        match self.container {
            "" => self.of(pod, asking, node),
            name => self.by_name(pod, name, node),
        }
    }

    /// For a volume, which belongs to no container and has to name one.
    pub(crate) fn look_up_named(
        &self,
        pod: &Pod,
        node: &NodeFacts,
    ) -> Result<String, ResourceError> {
        self.by_name(pod, self.container, node)
    }

    fn by_name(&self, pod: &Pod, name: &str, node: &NodeFacts) -> Result<String, ResourceError> {
        let container = pod.containers().find(|container| container.name() == name);
        let missing = || ResourceError::Container { container: name.to_owned() };
        self.of(pod, container.ok_or_else(missing)?, node)
    }

    fn of(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
        node: &NodeFacts,
    ) -> Result<String, ResourceError> {
        let none = ResourceRequirements::default();
        let resources = match container.container {
            ContainerSpec::Ephemeral(container) => container.resources.as_ref(),
            ContainerSpec::Usual(container) => container.resources.as_ref(),
        };
        let resources = resources.unwrap_or(&none);
        let limit = self.amount(resources.limits.as_ref())?;
        let amount = match self.bound {
            Bound::Limit => match limit.or(self.amount(limits_of_whole(pod))?) {
                Some(limit) => Some(limit),
                None => node.allocatable.get(self.resource).copied(),
            },
            // What the API server would have filled in, for pods that it has not seen.
            Bound::Request => self.amount(resources.requests.as_ref())?.or(limit),
        };
        Ok(self.divide(amount.unwrap_or_default()).to_string())
    }

    /// What a list says; nothing counts as not said.
    fn amount(
        &self,
        list: Option<&BTreeMap<String, Text>>,
    ) -> Result<Option<Quantity>, ResourceError> {
        let Some(text) = list.and_then(|list| list.get(self.resource)) else { return Ok(None) };
        let amount = Quantity::parse(&text.0).map_err(|fault| ResourceError::Quantity {
            resource: self.resource.to_owned(),
            fault,
        })?;
        Ok(Some(amount).filter(|amount| !amount.is_zero()))
    }

    /// Processor time is counted in thousandths, everything else in whole units.
    fn divide(&self, amount: Quantity) -> i128 {
        let (amount, divisor) = match self.resource {
            "cpu" if self.divisor.is_zero() => (amount.milli_value(), 1000),
            "cpu" => (amount.milli_value(), self.divisor.milli_value()),
            _ => (amount.value(), self.divisor.value()),
        };
        // Both are far from the ends of 128 bits.
        let (amount, divisor) = (i128::from(amount), i128::from(divisor.max(1)));
        amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)
    }
}

/// What all containers of a pod may use together is the most that one of them can.
fn limits_of_whole(pod: &Pod) -> Option<&BTreeMap<String, Text>> {
    pod.spec().resources.as_ref()?.limits.as_ref()
}

/// Why a resource has no value; the texts are those of kubelets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("container {container} not found")]
    Container { container: String },
    #[error("the amount of {resource} cannot be read: {fault}")]
    Quantity { resource: String, fault: QuantityError },
    #[error("unsupported container resource : {resource}")]
    Resource { resource: String },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::objects::testing::{node, pod};

    fn sample() -> Pod {
        pod(json!({
            "containers": [
                {"name": "app", "resources": {
                    "limits": {"cpu": "1500m", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
                    "requests": {"cpu": "100m", "ephemeral-storage": "0"}}},
                {"name": "free"},
            ],
            "initContainers": [{"name": "init", "resources": {"limits": {"cpu": "3"}}}],
        }))
    }

    #[track_caller]
    fn check(container: &str, resource: &str, divisor: &str, expected: &str) {
        let (pod, divisor) = (sample(), Quantity::parse(divisor).unwrap());
        let path = ResourcePath::new(container, resource, divisor).unwrap();
        assert_eq!(path.look_up_named(&pod, &node()).unwrap(), expected, "{container} {resource}");
    }

    #[test]
    fn amounts_are_divided_and_rounded_up() {
        check("app", "limits.cpu", "0", "2");
        check("app", "limits.cpu", "1m", "1500");
        check("app", "limits.cpu", "1", "2");
        check("app", "limits.memory", "0", "67108864");
        check("app", "limits.memory", "1Mi", "64");
        check("app", "limits.memory", "1Gi", "1");
        check("app", "limits.hugepages-2Mi", "1Mi", "4");
        check("app", "requests.cpu", "1m", "100");
        check("init", "limits.cpu", "1", "3");
    }

    #[test]
    fn without_a_limit_the_node_is_the_limit() {
        check("free", "limits.cpu", "1", "2");
        check("free", "limits.memory", "1Gi", "4");
        check("app", "limits.ephemeral-storage", "1Gi", "10");
        check("free", "limits.hugepages-2Mi", "1", "0");
    }

    #[test]
    fn the_limit_of_the_whole_pod_comes_before_that_of_the_node() {
        let pod = pod(json!({
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "containers": [{"name": "app", "resources": {"limits": {"cpu": "500m"}}}],
        }));
        let check = |resource: &str, expected: &str| {
            let path = ResourcePath::new("app", resource, Quantity::parse("1m").unwrap()).unwrap();
            assert_eq!(path.look_up_named(&pod, &node()).unwrap(), expected, "{resource}");
        };
        check("limits.cpu", "500");
        check("limits.memory", "1073741824");
        check("limits.ephemeral-storage", "10737418240");
        check("requests.memory", "0");
    }

    /// The API server fills requests in from limits; pods from files have not been there.
    #[test]
    fn without_a_request_the_limit_is_the_request() {
        check("app", "requests.memory", "1Mi", "64");
        check("free", "requests.cpu", "1m", "0");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for resource in ["limits.disk", "cpu", "limits", "limits.", "max.cpu"] {
            let error = ResourcePath::new("", resource, Quantity::default()).unwrap_err();
            assert_eq!(error.to_string(), format!("unsupported container resource : {resource}"));
        }
        let path = ResourcePath::new("gone", "limits.cpu", Quantity::default()).unwrap();
        let error = path.look_up_named(&sample(), &node()).unwrap_err();
        assert_eq!(error.to_string(), "container gone not found");
    }

    proptest! {
        /// The smallest whole number of divisors that holds the amount.
        #[test]
        fn division_rounds_up(amount in 0..i64::MAX / 2000, divisor in 1..1_000_000_i64) {
            let quantity = |number: i64| Quantity::parse(&number.to_string()).unwrap();
            for resource in ["limits.cpu", "limits.memory"] {
                let path = ResourcePath::new("", resource, quantity(divisor)).unwrap();
                let units = path.divide(quantity(amount));
                let (amount, divisor) = (i128::from(amount), i128::from(divisor));
                prop_assert!(units * divisor >= amount);
                prop_assert!((units - 1) * divisor < amount);
            }
        }
    }
}
