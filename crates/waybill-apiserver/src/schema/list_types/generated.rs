//! How lists and maps of Kubernetes merge. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use super::Merge;

/// Objects that server-side apply replaces as a whole.
pub(super) const ATOMIC_OBJECTS: &[&str] = &[
    "io.k8s.api.admissionregistration.v1.MatchResources",
    "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
    "io.k8s.api.admissionregistration.v1.ParamKind",
    "io.k8s.api.admissionregistration.v1.ParamRef",
    "io.k8s.api.admissionregistration.v1.Variable",
    "io.k8s.api.core.v1.ConfigMapKeySelector",
    "io.k8s.api.core.v1.EndpointAddress",
    "io.k8s.api.core.v1.EndpointPort",
    "io.k8s.api.core.v1.FileKeySelector",
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.NodeSelectorTerm",
    "io.k8s.api.core.v1.ObjectFieldSelector",
    "io.k8s.api.core.v1.ObjectReference",
    "io.k8s.api.core.v1.ResourceFieldSelector",
    "io.k8s.api.core.v1.SecretKeySelector",
    "io.k8s.api.core.v1.TypedLocalObjectReference",
    "io.k8s.api.discovery.v1.EndpointPort",
    "io.k8s.api.rbac.v1.RoleRef",
    "io.k8s.api.rbac.v1.Subject",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// Maps that server-side apply replaces as a whole.
pub(super) const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("io.k8s.api.core.v1.PodSpec", "nodeSelector"),
    ("io.k8s.api.core.v1.ServiceSpec", "selector"),
    ("io.k8s.api.node.v1.Scheduling", "nodeSelector"),
];

/// What the keys of lists are where an element does not say them.
pub(super) const KEY_DEFAULTS: &[(&str, &str, &str)] = &[
    ("io.k8s.api.core.v1.ContainerPort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.LocalObjectReference", "name", ""),
    ("io.k8s.api.core.v1.ServicePort", "protocol", "TCP"),
];

/// The lists, by definition.
pub(super) const FIELDS: &[(&str, &[(&str, Merge)])] = &[
    ("io.k8s.api.admissionregistration.v1.MatchResources", &[
        ("excludeResourceRules", Merge::Atomic),
        ("resourceRules", Merge::Atomic),
    ]),
    ("io.k8s.api.admissionregistration.v1.MutatingWebhook", &[
        ("admissionReviewVersions", Merge::Atomic),
        ("matchConditions", Merge::By(&["name"])),
        ("rules", Merge::Atomic),
    ]),
    ("io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration", &[
        ("webhooks", Merge::By(&["name"])),
    ]),
    ("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations", &[
        ("apiGroups", Merge::Atomic),
        ("apiVersions", Merge::Atomic),
        ("operations", Merge::Atomic),
        ("resourceNames", Merge::Atomic),
        ("resources", Merge::Atomic),
    ]),
    ("io.k8s.api.admissionregistration.v1.RuleWithOperations", &[
        ("apiGroups", Merge::Atomic),
        ("apiVersions", Merge::Atomic),
        ("operations", Merge::Atomic),
        ("resources", Merge::Atomic),
    ]),
    ("io.k8s.api.admissionregistration.v1.TypeChecking", &[
        ("expressionWarnings", Merge::Atomic),
    ]),
    ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", &[
        ("validationActions", Merge::SetReplaced),
    ]),
    ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec", &[
        ("auditAnnotations", Merge::Atomic),
        ("matchConditions", Merge::By(&["name"])),
        ("validations", Merge::Atomic),
        ("variables", Merge::By(&["name"])),
    ]),
    ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyStatus", &[
        ("conditions", Merge::ByReplaced(&["type"])),
    ]),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhook", &[
        ("admissionReviewVersions", Merge::Atomic),
        ("matchConditions", Merge::By(&["name"])),
        ("rules", Merge::Atomic),
    ]),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration", &[
        ("webhooks", Merge::By(&["name"])),
    ]),
    ("io.k8s.api.authentication.v1.TokenRequestSpec", &[
        ("audiences", Merge::Atomic),
    ]),
    ("io.k8s.api.authentication.v1.TokenReviewSpec", &[
        ("audiences", Merge::Atomic),
    ]),
    ("io.k8s.api.authentication.v1.TokenReviewStatus", &[
        ("audiences", Merge::Atomic),
    ]),
    ("io.k8s.api.authentication.v1.UserInfo", &[
        ("groups", Merge::Atomic),
    ]),
    ("io.k8s.api.authorization.v1.FieldSelectorAttributes", &[
        ("requirements", Merge::Atomic),
    ]),
    ("io.k8s.api.authorization.v1.LabelSelectorAttributes", &[
        ("requirements", Merge::Atomic),
    ]),
    ("io.k8s.api.authorization.v1.NonResourceRule", &[
        ("nonResourceURLs", Merge::Atomic),
        ("verbs", Merge::Atomic),
    ]),
    ("io.k8s.api.authorization.v1.ResourceRule", &[
        ("apiGroups", Merge::Atomic),
        ("resourceNames", Merge::Atomic),
        ("resources", Merge::Atomic),
        ("verbs", Merge::Atomic),
    ]),
    ("io.k8s.api.authorization.v1.SubjectAccessReviewSpec", &[
        ("groups", Merge::Atomic),
    ]),
    ("io.k8s.api.authorization.v1.SubjectRulesReviewStatus", &[
        ("nonResourceRules", Merge::Atomic),
        ("resourceRules", Merge::Atomic),
    ]),
    ("io.k8s.api.certificates.v1.CertificateSigningRequestSpec", &[
        ("groups", Merge::Atomic),
        ("usages", Merge::Atomic),
    ]),
    ("io.k8s.api.certificates.v1.CertificateSigningRequestStatus", &[
        ("conditions", Merge::ByReplaced(&["type"])),
    ]),
    ("io.k8s.api.core.v1.Capabilities", &[
        ("add", Merge::Atomic),
        ("drop", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.CephFSVolumeSource", &[
        ("monitors", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.ConfigMapProjection", &[
        ("items", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", &[
        ("items", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.Container", &[
        ("args", Merge::Atomic),
        ("command", Merge::Atomic),
        ("env", Merge::By(&["name"])),
        ("envFrom", Merge::Atomic),
        ("ports", Merge::By(&["containerPort", "protocol"])),
        ("resizePolicy", Merge::Atomic),
        ("restartPolicyRules", Merge::Atomic),
        ("volumeDevices", Merge::By(&["devicePath"])),
        ("volumeMounts", Merge::By(&["mountPath"])),
    ]),
    ("io.k8s.api.core.v1.ContainerImage", &[
        ("names", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes", &[
        ("values", Merge::SetReplaced),
    ]),
    ("io.k8s.api.core.v1.ContainerStatus", &[
        ("allocatedResourcesStatus", Merge::By(&["name"])),
        ("volumeMounts", Merge::By(&["mountPath"])),
    ]),
    ("io.k8s.api.core.v1.DownwardAPIProjection", &[
        ("items", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", &[
        ("items", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.EndpointSubset", &[
        ("addresses", Merge::Atomic),
        ("notReadyAddresses", Merge::Atomic),
        ("ports", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.Endpoints", &[
        ("subsets", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.EphemeralContainer", &[
        ("args", Merge::Atomic),
        ("command", Merge::Atomic),
        ("env", Merge::By(&["name"])),
        ("envFrom", Merge::Atomic),
        ("ports", Merge::By(&["containerPort", "protocol"])),
        ("resizePolicy", Merge::Atomic),
        ("restartPolicyRules", Merge::Atomic),
        ("volumeDevices", Merge::By(&["devicePath"])),
        ("volumeMounts", Merge::By(&["mountPath"])),
    ]),
    ("io.k8s.api.core.v1.ExecAction", &[
        ("command", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.FCVolumeSource", &[
        ("targetWWNs", Merge::Atomic),
        ("wwids", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.HTTPGetAction", &[
        ("httpHeaders", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.HostAlias", &[
        ("hostnames", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.ISCSIVolumeSource", &[
        ("portals", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.LinuxContainerUser", &[
        ("supplementalGroups", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.LoadBalancerIngress", &[
        ("ports", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.LoadBalancerStatus", &[
        ("ingress", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.NamespaceSpec", &[
        ("finalizers", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.NamespaceStatus", &[
        ("conditions", Merge::By(&["type"])),
    ]),
    ("io.k8s.api.core.v1.NodeAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.NodeSelector", &[
        ("nodeSelectorTerms", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.NodeSelectorRequirement", &[
        ("values", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.NodeSelectorTerm", &[
        ("matchExpressions", Merge::Atomic),
        ("matchFields", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.NodeSpec", &[
        ("podCIDRs", Merge::Set),
        ("taints", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.NodeStatus", &[
        ("addresses", Merge::By(&["type"])),
        ("conditions", Merge::By(&["type"])),
        ("declaredFeatures", Merge::Atomic),
        ("images", Merge::Atomic),
        ("runtimeHandlers", Merge::Atomic),
        ("volumesAttached", Merge::Atomic),
        ("volumesInUse", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &[
        ("accessModes", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PodAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", Merge::Atomic),
        ("requiredDuringSchedulingIgnoredDuringExecution", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PodAffinityTerm", &[
        ("matchLabelKeys", Merge::Atomic),
        ("mismatchLabelKeys", Merge::Atomic),
        ("namespaces", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PodAntiAffinity", &[
        ("preferredDuringSchedulingIgnoredDuringExecution", Merge::Atomic),
        ("requiredDuringSchedulingIgnoredDuringExecution", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PodDNSConfig", &[
        ("nameservers", Merge::Atomic),
        ("options", Merge::Atomic),
        ("searches", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PodExtendedResourceClaimStatus", &[
        ("requestMappings", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PodSecurityContext", &[
        ("supplementalGroups", Merge::Atomic),
        ("sysctls", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.PodSpec", &[
        ("containers", Merge::By(&["name"])),
        ("ephemeralContainers", Merge::By(&["name"])),
        ("hostAliases", Merge::By(&["ip"])),
        ("imagePullSecrets", Merge::By(&["name"])),
        ("initContainers", Merge::By(&["name"])),
        ("readinessGates", Merge::Atomic),
        ("resourceClaims", Merge::ByRetainKeys(&["name"])),
        ("schedulingGates", Merge::By(&["name"])),
        ("tolerations", Merge::Atomic),
        ("topologySpreadConstraints", Merge::By(&["topologyKey", "whenUnsatisfiable"])),
        ("volumes", Merge::ByRetainKeys(&["name"])),
    ]),
    ("io.k8s.api.core.v1.PodStatus", &[
        ("conditions", Merge::By(&["type"])),
        ("containerStatuses", Merge::Atomic),
        ("ephemeralContainerStatuses", Merge::Atomic),
        ("hostIPs", Merge::PatchBy("ip")),
        ("initContainerStatuses", Merge::Atomic),
        ("podIPs", Merge::By(&["ip"])),
        ("resourceClaimStatuses", Merge::ByRetainKeys(&["name"])),
    ]),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", &[
        ("sources", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.RBDVolumeSource", &[
        ("monitors", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.ResourceRequirements", &[
        ("claims", Merge::ByReplaced(&["name"])),
    ]),
    ("io.k8s.api.core.v1.ResourceStatus", &[
        ("resources", Merge::ByReplaced(&["resourceID"])),
    ]),
    ("io.k8s.api.core.v1.SecretProjection", &[
        ("items", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.SecretVolumeSource", &[
        ("items", Merge::Atomic),
    ]),
    ("io.k8s.api.core.v1.ServiceAccount", &[
        ("imagePullSecrets", Merge::Atomic),
        ("secrets", Merge::By(&["name"])),
    ]),
    ("io.k8s.api.core.v1.ServiceSpec", &[
        ("clusterIPs", Merge::Atomic),
        ("externalIPs", Merge::Atomic),
        ("ipFamilies", Merge::Atomic),
        ("loadBalancerSourceRanges", Merge::Atomic),
        ("ports", Merge::By(&["port", "protocol"])),
    ]),
    ("io.k8s.api.core.v1.ServiceStatus", &[
        ("conditions", Merge::By(&["type"])),
    ]),
    ("io.k8s.api.core.v1.TopologySpreadConstraint", &[
        ("matchLabelKeys", Merge::Atomic),
    ]),
    ("io.k8s.api.discovery.v1.Endpoint", &[
        ("addresses", Merge::SetReplaced),
    ]),
    ("io.k8s.api.discovery.v1.EndpointHints", &[
        ("forNodes", Merge::Atomic),
        ("forZones", Merge::Atomic),
    ]),
    ("io.k8s.api.discovery.v1.EndpointSlice", &[
        ("endpoints", Merge::Atomic),
        ("ports", Merge::Atomic),
    ]),
    ("io.k8s.api.node.v1.Scheduling", &[
        ("tolerations", Merge::Atomic),
    ]),
    ("io.k8s.api.rbac.v1.AggregationRule", &[
        ("clusterRoleSelectors", Merge::Atomic),
    ]),
    ("io.k8s.api.rbac.v1.ClusterRole", &[
        ("rules", Merge::Atomic),
    ]),
    ("io.k8s.api.rbac.v1.ClusterRoleBinding", &[
        ("subjects", Merge::Atomic),
    ]),
    ("io.k8s.api.rbac.v1.PolicyRule", &[
        ("apiGroups", Merge::Atomic),
        ("nonResourceURLs", Merge::Atomic),
        ("resourceNames", Merge::Atomic),
        ("resources", Merge::Atomic),
        ("verbs", Merge::Atomic),
    ]),
    ("io.k8s.api.rbac.v1.Role", &[
        ("rules", Merge::Atomic),
    ]),
    ("io.k8s.api.rbac.v1.RoleBinding", &[
        ("subjects", Merge::Atomic),
    ]),
    ("io.k8s.api.storage.v1.CSIDriverSpec", &[
        ("tokenRequests", Merge::Atomic),
        ("volumeLifecycleModes", Merge::SetReplaced),
    ]),
    ("io.k8s.api.storage.v1.CSINodeDriver", &[
        ("topologyKeys", Merge::Atomic),
    ]),
    ("io.k8s.api.storage.v1.CSINodeSpec", &[
        ("drivers", Merge::By(&["name"])),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &[
        ("dryRun", Merge::Atomic),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement", &[
        ("values", Merge::Atomic),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", &[
        ("matchExpressions", Merge::Atomic),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", &[
        ("values", Merge::Atomic),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &[
        ("finalizers", Merge::Set),
        ("managedFields", Merge::Atomic),
        ("ownerReferences", Merge::By(&["uid"])),
    ]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails", &[
        ("causes", Merge::Atomic),
    ]),
];
