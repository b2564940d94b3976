//! What a node does not do for pods, and therefore refuses by name instead of leaving it out.
//!
//! The API server's scheduler keeps most such pods away; those that name their node, come from a file or from another API server
//! come here all the same.

use k8s_openapi::api::core::v1::{Container, PodSpec, Toleration};
use waybill_core::quantity::Quantity;

use crate::{
    cri::resources::Qos,
    environment::NodeFacts,
    pod::{Pod, PodOrigin},
    pressure::Conditions,
};

/// What kubelets say of pods for another operating system.
const WRONG_OS: &str = "PodOSNotSupported";

/// What kubelets say of pods that ask for devices which they cannot give.
const REFUSED: &str = "UnexpectedAdmissionError";

/// The one thing that a rule can do here.
const ACTION: &str = "Restart";

/// From this priority on, pods are the system's own.
const SYSTEM_PRIORITY: i32 = 2_000_000_000;

const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Whether the node cannot do without the pod: what runs from a file would only come again, and the system's own pods stay whatever
/// they do.
pub(super) fn is_critical(pod: &Pod) -> bool {
    pod.origin() == PodOrigin::File
        || pod.spec().priority.is_some_and(|priority| priority >= SYSTEM_PRIORITY)
}

/// Why a node under pressure does not take a new pod, if it does not, in a kubelet's words down to the blank at the end.
pub(super) fn refusal_under(conditions: Conditions, pod: &Pod) -> Option<String> {
    let names = conditions.names();
    if names.is_empty() || is_critical(pod) {
        return None;
    }
    let tolerations = pod.spec().tolerations.iter().flatten();
    // Who asked for memory gets it; who did not can at least say that it knows.
    let only_memory = names == ["MemoryPressure"];
    if only_memory && (Qos::of(pod) != Qos::BestEffort || tolerations.into_iter().any(tolerates)) {
        return None;
    }
    Some(format!("The node had condition: [{}]. ", names.join(" ")))
}

fn tolerates(toleration: &Toleration) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let exists = text(&toleration.operator) == "Exists";
    let key = text(&toleration.key);
    let of_key = key == MEMORY_PRESSURE_TAINT || (key.is_empty() && exists);
    let effect = text(&toleration.effect);
    of_key
        && (effect.is_empty() || effect == "NoSchedule")
        && (exists || text(&toleration.value).is_empty())
}

/// Why the node does not take the pod, if it does not: reason and message.
pub(super) fn refusal(spec: &PodSpec, node: &NodeFacts) -> Option<(&'static str, String)> {
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Some((WRONG_OS, message.to_owned()));
    }
    Some((REFUSED, unsupported(spec, node)?))
}

/// What the pod asks for that this node does not do.
fn unsupported(spec: &PodSpec, node: &NodeFacts) -> Option<String> {
    if spec.resource_claims.iter().flatten().next().is_some() {
        return Some(not_supported("spec.resourceClaims"));
    }
    if let Some(fault) = of_users(spec) {
        return Some(fault);
    }
    let init = spec.init_containers.iter().flatten().map(|it| ("initContainers", it));
    let regular = spec.containers.iter().map(|it| ("containers", it));
    init.chain(regular).find_map(|(list, container)| {
        let fault = of_container(container, node)?;
        Some(format!("{list} {:?}: {fault}", container.name))
    })
}

/// As the API server has it, for pods that it has not seen.
fn of_users(spec: &PodSpec) -> Option<String> {
    if spec.host_users != Some(false) {
        return None;
    }
    let hosts = [
        ("hostNetwork", spec.host_network),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
    ];
    let (field, _) = hosts.into_iter().find(|(_, asked)| *asked == Some(true))?;
    Some(format!("spec.{field} cannot be true when hostUsers is false; leave one of them out"))
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
        let expected = expected.map(|message| (REFUSED, message.to_owned()));
        assert_eq!(refusal(&spec, &node()), expected, "{field}");
    }

    #[track_caller]
    fn check_spec(fields: &Value, expected: Option<&str>) {
        let mut spec = json!({ "containers": [{ "name": "a", "image": "i" }] });
        for (name, value) in fields.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let expected = expected.map(|message| (REFUSED, message.to_owned()));
        assert_eq!(refusal(&spec, &node()), expected, "{fields}");
    }

    #[track_caller]
    fn check_under(conditions: (bool, bool, bool), spec: &Value, expected: Option<&str>) {
        let mut object = json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "uid-1" },
            "spec": { "containers": [{ "name": "a", "image": "i" }] },
        });
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        let pod = Pod::from_value(object, PodOrigin::ApiServer).unwrap();
        let (memory, disk, processes) = conditions;
        let conditions = Conditions { memory, disk, processes };
        assert_eq!(refusal_under(conditions, &pod).as_deref(), expected, "{spec}");
    }

    #[test]
    fn a_node_short_of_memory_takes_those_who_asked_for_some_or_tolerate_it() {
        let short = (true, false, false);
        let refused = Some("The node had condition: [MemoryPressure]. ");
        let burstable =
            json!([{ "name": "a", "image": "i", "resources": { "requests": { "cpu": "1" } } }]);
        let tolerating = |toleration: Value| json!({ "tolerations": [toleration] });
        check_under((false, false, false), &json!({}), None);
        check_under(short, &json!({}), refused);
        check_under(short, &json!({ "containers": burstable }), None);
        check_under(short, &json!({ "priority": 2_000_000_000 }), None);
        check_under(short, &tolerating(json!({ "operator": "Exists" })), None);
        let key = MEMORY_PRESSURE_TAINT;
        check_under(
            short,
            &tolerating(json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" })),
            None,
        );
        check_under(
            short,
            &tolerating(json!({ "key": key, "operator": "Exists", "effect": "NoExecute" })),
            refused,
        );
        check_under(short, &tolerating(json!({ "key": key, "value": "x" })), refused);
        check_under(
            short,
            &tolerating(json!({ "key": "node.kubernetes.io/disk-pressure", "operator": "Exists" })),
            refused,
        );
    }

    #[test]
    fn a_node_short_of_disk_or_processes_takes_critical_pods_alone() {
        let burstable = json!({ "containers": [{ "name": "a", "image": "i",
            "resources": { "requests": { "cpu": "1" } } }] });
        check_under(
            (false, true, false),
            &burstable,
            Some("The node had condition: [DiskPressure]. "),
        );
        check_under(
            (false, true, false),
            &json!({ "tolerations": [{ "operator": "Exists" }] }),
            Some("The node had condition: [DiskPressure]. "),
        );
        check_under(
            (true, true, true),
            &json!({}),
            Some("The node had condition: [MemoryPressure DiskPressure PIDPressure]. "),
        );
        check_under((true, true, true), &json!({ "priority": 2_000_000_000 }), None);
    }

    #[test]
    fn a_pod_for_another_operating_system_is_refused() {
        let of = |name: &str| {
            let spec = json!({ "os": { "name": name }, "containers": [] });
            refusal(&serde_json::from_value(spec).unwrap(), &node()).map(|(reason, _)| reason)
        };
        assert_eq!(of("linux"), None);
        assert_eq!(of("windows"), Some("PodOSNotSupported"));
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
        let users = "spec.hostPID cannot be true when hostUsers is false; leave one of them out";
        check_spec(&json!({ "hostUsers": false, "hostPID": true }), Some(users));
        check_spec(&json!({ "hostUsers": false, "hostPID": false }), None);
        check_spec(&json!({ "hostUsers": true, "hostPID": true }), None);
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
