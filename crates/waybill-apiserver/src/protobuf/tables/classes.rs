//! Classes that pods name: `scheduling.k8s.io/v1` and `node.k8s.io/v1`.

use super::{affinity::TOLERATION, meta::OBJECT_META};
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, Message as Nested, Quantity, Text},
    field, kept, list, map,
};

pub(in crate::protobuf) static PRIORITY_CLASS: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    kept(2, "value", Int32),
    field(3, "globalDefault", Bool),
    field(4, "description", Text),
    kept(5, "preemptionPolicy", Text),
]);

pub(in crate::protobuf) static RUNTIME_CLASS: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    kept(2, "handler", Text),
    kept(3, "overhead", Nested(&OVERHEAD)),
    kept(4, "scheduling", Nested(&SCHEDULING)),
]);

static OVERHEAD: Message = Message(&[map(1, "podFixed", Quantity)]);

static SCHEDULING: Message =
    Message(&[map(1, "nodeSelector", Text), list(2, "tolerations", Nested(&TOLERATION))]);
