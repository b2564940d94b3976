//! Messages of `scheduling_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bool, Int32, Message as Nested, Text}, field, kept};

pub(crate) static PRIORITY_CLASS: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    kept(2, "value", Int32),
    field(3, "globalDefault", Bool),
    field(4, "description", Text),
    kept(5, "preemptionPolicy", Text),
]);
