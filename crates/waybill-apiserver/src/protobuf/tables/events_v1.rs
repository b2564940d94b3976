//! Messages of `events_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Int32, Message as Nested, MicroTime, Text, Time}, field, kept};

pub(crate) static EVENT: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "eventTime", MicroTime),
    kept(3, "series", Nested(&EVENT_SERIES)),
    field(4, "reportingController", Text),
    field(5, "reportingInstance", Text),
    field(6, "action", Text),
    field(7, "reason", Text),
    field(8, "regarding", Nested(&super::core_v1::OBJECT_REFERENCE)),
    kept(9, "related", Nested(&super::core_v1::OBJECT_REFERENCE)),
    field(10, "note", Text),
    field(11, "type", Text),
    field(12, "deprecatedSource", Nested(&super::core_v1::EVENT_SOURCE)),
    field(13, "deprecatedFirstTimestamp", Time),
    field(14, "deprecatedLastTimestamp", Time),
    field(15, "deprecatedCount", Int32),
]);

pub(crate) static EVENT_SERIES: Message = Message(&[
    kept(1, "count", Int32),
    field(2, "lastObservedTime", MicroTime),
]);
