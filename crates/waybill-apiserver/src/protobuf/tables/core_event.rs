//! Events of the core group.

use super::{meta::OBJECT_META, objects::OBJECT_REFERENCE};
use crate::protobuf::table::{
    Message,
    Type::{Int32, Message as Nested, MicroTime, Text, Time},
    field, kept,
};

pub(in crate::protobuf) static EVENT: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "involvedObject", Nested(&OBJECT_REFERENCE)),
    field(3, "reason", Text),
    field(4, "message", Text),
    field(5, "source", Nested(&EVENT_SOURCE)),
    field(6, "firstTimestamp", Time),
    field(7, "lastTimestamp", Time),
    field(8, "count", Int32),
    field(9, "type", Text),
    field(10, "eventTime", MicroTime),
    kept(11, "series", Nested(&EVENT_SERIES)),
    field(12, "action", Text),
    kept(13, "related", Nested(&OBJECT_REFERENCE)),
    kept(14, "reportingComponent", Text),
    kept(15, "reportingInstance", Text),
]);

pub(super) static EVENT_SOURCE: Message =
    Message(&[field(1, "component", Text), field(2, "host", Text)]);

static EVENT_SERIES: Message =
    Message(&[field(1, "count", Int32), field(2, "lastObservedTime", MicroTime)]);
