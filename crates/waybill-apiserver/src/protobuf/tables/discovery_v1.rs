//! Messages of `discovery_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bool, Int32, Message as Nested, Text}, field, kept, list, map};

pub(crate) static ENDPOINT: Message = Message(&[
    list(1, "addresses", Text),
    field(2, "conditions", Nested(&ENDPOINT_CONDITIONS)),
    kept(3, "hostname", Text),
    kept(4, "targetRef", Nested(&super::core_v1::OBJECT_REFERENCE)),
    map(5, "deprecatedTopology", Text),
    kept(6, "nodeName", Text),
    kept(7, "zone", Text),
    kept(8, "hints", Nested(&ENDPOINT_HINTS)),
]);

pub(crate) static ENDPOINT_CONDITIONS: Message = Message(&[
    kept(1, "ready", Bool),
    kept(2, "serving", Bool),
    kept(3, "terminating", Bool),
]);

pub(crate) static ENDPOINT_HINTS: Message = Message(&[
    list(1, "forZones", Nested(&FOR_ZONE)),
    list(2, "forNodes", Nested(&FOR_NODE)),
]);

pub(crate) static ENDPOINT_PORT: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "protocol", Text),
    kept(3, "port", Int32),
    kept(4, "appProtocol", Text),
]);

pub(crate) static ENDPOINT_SLICE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "endpoints", Nested(&ENDPOINT)),
    list(3, "ports", Nested(&ENDPOINT_PORT)),
    kept(4, "addressType", Text),
]);

pub(crate) static FOR_NODE: Message = Message(&[
    kept(1, "name", Text),
]);

pub(crate) static FOR_ZONE: Message = Message(&[
    kept(1, "name", Text),
]);
