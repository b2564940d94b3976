//! Messages of `certificates_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bytes, Int32, Message as Nested, Text, Texts, Time}, field, kept, list, map};

pub(crate) static CERTIFICATE_SIGNING_REQUEST: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&CERTIFICATE_SIGNING_REQUEST_SPEC)),
    field(3, "status", Nested(&CERTIFICATE_SIGNING_REQUEST_STATUS)),
]);

pub(crate) static CERTIFICATE_SIGNING_REQUEST_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    field(2, "reason", Text),
    field(3, "message", Text),
    field(4, "lastUpdateTime", Time),
    field(5, "lastTransitionTime", Time),
    kept(6, "status", Text),
]);

pub(crate) static CERTIFICATE_SIGNING_REQUEST_SPEC: Message = Message(&[
    kept(1, "request", Bytes),
    field(2, "username", Text),
    field(3, "uid", Text),
    list(4, "groups", Text),
    list(5, "usages", Text),
    map(6, "extra", Texts),
    kept(7, "signerName", Text),
    kept(8, "expirationSeconds", Int32),
]);

pub(crate) static CERTIFICATE_SIGNING_REQUEST_STATUS: Message = Message(&[
    list(1, "conditions", Nested(&CERTIFICATE_SIGNING_REQUEST_CONDITION)),
    field(2, "certificate", Bytes),
]);
