//! Messages of `node_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Message as Nested, Quantity, Text}, field, kept, list, map};

pub(crate) static OVERHEAD: Message = Message(&[
    map(1, "podFixed", Quantity),
]);

pub(crate) static RUNTIME_CLASS: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    kept(2, "handler", Text),
    kept(3, "overhead", Nested(&OVERHEAD)),
    kept(4, "scheduling", Nested(&SCHEDULING)),
]);

pub(crate) static SCHEDULING: Message = Message(&[
    map(1, "nodeSelector", Text),
    list(2, "tolerations", Nested(&super::core_v1::TOLERATION)),
]);
