//! The tables, one static per message of Kubernetes, and which kind has which.
//!
//! They are written by `cargo xtask gen` (ADR 0058). Fields are `kept` when the Go type is a pointer or when Go shows the
//! field even if it is empty. Fields that are not here are skipped, as every server does with what
//! is newer than itself, so these, which the JSON schemas have, are lost in protobuf:
//!
//! - of pods: `evictionResponders`, `schedulingGroup`; of volumes and mounts: `mode` of `emptyDir`,
//!   `defaultUser`, `user`, `bindMountOptions`; of probes: `protocol` of `httpGet`, `mode` of `grpc`;
//!   of their status: `nodeAllocatableResourceClaimStatuses`, `volumeHealth`, `volumeStatus`
//! - of nodes: `podPreemptionPolicy`, `runningInUserNamespace`
//! - of `TokenRequest`: `attestations`

#[rustfmt::skip]
pub(crate) mod admissionregistration_v1;
#[rustfmt::skip]
pub(crate) mod authentication_v1;
#[rustfmt::skip]
pub(crate) mod authorization_v1;
#[rustfmt::skip]
pub(crate) mod certificates_v1;
#[rustfmt::skip]
pub(crate) mod coordination_v1;
#[rustfmt::skip]
pub(crate) mod core_v1;
#[rustfmt::skip]
pub(crate) mod discovery_v1;
#[rustfmt::skip]
pub(crate) mod events_v1;
#[rustfmt::skip]
pub(crate) mod meta_v1;
#[rustfmt::skip]
pub(crate) mod node_v1;
#[rustfmt::skip]
pub(crate) mod policy_v1;
#[rustfmt::skip]
pub(crate) mod rbac_v1;
#[rustfmt::skip]
pub(crate) mod scheduling_v1;
#[rustfmt::skip]
pub(crate) mod storage_v1;

use super::table::Message;
use crate::registry::RESOURCES;

pub(super) use self::meta_v1::LIST_META;

/// The message of a kind that we answer with and nobody sends.
pub(super) fn lookup_answer(api_version: &str, kind: &str) -> Option<&'static Message> {
    match (api_version, kind) {
        ("v1", "Status") => Some(&meta_v1::STATUS),
        ("meta.k8s.io/v1", "PartialObjectMetadata") => Some(&meta_v1::PARTIAL_OBJECT_METADATA),
        _ => lookup(api_version, kind),
    }
}

/// The message of a kind. Options of deletions come in the version of whatever is deleted.
pub(super) fn lookup(api_version: &str, kind: &str) -> Option<&'static Message> {
    if kind == "DeleteOptions" {
        return Some(&meta_v1::DELETE_OPTIONS);
    }
    let mut resources = RESOURCES.iter();
    match resources.find(|resource| resource.kind == kind && resource.is_in(api_version)) {
        Some(resource) => resource.protobuf,
        None => {
            let mut others = OTHERS.iter();
            others.find(|known| known.0 == api_version && known.1 == kind).map(|known| known.2)
        }
    }
}

/// The kinds that are no resource's own: what is sent to subresources.
pub(super) static OTHERS: [(&str, &str, &Message); 4] = [
    ("v1", "Binding", &core_v1::BINDING),
    ("v1", "PodExecOptions", &core_v1::POD_EXEC_OPTIONS),
    ("authentication.k8s.io/v1", "TokenRequest", &authentication_v1::TOKEN_REQUEST),
    ("policy/v1", "Eviction", &policy_v1::EVICTION),
];
