//! Services and their endpoints: `v1` and `discovery.k8s.io/v1`.

use super::{
    meta::{CONDITION, OBJECT_META},
    objects::OBJECT_REFERENCE,
};
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, IntOrString, Message as Nested, Text},
    field, kept, list, map,
};

pub(in crate::protobuf) static SERVICE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&SERVICE_SPEC)),
    field(3, "status", Nested(&SERVICE_STATUS)),
]);

pub(in crate::protobuf) static ENDPOINTS: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    list(2, "subsets", Nested(&ENDPOINT_SUBSET)),
]);

static SERVICE_SPEC: Message = Message(&[
    list(1, "ports", Nested(&SERVICE_PORT)),
    map(2, "selector", Text),
    field(3, "clusterIP", Text),
    field(4, "type", Text),
    list(5, "externalIPs", Text),
    field(7, "sessionAffinity", Text),
    field(8, "loadBalancerIP", Text),
    list(9, "loadBalancerSourceRanges", Text),
    field(10, "externalName", Text),
    field(11, "externalTrafficPolicy", Text),
    field(12, "healthCheckNodePort", Int32),
    field(13, "publishNotReadyAddresses", Bool),
    kept(14, "sessionAffinityConfig", Nested(&SESSION_AFFINITY_CONFIG)),
    kept(17, "ipFamilyPolicy", Text),
    list(18, "clusterIPs", Text),
    list(19, "ipFamilies", Text),
    kept(20, "allocateLoadBalancerNodePorts", Bool),
    kept(21, "loadBalancerClass", Text),
    kept(22, "internalTrafficPolicy", Text),
    kept(23, "trafficDistribution", Text),
]);

static SERVICE_STATUS: Message = Message(&[
    field(1, "loadBalancer", Nested(&LOAD_BALANCER_STATUS)),
    list(2, "conditions", Nested(&CONDITION)),
]);

static ENDPOINT_SUBSET: Message = Message(&[
    list(1, "addresses", Nested(&ENDPOINT_ADDRESS)),
    list(2, "notReadyAddresses", Nested(&ENDPOINT_ADDRESS)),
    list(3, "ports", Nested(&ENDPOINT_PORT)),
]);

static SERVICE_PORT: Message = Message(&[
    field(1, "name", Text),
    field(2, "protocol", Text),
    kept(3, "port", Int32),
    field(4, "targetPort", IntOrString),
    field(5, "nodePort", Int32),
    kept(6, "appProtocol", Text),
]);

static SESSION_AFFINITY_CONFIG: Message =
    Message(&[kept(1, "clientIP", Nested(&CLIENT_IP_CONFIG))]);

static LOAD_BALANCER_STATUS: Message =
    Message(&[list(1, "ingress", Nested(&LOAD_BALANCER_INGRESS))]);

static ENDPOINT_ADDRESS: Message = Message(&[
    kept(1, "ip", Text),
    kept(2, "targetRef", Nested(&OBJECT_REFERENCE)),
    field(3, "hostname", Text),
    kept(4, "nodeName", Text),
]);

static ENDPOINT_PORT: Message = Message(&[
    field(1, "name", Text),
    kept(2, "port", Int32),
    field(3, "protocol", Text),
    kept(4, "appProtocol", Text),
]);

static CLIENT_IP_CONFIG: Message = Message(&[kept(1, "timeoutSeconds", Int32)]);

static LOAD_BALANCER_INGRESS: Message = Message(&[
    field(1, "ip", Text),
    field(2, "hostname", Text),
    kept(3, "ipMode", Text),
    list(4, "ports", Nested(&PORT_STATUS)),
]);

static PORT_STATUS: Message =
    Message(&[kept(1, "port", Int32), kept(2, "protocol", Text), kept(3, "error", Text)]);

pub(in crate::protobuf) static ENDPOINT_SLICE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    list(2, "endpoints", Nested(&ENDPOINT)),
    list(3, "ports", Nested(&SLICE_PORT)),
    kept(4, "addressType", Text),
]);

static ENDPOINT: Message = Message(&[
    list(1, "addresses", Text),
    field(2, "conditions", Nested(&ENDPOINT_CONDITIONS)),
    kept(3, "hostname", Text),
    kept(4, "targetRef", Nested(&OBJECT_REFERENCE)),
    map(5, "deprecatedTopology", Text),
    kept(6, "nodeName", Text),
    kept(7, "zone", Text),
    kept(8, "hints", Nested(&ENDPOINT_HINTS)),
]);

static SLICE_PORT: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "protocol", Text),
    kept(3, "port", Int32),
    kept(4, "appProtocol", Text),
]);

static ENDPOINT_CONDITIONS: Message =
    Message(&[kept(1, "ready", Bool), kept(2, "serving", Bool), kept(3, "terminating", Bool)]);

static ENDPOINT_HINTS: Message =
    Message(&[list(1, "forZones", Nested(&FOR_ZONE)), list(2, "forNodes", Nested(&FOR_NODE))]);

static FOR_ZONE: Message = Message(&[kept(1, "name", Text)]);

static FOR_NODE: Message = Message(&[kept(1, "name", Text)]);
