//! Small objects of several groups.

use super::meta::{DELETE_OPTIONS, OBJECT_META};
use crate::protobuf::table::{
    Message,
    Type::{Bool, Bytes, Int32, Int64, Message as Nested, MicroTime, Text, Time},
    field, kept, list, map,
};

pub(in crate::protobuf) static CONFIG_MAP: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    map(2, "data", Text),
    map(3, "binaryData", Bytes),
    kept(4, "immutable", Bool),
]);

pub(in crate::protobuf) static SECRET: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    map(2, "data", Bytes),
    field(3, "type", Text),
    map(4, "stringData", Text),
    kept(5, "immutable", Bool),
]);

pub(in crate::protobuf) static NAMESPACE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&NAMESPACE_SPEC)),
    field(3, "status", Nested(&NAMESPACE_STATUS)),
]);

static NAMESPACE_SPEC: Message = Message(&[list(1, "finalizers", Text)]);

static NAMESPACE_STATUS: Message =
    Message(&[field(1, "phase", Text), list(2, "conditions", Nested(&NAMESPACE_CONDITION))]);

static NAMESPACE_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    field(4, "lastTransitionTime", Time),
    field(5, "reason", Text),
    field(6, "message", Text),
]);

pub(in crate::protobuf) static SERVICE_ACCOUNT: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    list(2, "secrets", Nested(&OBJECT_REFERENCE)),
    list(3, "imagePullSecrets", Nested(&LOCAL_OBJECT_REFERENCE)),
    kept(4, "automountServiceAccountToken", Bool),
]);

pub(super) static OBJECT_REFERENCE: Message = Message(&[
    field(1, "kind", Text),
    field(2, "namespace", Text),
    field(3, "name", Text),
    field(4, "uid", Text),
    field(5, "apiVersion", Text),
    field(6, "resourceVersion", Text),
    field(7, "fieldPath", Text),
]);

pub(super) static LOCAL_OBJECT_REFERENCE: Message = Message(&[field(1, "name", Text)]);

pub(in crate::protobuf) static BINDING: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "target", Nested(&OBJECT_REFERENCE)),
]);

pub(in crate::protobuf) static LEASE: Message =
    Message(&[field(1, "metadata", Nested(&OBJECT_META)), field(2, "spec", Nested(&LEASE_SPEC))]);

static LEASE_SPEC: Message = Message(&[
    kept(1, "holderIdentity", Text),
    kept(2, "leaseDurationSeconds", Int32),
    field(3, "acquireTime", MicroTime),
    field(4, "renewTime", MicroTime),
    kept(5, "leaseTransitions", Int32),
    kept(6, "strategy", Text),
    kept(7, "preferredHolder", Text),
]);

pub(in crate::protobuf) static EVICTION: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    kept(2, "deleteOptions", Nested(&DELETE_OPTIONS)),
]);

pub(in crate::protobuf) static CSI_DRIVER: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&CSI_DRIVER_SPEC)),
]);

static CSI_DRIVER_SPEC: Message = Message(&[
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

static TOKEN_REQUEST: Message =
    Message(&[kept(1, "audience", Text), kept(2, "expirationSeconds", Int64)]);

pub(in crate::protobuf) static CSI_NODE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&CSI_NODE_SPEC)),
    field(3, "status", Nested(&CSI_NODE_STATUS)),
]);

static CSI_NODE_SPEC: Message = Message(&[list(1, "drivers", Nested(&CSI_NODE_DRIVER))]);

static CSI_NODE_DRIVER: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "nodeID", Text),
    list(3, "topologyKeys", Text),
    kept(4, "allocatable", Nested(&VOLUME_NODE_RESOURCES)),
]);

static VOLUME_NODE_RESOURCES: Message = Message(&[kept(1, "count", Int32)]);

static CSI_NODE_STATUS: Message = Message(&[list(1, "storageHealth", Nested(&STORAGE_HEALTH))]);

static STORAGE_HEALTH: Message = Message(&[
    kept(1, "name", Text),
    list(2, "healthConditions", Nested(&STORAGE_HEALTH_CONDITION)),
]);

static STORAGE_HEALTH_CONDITION: Message = Message(&[
    kept(1, "status", Text),
    kept(2, "reason", Text),
    field(3, "message", Text),
    kept(4, "accessMode", Text),
    kept(5, "volumeMode", Text),
    field(6, "lastTransitionTime", Time),
]);
