//! Nodes.

use super::meta::OBJECT_META;
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, Int64, Message as Nested, Quantity, Text, Time},
    field, kept, list, map,
};

pub(in crate::protobuf) static NODE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&NODE_SPEC)),
    field(3, "status", Nested(&NODE_STATUS)),
]);

static NODE_SPEC: Message = Message(&[
    field(1, "podCIDR", Text),
    field(2, "externalID", Text),
    field(3, "providerID", Text),
    field(4, "unschedulable", Bool),
    list(5, "taints", Nested(&TAINT)),
    kept(6, "configSource", Nested(&NODE_CONFIG_SOURCE)),
    list(7, "podCIDRs", Text),
]);

static TAINT: Message = Message(&[
    kept(1, "key", Text),
    field(2, "value", Text),
    kept(3, "effect", Text),
    field(4, "timeAdded", Time),
]);

static NODE_CONFIG_SOURCE: Message =
    Message(&[kept(2, "configMap", Nested(&CONFIG_MAP_NODE_CONFIG_SOURCE))]);

static CONFIG_MAP_NODE_CONFIG_SOURCE: Message = Message(&[
    kept(1, "namespace", Text),
    kept(2, "name", Text),
    field(3, "uid", Text),
    field(4, "resourceVersion", Text),
    kept(5, "kubeletConfigKey", Text),
]);

static NODE_STATUS: Message = Message(&[
    map(1, "capacity", Quantity),
    map(2, "allocatable", Quantity),
    field(3, "phase", Text),
    list(4, "conditions", Nested(&NODE_CONDITION)),
    list(5, "addresses", Nested(&NODE_ADDRESS)),
    field(6, "daemonEndpoints", Nested(&NODE_DAEMON_ENDPOINTS)),
    field(7, "nodeInfo", Nested(&NODE_SYSTEM_INFO)),
    list(8, "images", Nested(&CONTAINER_IMAGE)),
    list(9, "volumesInUse", Text),
    list(10, "volumesAttached", Nested(&ATTACHED_VOLUME)),
    kept(11, "config", Nested(&NODE_CONFIG_STATUS)),
    list(12, "runtimeHandlers", Nested(&NODE_RUNTIME_HANDLER)),
    kept(13, "features", Nested(&NODE_FEATURES)),
    list(14, "declaredFeatures", Text),
]);

static NODE_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    field(3, "lastHeartbeatTime", Time),
    field(4, "lastTransitionTime", Time),
    field(5, "reason", Text),
    field(6, "message", Text),
]);

static NODE_ADDRESS: Message = Message(&[kept(1, "type", Text), kept(2, "address", Text)]);

static NODE_DAEMON_ENDPOINTS: Message =
    Message(&[field(1, "kubeletEndpoint", Nested(&DAEMON_ENDPOINT))]);

static DAEMON_ENDPOINT: Message = Message(&[kept(1, "Port", Int32)]);

static NODE_SYSTEM_INFO: Message = Message(&[
    kept(1, "machineID", Text),
    kept(2, "systemUUID", Text),
    kept(3, "bootID", Text),
    kept(4, "kernelVersion", Text),
    kept(5, "osImage", Text),
    kept(6, "containerRuntimeVersion", Text),
    kept(7, "kubeletVersion", Text),
    kept(8, "kubeProxyVersion", Text),
    kept(9, "operatingSystem", Text),
    kept(10, "architecture", Text),
    kept(11, "swap", Nested(&NODE_SWAP_STATUS)),
]);

static CONTAINER_IMAGE: Message = Message(&[list(1, "names", Text), field(2, "sizeBytes", Int64)]);

static ATTACHED_VOLUME: Message = Message(&[kept(1, "name", Text), kept(2, "devicePath", Text)]);

static NODE_CONFIG_STATUS: Message = Message(&[
    kept(1, "assigned", Nested(&NODE_CONFIG_SOURCE)),
    kept(2, "active", Nested(&NODE_CONFIG_SOURCE)),
    kept(3, "lastKnownGood", Nested(&NODE_CONFIG_SOURCE)),
    field(4, "error", Text),
]);

static NODE_RUNTIME_HANDLER: Message =
    Message(&[kept(1, "name", Text), kept(2, "features", Nested(&NODE_RUNTIME_HANDLER_FEATURES))]);

static NODE_RUNTIME_HANDLER_FEATURES: Message =
    Message(&[kept(1, "recursiveReadOnlyMounts", Bool), kept(2, "userNamespaces", Bool)]);

static NODE_FEATURES: Message = Message(&[kept(1, "supplementalGroupsPolicy", Bool)]);

static NODE_SWAP_STATUS: Message = Message(&[kept(1, "capacity", Int64)]);
