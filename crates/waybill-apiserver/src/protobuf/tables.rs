//! The tables, one static per message of `k8s.io/api`.
//!
//! They hold all fields of Kubernetes 1.32 and those later ones whose numbers could be looked up in a
//! `generated.proto` or Go type. Fields are `kept` when the Go type is a pointer or when Go shows the
//! field even if it is empty. Fields that are not here are skipped, as every server does with what
//! is newer than itself, so these, which the JSON schemas have, are lost in protobuf:
//!
//! - of pods: `evictionResponders`, `schedulingGroup`; of volumes and mounts: `mode` of `emptyDir`,
//!   `defaultUser`, `user`, `bindMountOptions`; of probes: `protocol` of `httpGet`, `mode` of `grpc`;
//!   of their status: `extendedResourceClaimStatus`, `nodeAllocatableResourceClaimStatuses`,
//!   `volumeHealth`, `volumeStatus`
//! - of nodes: `podPreemptionPolicy`, `runningInUserNamespace`
//! - of `TokenRequest`: `attestations`

mod admission;
mod affinity;
mod authentication;
mod authorization;
mod certificates;
mod classes;
mod container;
mod core_event;
mod event;
mod exec;
mod meta;
mod node;
mod objects;
mod pod;
mod pod_status;
mod rbac;
mod security;
mod services;
mod volume;
mod volume_drivers;

use super::table::Message;

pub(super) use self::meta::LIST_META;

/// The message of a kind that we answer with and nobody sends.
pub(super) fn lookup_answer(api_version: &str, kind: &str) -> Option<&'static Message> {
    match (api_version, kind) {
        ("v1", "Status") => Some(&meta::STATUS),
        ("meta.k8s.io/v1", "PartialObjectMetadata") => Some(&meta::PARTIAL_OBJECT_METADATA),
        _ => lookup(api_version, kind),
    }
}

/// The message of a kind. Options of deletions come in the version of whatever is deleted.
pub(super) fn lookup(api_version: &str, kind: &str) -> Option<&'static Message> {
    let named = |known: &&(&str, &str, &Message)| known.0 == api_version && known.1 == kind;
    match kind {
        "DeleteOptions" => Some(&meta::DELETE_OPTIONS),
        _ => KINDS.iter().find(named).map(|known| known.2),
    }
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const AUTHENTICATION: &str = "authentication.k8s.io/v1";
const AUTHORIZATION: &str = "authorization.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Every kind but `DeleteOptions`.
pub(super) static KINDS: [(&str, &str, &Message); 36] = [
    ("v1", "Binding", &objects::BINDING),
    ("v1", "ConfigMap", &objects::CONFIG_MAP),
    ("v1", "Endpoints", &services::ENDPOINTS),
    ("v1", "Event", &core_event::EVENT),
    ("v1", "Namespace", &objects::NAMESPACE),
    ("v1", "Node", &node::NODE),
    ("v1", "Pod", &pod::POD),
    ("v1", "PodExecOptions", &exec::POD_EXEC_OPTIONS),
    ("v1", "PodTemplate", &pod::POD_TEMPLATE),
    ("v1", "Secret", &objects::SECRET),
    ("v1", "Service", &services::SERVICE),
    ("v1", "ServiceAccount", &objects::SERVICE_ACCOUNT),
    (ADMISSION, "MutatingWebhookConfiguration", &admission::MUTATING_WEBHOOK_CONFIGURATION),
    (ADMISSION, "ValidatingAdmissionPolicy", &admission::VALIDATING_ADMISSION_POLICY),
    (
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        &admission::VALIDATING_ADMISSION_POLICY_BINDING,
    ),
    (ADMISSION, "ValidatingWebhookConfiguration", &admission::VALIDATING_WEBHOOK_CONFIGURATION),
    (AUTHENTICATION, "SelfSubjectReview", &authentication::SELF_SUBJECT_REVIEW),
    (AUTHENTICATION, "TokenRequest", &authentication::TOKEN_REQUEST),
    (AUTHENTICATION, "TokenReview", &authentication::TOKEN_REVIEW),
    (AUTHORIZATION, "LocalSubjectAccessReview", &authorization::LOCAL_SUBJECT_ACCESS_REVIEW),
    (AUTHORIZATION, "SelfSubjectAccessReview", &authorization::SELF_SUBJECT_ACCESS_REVIEW),
    (AUTHORIZATION, "SelfSubjectRulesReview", &authorization::SELF_SUBJECT_RULES_REVIEW),
    (AUTHORIZATION, "SubjectAccessReview", &authorization::SUBJECT_ACCESS_REVIEW),
    (
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        &certificates::CERTIFICATE_SIGNING_REQUEST,
    ),
    ("coordination.k8s.io/v1", "Lease", &objects::LEASE),
    ("discovery.k8s.io/v1", "EndpointSlice", &services::ENDPOINT_SLICE),
    ("events.k8s.io/v1", "Event", &event::EVENT),
    ("node.k8s.io/v1", "RuntimeClass", &classes::RUNTIME_CLASS),
    ("policy/v1", "Eviction", &objects::EVICTION),
    (RBAC, "ClusterRole", &rbac::CLUSTER_ROLE),
    (RBAC, "ClusterRoleBinding", &rbac::CLUSTER_ROLE_BINDING),
    (RBAC, "Role", &rbac::ROLE),
    (RBAC, "RoleBinding", &rbac::ROLE_BINDING),
    ("scheduling.k8s.io/v1", "PriorityClass", &classes::PRIORITY_CLASS),
    ("storage.k8s.io/v1", "CSIDriver", &objects::CSI_DRIVER),
    ("storage.k8s.io/v1", "CSINode", &objects::CSI_NODE),
];
