//! The status of pods.

use super::container::RESOURCE_REQUIREMENTS;
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, Int64, Message as Nested, Quantity, Text, Time},
    field, kept, list, map,
};

pub(super) static POD_STATUS: Message = Message(&[
    field(1, "phase", Text),
    list(2, "conditions", Nested(&POD_CONDITION)),
    field(3, "message", Text),
    field(4, "reason", Text),
    field(5, "hostIP", Text),
    field(6, "podIP", Text),
    field(7, "startTime", Time),
    list(8, "containerStatuses", Nested(&CONTAINER_STATUS)),
    field(9, "qosClass", Text),
    list(10, "initContainerStatuses", Nested(&CONTAINER_STATUS)),
    field(11, "nominatedNodeName", Text),
    list(12, "podIPs", Nested(&POD_IP)),
    list(13, "ephemeralContainerStatuses", Nested(&CONTAINER_STATUS)),
    field(14, "resize", Text),
    list(15, "resourceClaimStatuses", Nested(&POD_RESOURCE_CLAIM_STATUS)),
    list(16, "hostIPs", Nested(&HOST_IP)),
    field(17, "observedGeneration", Int64),
    map(19, "allocatedResources", Quantity),
    kept(20, "resources", Nested(&RESOURCE_REQUIREMENTS)),
]);

static POD_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    field(3, "lastProbeTime", Time),
    field(4, "lastTransitionTime", Time),
    field(5, "reason", Text),
    field(6, "message", Text),
    field(7, "observedGeneration", Int64),
]);

static HOST_IP: Message = Message(&[kept(1, "ip", Text)]);

static POD_IP: Message = Message(&[kept(1, "ip", Text)]);

static CONTAINER_STATUS: Message = Message(&[
    kept(1, "name", Text),
    field(2, "state", Nested(&CONTAINER_STATE)),
    field(3, "lastState", Nested(&CONTAINER_STATE)),
    kept(4, "ready", Bool),
    kept(5, "restartCount", Int32),
    kept(6, "image", Text),
    kept(7, "imageID", Text),
    field(8, "containerID", Text),
    kept(9, "started", Bool),
    map(10, "allocatedResources", Quantity),
    kept(11, "resources", Nested(&RESOURCE_REQUIREMENTS)),
    list(12, "volumeMounts", Nested(&VOLUME_MOUNT_STATUS)),
    kept(13, "user", Nested(&CONTAINER_USER)),
    list(14, "allocatedResourcesStatus", Nested(&RESOURCE_STATUS)),
    kept(15, "stopSignal", Text),
]);

static CONTAINER_STATE: Message = Message(&[
    kept(1, "waiting", Nested(&CONTAINER_STATE_WAITING)),
    kept(2, "running", Nested(&CONTAINER_STATE_RUNNING)),
    kept(3, "terminated", Nested(&CONTAINER_STATE_TERMINATED)),
]);

static CONTAINER_STATE_WAITING: Message =
    Message(&[field(1, "reason", Text), field(2, "message", Text)]);

static CONTAINER_STATE_RUNNING: Message = Message(&[field(1, "startedAt", Time)]);

static CONTAINER_STATE_TERMINATED: Message = Message(&[
    kept(1, "exitCode", Int32),
    field(2, "signal", Int32),
    field(3, "reason", Text),
    field(4, "message", Text),
    field(5, "startedAt", Time),
    field(6, "finishedAt", Time),
    field(7, "containerID", Text),
]);

static VOLUME_MOUNT_STATUS: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "mountPath", Text),
    field(3, "readOnly", Bool),
    kept(4, "recursiveReadOnly", Text),
]);

static CONTAINER_USER: Message = Message(&[kept(1, "linux", Nested(&LINUX_CONTAINER_USER))]);

static LINUX_CONTAINER_USER: Message =
    Message(&[kept(1, "uid", Int64), kept(2, "gid", Int64), list(3, "supplementalGroups", Int64)]);

static RESOURCE_STATUS: Message =
    Message(&[kept(1, "name", Text), list(2, "resources", Nested(&RESOURCE_HEALTH))]);

static RESOURCE_HEALTH: Message =
    Message(&[kept(1, "resourceID", Text), field(2, "health", Text), kept(6, "message", Text)]);

static POD_RESOURCE_CLAIM_STATUS: Message =
    Message(&[kept(1, "name", Text), kept(2, "resourceClaimName", Text)]);
