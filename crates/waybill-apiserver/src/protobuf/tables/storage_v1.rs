//! Messages of `storage_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bool, Int32, Int64, Message as Nested, Text, Time}, field, kept, list};

pub(crate) static CSI_DRIVER: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&CSI_DRIVER_SPEC)),
]);

pub(crate) static CSI_DRIVER_SPEC: Message = Message(&[
    kept(1, "attachRequired", Bool),
    kept(2, "podInfoOnMount", Bool),
    list(3, "volumeLifecycleModes", Text),
    kept(4, "storageCapacity", Bool),
    kept(5, "fsGroupPolicy", Text),
    list(6, "tokenRequests", Nested(&TOKEN_REQUEST)),
    kept(7, "requiresRepublish", Bool),
    kept(8, "seLinuxMount", Bool),
    kept(9, "nodeAllocatableUpdatePeriodSeconds", Int64),
    kept(10, "serviceAccountTokenInSecrets", Bool),
    kept(11, "preventPodSchedulingIfMissing", Bool),
]);

pub(crate) static CSI_NODE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&CSI_NODE_SPEC)),
    field(3, "status", Nested(&CSI_NODE_STATUS)),
]);

pub(crate) static CSI_NODE_DRIVER: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "nodeID", Text),
    list(3, "topologyKeys", Text),
    kept(4, "allocatable", Nested(&VOLUME_NODE_RESOURCES)),
]);

pub(crate) static CSI_NODE_SPEC: Message = Message(&[
    list(1, "drivers", Nested(&CSI_NODE_DRIVER)),
]);

pub(crate) static CSI_NODE_STATUS: Message = Message(&[
    list(1, "storageHealth", Nested(&STORAGE_HEALTH)),
]);

pub(crate) static STORAGE_HEALTH: Message = Message(&[
    kept(1, "name", Text),
    list(2, "healthConditions", Nested(&STORAGE_HEALTH_CONDITION)),
]);

pub(crate) static STORAGE_HEALTH_CONDITION: Message = Message(&[
    kept(1, "status", Text),
    kept(2, "reason", Text),
    field(3, "message", Text),
    kept(4, "accessMode", Text),
    kept(5, "volumeMode", Text),
    field(6, "lastTransitionTime", Time),
]);

pub(crate) static TOKEN_REQUEST: Message = Message(&[
    kept(1, "audience", Text),
    kept(2, "expirationSeconds", Int64),
]);

pub(crate) static VOLUME_NODE_RESOURCES: Message = Message(&[
    kept(1, "count", Int32),
]);
