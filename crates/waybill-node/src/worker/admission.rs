//! What a node does not do for pods, and therefore refuses by name instead of leaving it out.
//!
//! The API server's scheduler keeps most such pods away; those that name their node, come from a file or from another API server
//! come here all the same.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use waybill_core::quantity::Quantity;

use crate::environment::NodeFacts;

/// What kubelets say of pods that ask for devices which they cannot give.
pub(crate) const REFUSED: &str = "UnexpectedAdmissionError";

/// The one thing that a rule can do here.
const ACTION: &str = "Restart";

/// Why the node does not take the pod, if it does not.
pub(super) fn refusal(spec: &PodSpec, node: &NodeFacts) -> Option<String> {
    if spec.resource_claims.iter().flatten().next().is_some() {
        return Some(not_supported("spec.resourceClaims"));
    }
    let init = spec.init_containers.iter().flatten().map(|it| ("initContainers", it));
    let regular = spec.containers.iter().map(|it| ("containers", it));
    init.chain(regular).find_map(|(list, container)| {
        let fault = of_container(container, node)?;
        Some(format!("{list} {:?}: {fault}", container.name))
    })
}

fn of_container(container: &Container, node: &NodeFacts) -> Option<String> {
    let mut rules = container.restart_policy_rules.iter().flatten();
    if let Some(rule) = rules.find(|rule| rule.action != ACTION) {
        let action = format!("action {:?} of restartPolicyRules", rule.action);
        return Some(not_supported(&action));
    }
    let resources = container.resources.as_ref()?;
    if resources.claims.iter().flatten().next().is_some() {
        return Some(not_supported("resources.claims"));
    }
    let lists = [&resources.limits, &resources.requests].into_iter().flatten().flatten();
    let mut asked = lists.filter_map(|(name, text)| Some((name, Quantity::parse(&text.0).ok()?)));
    asked.find_map(|(name, asked)| {
        let has = node.allocatable.get(name).copied().unwrap_or_default();
        let is_shared = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str());
        // Of what is shared there is always some; of all else there must be enough for this container alone.
        (!is_shared && asked > has)
            .then(|| format!("the node has {has} of {name}, and the container asks for {asked}"))
    })
}

fn not_supported(what: &str) -> String {
    format!("{what} is not supported on this node; leave it out")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> NodeFacts {
        let amount = |text| Quantity::parse(text).unwrap();
        let allocatable = [("cpu", "2"), ("memory", "4Gi"), ("hugepages-2Mi", "4Mi")];
        NodeFacts {
            allocatable: allocatable.map(|(name, text)| (name.to_owned(), amount(text))).into(),
            ..NodeFacts::default()
        }
    }

    /// `field` of the container, or of the pod if it begins with a dot.
    #[track_caller]
    fn check(field: &str, value: Value, expected: Option<&str>) {
        let mut spec = json!({ "containers": [{ "name": "a", "image": "i" }] });
        match field.strip_prefix('.') {
            Some(field) => spec[field] = value,
            None => spec["containers"][0][field] = value,
        }
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(refusal(&spec, &node()).as_deref(), expected, "{field}");
    }

    /// Issue 16, item 6: done or refused by name, never left out.
    #[test]
    fn what_the_node_cannot_give_is_refused_by_name() {
        let limits = |name: &str, amount: &str| json!({ "limits": { name: amount } });
        check("resources", limits("cpu", "100"), None);
        check("resources", limits("ephemeral-storage", "1Gi"), None);
        check("resources", limits("hugepages-2Mi", "4Mi"), None);
        check("resources", limits("example.com/gpu", "0"), None);
        check(
            "resources",
            limits("hugepages-2Mi", "6Mi"),
            Some(
                "containers \"a\": the node has 4Mi of hugepages-2Mi, and the container asks for 6Mi",
            ),
        );
        check(
            "resources",
            limits("example.com/gpu", "1"),
            Some(
                "containers \"a\": the node has 0 of example.com/gpu, and the container asks for 1",
            ),
        );
        check(
            "resources",
            json!({ "claims": [{ "name": "gpu" }] }),
            Some("containers \"a\": resources.claims is not supported on this node; leave it out"),
        );
        check(
            ".resourceClaims",
            json!([{ "name": "gpu", "resourceClaimName": "g" }]),
            Some("spec.resourceClaims is not supported on this node; leave it out"),
        );
        let rule = |action: &str| json!([{ "action": action, "exitCodes": { "operator": "In" } }]);
        check("restartPolicyRules", rule("Restart"), None);
        check(
            "restartPolicyRules",
            rule("RestartAllContainers"),
            Some(
                "containers \"a\": action \"RestartAllContainers\" of restartPolicyRules is not \
                 supported on this node; leave it out",
            ),
        );
    }
}
