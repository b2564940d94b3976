//! Events of `events.k8s.io/v1`.

use super::{core_event::EVENT_SOURCE, meta::OBJECT_META, objects::OBJECT_REFERENCE};
use crate::protobuf::table::{
    Message,
    Type::{Int32, Message as Nested, MicroTime, Text, Time},
    field, kept,
};

pub(in crate::protobuf) static EVENT: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "eventTime", MicroTime),
    kept(3, "series", Nested(&EVENT_SERIES)),
    field(4, "reportingController", Text),
    field(5, "reportingInstance", Text),
    field(6, "action", Text),
    field(7, "reason", Text),
    field(8, "regarding", Nested(&OBJECT_REFERENCE)),
    kept(9, "related", Nested(&OBJECT_REFERENCE)),
    field(10, "note", Text),
    field(11, "type", Text),
    field(12, "deprecatedSource", Nested(&EVENT_SOURCE)),
    field(13, "deprecatedFirstTimestamp", Time),
    field(14, "deprecatedLastTimestamp", Time),
    field(15, "deprecatedCount", Int32),
]);

static EVENT_SERIES: Message =
    Message(&[kept(1, "count", Int32), field(2, "lastObservedTime", MicroTime)]);
