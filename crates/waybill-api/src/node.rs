//! Nodes: which labels of its own object a node may set, and how it tells of its drivers.

/// The annotation of a `CSINode` by which its node names the drivers that can fetch variables, with
/// commas between them; the others of the list only serve volumes (OP-43).
pub const ENV_DRIVERS: &str = "csi.waybill.dev/env-drivers";

/// The annotation of a `CSIDriver` that the API server made because a node has such a driver. It goes when no
/// node has one any more, unless somebody changed it.
pub const AUTOMATIC_DRIVER: &str = "csi.waybill.dev/automatic";

/// The labels of the Kubernetes project that a kubelet sets.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Prefixes, with all that end in them, that are the kubelet's.
const KUBELET_PREFIXES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Prefixes that belong to the Kubernetes project. `node-restriction.kubernetes.io`, which is the
/// administrator's alone, is one of them.
const PROJECT_PREFIXES: &[&str] = &["k8s.io", "kubernetes.io"];

/// Whether a node may set, change and remove this label of its own object: the rule of the
/// `NodeRestriction` plugin of Kubernetes and of the kubelet's `--node-labels`. What else is in the
/// names of the Kubernetes project steers workloads, and is the administrator's.
pub fn node_may_set_label(label: &str) -> bool {
    let prefix = label.split_once('/').map_or("", |(prefix, _)| prefix);
    let within = |domain: &&str| {
        prefix.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !PROJECT_PREFIXES.iter().any(within)
        || KUBELET_LABELS.contains(&label)
        || KUBELET_PREFIXES.iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sets_the_labels_of_a_kubelet_and_those_of_users() {
        for (label, expected) in [
            ("app", true),
            ("example.com/pool", true),
            ("notkubernetes.io/pool", true),
            ("kubernetes.io/hostname", true),
            ("kubernetes.io/arch", true),
            ("topology.kubernetes.io/zone", true),
            ("node.kubernetes.io/anything", true),
            ("x.node.kubernetes.io/anything", true),
            ("kubelet.kubernetes.io/x", true),
            ("kubernetes.io/other", false),
            ("topology.kubernetes.io/rack", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("node-restriction.kubernetes.io/tier", false),
            ("a.node-restriction.kubernetes.io/tier", false),
            ("xnode.kubernetes.io/tier", false),
            ("k8s.io/x", false),
            ("a.k8s.io/x", false),
        ] {
            assert_eq!(node_may_set_label(label), expected, "{label}");
        }
    }
}
