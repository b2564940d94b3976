//! What a pod asks of its node, and what is left there.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::Value;
use waybill_api::quantity;

/// Amounts by the name of the resource: CPU in thousandths, all else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts(pub(super) BTreeMap<String, i64>);

impl Amounts {
    pub(super) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quantities = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let amounts = quantities.into_iter().map(|(name, value)| {
            let quantity = quantity::read(&value).map_err(D::Error::custom)?;
            let amount = if name == "cpu" { quantity.milli_value() } else { quantity.value() };
            Ok((name, amount))
        });
        amounts.collect::<Result<_, _>>().map(Self)
    }
}

/// `resources` of a container or of a whole pod.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Requirements {
    requests: Amounts,
    limits: Amounts,
}

impl Requirements {
    /// What is requested; a limit without a request is also the request, as the API defaults it.
    fn amounts(&self) -> Amounts {
        let mut amounts = self.limits.clone();
        amounts.0.extend(self.requests.0.clone());
        amounts
    }
}

/// As much of a container as its requests need.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Consumer {
    pub(super) name: String,
    pub(super) resources: Requirements,
    pub(super) restart_policy: String,
}

impl Consumer {
    /// An init container that goes on beside the others.
    pub(super) fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }

    /// Counts what its node gave it beside what it asks for. Until a resize is done that is the larger of the two; one that
    /// the node will never do counts for nothing.
    pub(super) fn count_given(&mut self, statuses: &[Given], is_infeasible: bool) {
        let given = statuses.iter().find(|status| status.name == self.name);
        // A node that does not tell what containers have does not resize them.
        let Some((given, resources)) =
            given.and_then(|given| Some((given, given.resources.as_ref()?)))
        else {
            return;
        };
        let mut counted = resources.requests.clone();
        counted.raise_to(&given.allocated_resources);
        if !is_infeasible {
            counted.raise_to(&self.resources.amounts());
        }
        self.resources = Requirements { requests: counted, limits: Amounts::default() };
    }
}

/// What a node says that a container has.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Given {
    name: String,
    #[serde(deserialize_with = "if_readable")]
    allocated_resources: Amounts,
    #[serde(deserialize_with = "if_readable")]
    resources: Option<Requirements>,
}

/// No status can make a pod unreadable, and so uncounted.
pub(super) fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Value::deserialize(deserializer).map(|value| serde_json::from_value(value).unwrap_or_default())
}

/// The most that a pod uses at any time, which is what its node must have.
///
/// Init containers run one after another, each beside the sidecars that started before it; then all
/// containers run with all sidecars. `whole`, the requests of the pod itself, stand above those of
/// its containers, and `overhead` comes on top.
pub(super) fn pod_requests<'a>(
    init: impl Iterator<Item = &'a Consumer>,
    containers: impl Iterator<Item = &'a Consumer>,
    whole: &Requirements,
    overhead: &Amounts,
) -> Amounts {
    let mut sidecars = Amounts::default();
    let mut most = Amounts::default();
    for container in init {
        let mut running = container.resources.amounts();
        running.add(&sidecars);
        if container.is_sidecar() {
            sidecars = running.clone();
        }
        most.raise_to(&running);
    }
    let mut running = sidecars;
    containers.for_each(|container| running.add(&container.resources.amounts()));
    most.raise_to(&running);
    most.0.extend(whole.amounts().0);
    most.add(overhead);
    most
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What init containers and containers with these CPU requests need; `s` marks a sidecar.
    #[track_caller]
    fn check(init: &[&str], containers: &[&str], expected: i64) {
        let consumer = |text: &&str| -> Consumer {
            let (cpu, policy) = match text.strip_prefix('s') {
                Some(cpu) => (cpu, "Always"),
                None => (*text, ""),
            };
            let json = json!({"resources": {"requests": {"cpu": cpu}}, "restartPolicy": policy});
            serde_json::from_value(json).unwrap()
        };
        let init: Vec<_> = init.iter().map(consumer).collect();
        let containers: Vec<_> = containers.iter().map(consumer).collect();
        let whole = Requirements::default();
        let found = pod_requests(init.iter(), containers.iter(), &whole, &Amounts::default());
        assert_eq!(found.get("cpu"), expected);
    }

    #[test]
    fn containers_add_up_and_init_containers_do_not() {
        check(&[], &["100m", "200m"], 300);
        check(&["1", "2"], &["100m"], 2000);
        check(&["1"], &["1", "1"], 2000);
    }

    #[test]
    fn sidecars_count_from_their_start_on() {
        check(&["s1"], &["1"], 2000);
        check(&["s1", "2"], &["1"], 3000);
        check(&["2", "s1"], &["500m"], 2000);
        check(&["s1", "s1", "1"], &["500m"], 3000);
    }

    #[test]
    fn limits_pod_requests_and_overhead_are_heard() {
        let parse = |json: Value| serde_json::from_value::<Requirements>(json).unwrap();
        let resources =
            parse(json!({"limits": {"cpu": 1, "memory": "1Ki"}, "requests": {"cpu": "1m"}}));
        let container = Consumer { resources, ..Consumer::default() };
        let whole = parse(json!({"requests": {"memory": 2000}}));
        let overhead = serde_json::from_value(json!({"cpu": "1"})).unwrap();
        let found = pod_requests([].into_iter(), [&container].into_iter(), &whole, &overhead);
        assert_eq!((found.get("cpu"), found.get("memory")), (1001, 2000));
    }
}
