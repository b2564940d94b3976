//! How lists and maps merge: the extensions that clients read when they compute a patch.
//!
//! The facts are those of the Kubernetes API. What is not listed here is replaced as a whole.

use serde_json::{Value, json};

use super::definitions::{Definitions, OBJECT_META};

/// Adds the extensions to every listed field that `definitions` has.
pub(super) fn annotate(definitions: &mut Definitions) {
    for (definition, fields) in FIELDS {
        let Some(properties) =
            definitions.get_mut(*definition).and_then(|found| found.get_mut("properties"))
        else {
            continue;
        };
        for (name, merge) in *fields {
            if let Some(Value::Object(field)) = properties.get_mut(*name) {
                for (key, value) in merge.extensions() {
                    field.insert(key.to_owned(), value);
                }
            }
        }
    }
    for name in ATOMIC_OBJECTS {
        if let Some(Value::Object(definition)) = definitions.get_mut(*name) {
            definition.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
    }
    for (definition, name) in ATOMIC_MAPS {
        insert(definitions, definition, name, "x-kubernetes-map-type", "atomic".into());
    }
    for (definition, name, value) in KEY_DEFAULTS {
        insert(definitions, definition, name, "default", (*value).into());
    }
    for (definition, names) in BY_VALUE {
        for name in *names {
            insert(definitions, definition, name, "default", json!({}));
        }
    }
    for definition in definitions.values_mut() {
        let Some(Value::Object(properties)) = definition.get_mut("properties") else { continue };
        let metadata = properties.get("metadata").and_then(|metadata| metadata.get("$ref"));
        if metadata.is_none_or(|reference| reference != OBJECT_META) {
            continue;
        }
        for name in PARTS {
            if let Some(Value::Object(part)) = properties.get_mut(name) {
                part.insert("default".to_owned(), json!({}));
            }
        }
    }
}

/// Says `key: value` of the field `name` of `definition`, if there is such a field.
fn insert(definitions: &mut Definitions, definition: &str, name: &str, key: &str, value: Value) {
    let properties = definitions.get_mut(definition).and_then(|found| found.get_mut("properties"));
    if let Some(Value::Object(field)) = properties.and_then(|found| found.get_mut(name)) {
        field.insert(key.to_owned(), value);
    }
}

/// How the elements of a list are told apart, by server-side apply and by strategic merge patch.
#[derive(Clone, Copy)]
enum Merge {
    /// Replaced as a whole by both.
    Atomic,
    /// Values, each at most once.
    Set,
    /// As `Set`, but a patch replaces the whole list.
    SetReplaced,
    /// Objects under the first key in a patch, under all of them in server-side apply.
    By(&'static [&'static str]),
    /// As `By`, but a patch replaces the whole list.
    ByReplaced(&'static [&'static str]),
    /// Objects under this key in a patch, replaced as a whole by server-side apply.
    PatchBy(&'static str),
    /// Objects under the first key, of each of which a patch keeps only the keys that it names.
    ByRetainKeys(&'static [&'static str]),
}

impl Merge {
    fn extensions(self) -> Vec<(&'static str, Value)> {
        let list_type = |name: &str| ("x-kubernetes-list-type", name.into());
        let map_keys = |keys: &[&str]| ("x-kubernetes-list-map-keys", json!(keys));
        let strategy = |name: &str| ("x-kubernetes-patch-strategy", name.into());
        let merge_key = |key: Option<&&str>| ("x-kubernetes-patch-merge-key", json!(key));
        match self {
            Self::Atomic => vec![list_type("atomic")],
            Self::Set => vec![list_type("set"), strategy("merge")],
            Self::SetReplaced => vec![list_type("set")],
            Self::By(keys) => {
                vec![list_type("map"), map_keys(keys), strategy("merge"), merge_key(keys.first())]
            }
            Self::ByReplaced(keys) => vec![list_type("map"), map_keys(keys)],
            Self::PatchBy(key) => {
                vec![list_type("atomic"), strategy("merge"), merge_key(Some(&key))]
            }
            Self::ByRetainKeys(keys) => vec![
                list_type("map"),
                map_keys(keys),
                strategy("merge,retainKeys"),
                merge_key(keys.first()),
            ],
        }
    }
}

/// Objects that server-side apply replaces as a whole.
const ATOMIC_OBJECTS: &[&str] = &[
    "io.k8s.api.admissionregistration.v1.MatchResources",
    "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
    "io.k8s.api.admissionregistration.v1.ParamKind",
    "io.k8s.api.admissionregistration.v1.ParamRef",
    "io.k8s.api.admissionregistration.v1.Variable",
    "io.k8s.api.core.v1.ConfigMapKeySelector",
    "io.k8s.api.core.v1.FileKeySelector",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.NodeSelectorTerm",
    "io.k8s.api.core.v1.ObjectFieldSelector",
    "io.k8s.api.core.v1.ObjectReference",
    "io.k8s.api.core.v1.ResourceFieldSelector",
    "io.k8s.api.core.v1.SecretKeySelector",
    "io.k8s.api.core.v1.TypedLocalObjectReference",
    "io.k8s.api.rbac.v1.RoleRef",
    "io.k8s.api.rbac.v1.Subject",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// Maps that server-side apply replaces as a whole.
const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.PodSpec", "nodeSelector"),
    ("io.k8s.api.core.v1.ServiceSpec", "selector"),
    ("io.k8s.api.node.v1.Scheduling", "nodeSelector"),
];

/// What the keys of lists are where an element does not say them.
const KEY_DEFAULTS: &[(&str, &str, &str)] = &[
    ("io.k8s.api.core.v1.ContainerPort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.ServicePort", "protocol", "TCP"),
];

/// Objects that upstream's types hold by value, besides the parts of every object: they are there with what
/// holds them, so whoever writes into one does not add it.
const BY_VALUE: &[(&str, &[&str])] = &[
    ("io.k8s.api.admissionregistration.v1.MutatingWebhook", &["clientConfig"]),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhook", &["clientConfig"]),
    ("io.k8s.api.core.v1.Container", &["resources"]),
    ("io.k8s.api.core.v1.EphemeralContainer", &["resources"]),
    ("io.k8s.api.core.v1.Event", &["involvedObject", "source"]),
    ("io.k8s.api.core.v1.NodeDaemonEndpoints", &["kubeletEndpoint"]),
    ("io.k8s.api.core.v1.NodeStatus", &["daemonEndpoints", "nodeInfo"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &["resources"]),
    ("io.k8s.api.core.v1.PodTemplate", &["template"]),
    ("io.k8s.api.core.v1.ServiceStatus", &["loadBalancer"]),
    ("io.k8s.api.events.v1.Event", &["deprecatedSource", "regarding"]),
    ("io.k8s.api.rbac.v1.ClusterRoleBinding", &["roleRef"]),
    ("io.k8s.api.rbac.v1.RoleBinding", &["roleRef"]),
];

/// The parts of an object that it holds by value.
const PARTS: [&str; 3] = ["metadata", "spec", "status"];

const BY_NAME: Merge = Merge::By(&["name"]);
const BY_TYPE: Merge = Merge::By(&["type"]);

const WEBHOOK: &[(&str, Merge)] = &[
    ("admissionReviewVersions", Merge::Atomic),
    ("matchConditions", BY_NAME),
    ("rules", Merge::Atomic),
];

const CONTAINER: &[(&str, Merge)] = &[
    ("args", Merge::Atomic),
    ("command", Merge::Atomic),
    ("env", BY_NAME),
    ("envFrom", Merge::Atomic),
    ("ports", Merge::By(&["containerPort", "protocol"])),
    ("resizePolicy", Merge::Atomic),
    ("restartPolicyRules", Merge::Atomic),
    ("volumeDevices", Merge::By(&["devicePath"])),
    ("volumeMounts", Merge::By(&["mountPath"])),
];

/// The fields, by definition.
const FIELDS: &[(&str, &[(&str, Merge)])] = &[
    (
        "io.k8s.api.certificates.v1.CertificateSigningRequestSpec",
        &[("groups", Merge::Atomic), ("usages", Merge::Atomic)],
    ),
    (
        "io.k8s.api.certificates.v1.CertificateSigningRequestStatus",
        &[("conditions", Merge::ByReplaced(&["type"]))],
    ),
    (
        "io.k8s.api.core.v1.ServiceSpec",
        &[
            ("clusterIPs", Merge::Atomic),
            ("externalIPs", Merge::Atomic),
            ("ipFamilies", Merge::Atomic),
            ("loadBalancerSourceRanges", Merge::Atomic),
            ("ports", Merge::By(&["port", "protocol"])),
        ],
    ),
    ("io.k8s.api.core.v1.ServiceStatus", &[("conditions", BY_TYPE)]),
    ("io.k8s.api.core.v1.Endpoints", &[("subsets", Merge::Atomic)]),
    (
        "io.k8s.api.discovery.v1.EndpointSlice",
        &[("endpoints", Merge::Atomic), ("ports", Merge::Atomic)],
    ),
    ("io.k8s.api.admissionregistration.v1.MutatingWebhook", WEBHOOK),
    ("io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration", &[("webhooks", BY_NAME)]),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec",
        &[("validationActions", Merge::SetReplaced)],
    ),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        &[
            ("auditAnnotations", Merge::Atomic),
            ("matchConditions", BY_NAME),
            ("validations", Merge::Atomic),
            ("variables", BY_NAME),
        ],
    ),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyStatus",
        &[("conditions", Merge::ByReplaced(&["type"]))],
    ),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhook", WEBHOOK),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
        &[("webhooks", BY_NAME)],
    ),
    ("io.k8s.api.core.v1.Container", CONTAINER),
    ("io.k8s.api.core.v1.EphemeralContainer", CONTAINER),
    (
        "io.k8s.api.core.v1.PodSpec",
        &[
            ("containers", BY_NAME),
            ("ephemeralContainers", BY_NAME),
            ("hostAliases", Merge::By(&["ip"])),
            ("imagePullSecrets", BY_NAME),
            ("initContainers", BY_NAME),
            ("readinessGates", Merge::Atomic),
            ("resourceClaims", Merge::ByRetainKeys(&["name"])),
            ("schedulingGates", BY_NAME),
            ("tolerations", Merge::Atomic),
            ("topologySpreadConstraints", Merge::By(&["topologyKey", "whenUnsatisfiable"])),
            ("volumes", Merge::ByRetainKeys(&["name"])),
        ],
    ),
    (
        "io.k8s.api.core.v1.PodStatus",
        &[
            ("conditions", BY_TYPE),
            ("containerStatuses", Merge::Atomic),
            ("ephemeralContainerStatuses", Merge::Atomic),
            ("hostIPs", Merge::PatchBy("ip")),
            ("initContainerStatuses", Merge::Atomic),
            ("podIPs", Merge::By(&["ip"])),
            ("resourceClaimStatuses", Merge::ByRetainKeys(&["name"])),
        ],
    ),
    ("io.k8s.api.core.v1.ContainerStatus", &[("volumeMounts", Merge::By(&["mountPath"]))]),
    ("io.k8s.api.core.v1.ResourceRequirements", &[("claims", Merge::ByReplaced(&["name"]))]),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", &[("sources", Merge::Atomic)]),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", &[("items", Merge::Atomic)]),
    ("io.k8s.api.core.v1.ConfigMapProjection", &[("items", Merge::Atomic)]),
    ("io.k8s.api.core.v1.SecretVolumeSource", &[("items", Merge::Atomic)]),
    ("io.k8s.api.core.v1.SecretProjection", &[("items", Merge::Atomic)]),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", &[("items", Merge::Atomic)]),
    ("io.k8s.api.core.v1.DownwardAPIProjection", &[("items", Merge::Atomic)]),
    ("io.k8s.api.core.v1.TopologySpreadConstraint", &[("matchLabelKeys", Merge::Atomic)]),
    ("io.k8s.api.core.v1.NodeSpec", &[("podCIDRs", Merge::Set), ("taints", Merge::Atomic)]),
    (
        "io.k8s.api.core.v1.NodeStatus",
        &[
            ("addresses", BY_TYPE),
            ("conditions", BY_TYPE),
            ("images", Merge::Atomic),
            ("volumesAttached", Merge::Atomic),
            ("volumesInUse", Merge::Atomic),
        ],
    ),
    ("io.k8s.api.core.v1.NamespaceSpec", &[("finalizers", Merge::Atomic)]),
    ("io.k8s.api.core.v1.NamespaceStatus", &[("conditions", BY_TYPE)]),
    (
        "io.k8s.api.core.v1.ServiceAccount",
        &[("imagePullSecrets", Merge::Atomic), ("secrets", BY_NAME)],
    ),
    (
        "io.k8s.api.rbac.v1.PolicyRule",
        &[
            ("apiGroups", Merge::Atomic),
            ("nonResourceURLs", Merge::Atomic),
            ("resourceNames", Merge::Atomic),
            ("resources", Merge::Atomic),
            ("verbs", Merge::Atomic),
        ],
    ),
    ("io.k8s.api.rbac.v1.AggregationRule", &[("clusterRoleSelectors", Merge::Atomic)]),
    ("io.k8s.api.rbac.v1.ClusterRole", &[("rules", Merge::Atomic)]),
    ("io.k8s.api.rbac.v1.ClusterRoleBinding", &[("subjects", Merge::Atomic)]),
    ("io.k8s.api.rbac.v1.Role", &[("rules", Merge::Atomic)]),
    ("io.k8s.api.rbac.v1.RoleBinding", &[("subjects", Merge::Atomic)]),
    (
        "io.k8s.api.storage.v1.CSIDriverSpec",
        &[("tokenRequests", Merge::Atomic), ("volumeLifecycleModes", Merge::SetReplaced)],
    ),
    ("io.k8s.api.storage.v1.CSINodeDriver", &[("topologyKeys", Merge::Atomic)]),
    ("io.k8s.api.storage.v1.CSINodeSpec", &[("drivers", BY_NAME)]),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        &[
            ("finalizers", Merge::Set),
            ("managedFields", Merge::Atomic),
            ("ownerReferences", Merge::By(&["uid"])),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::{
        super::{definitions::define, kinds},
        *,
    };

    #[test]
    fn every_listed_field_exists() {
        let definitions = define(kinds::all());
        for (definition, fields) in FIELDS {
            for (name, _) in *fields {
                let field = &definitions[*definition]["properties"][*name];
                assert_eq!(field["type"], "array", "{definition} {name}");
            }
        }
        for name in ATOMIC_OBJECTS {
            assert!(definitions.contains_key(*name), "{name}");
        }
        for (definition, name) in ATOMIC_MAPS {
            assert_eq!(definitions[*definition]["properties"][*name]["type"], "object", "{name}");
        }
        for (definition, name, value) in KEY_DEFAULTS {
            assert_eq!(definitions[*definition]["properties"][*name]["default"], *value, "{name}");
        }
        for (definition, names) in BY_VALUE {
            let properties = &definitions[*definition]["properties"];
            assert_eq!(properties[names[0]]["default"], json!({}), "{definition}");
        }
    }
}
