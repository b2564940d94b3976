//! Messages of `coordination_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Int32, Message as Nested, MicroTime, Text}, field, kept};

pub(crate) static LEASE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&LEASE_SPEC)),
]);

pub(crate) static LEASE_SPEC: Message = Message(&[
    kept(1, "holderIdentity", Text),
    kept(2, "leaseDurationSeconds", Int32),
    field(3, "acquireTime", MicroTime),
    field(4, "renewTime", MicroTime),
    kept(5, "leaseTransitions", Int32),
    kept(6, "strategy", Text),
    kept(7, "preferredHolder", Text),
]);
