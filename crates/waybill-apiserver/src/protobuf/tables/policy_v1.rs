//! Messages of `policy_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Message as Nested}, field, kept};

pub(crate) static EVICTION: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    kept(2, "deleteOptions", Nested(&super::meta_v1::DELETE_OPTIONS)),
]);
