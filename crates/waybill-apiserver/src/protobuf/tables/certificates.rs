//! Requests for certificates: `certificates.k8s.io/v1`.

use super::meta::OBJECT_META;
use crate::protobuf::table::{
    Message,
    Type::{Bytes, Int32, Message as Nested, Text, Texts, Time},
    field, kept, list, map,
};

pub(in crate::protobuf) static CERTIFICATE_SIGNING_REQUEST: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&CERTIFICATE_SIGNING_REQUEST_SPEC)),
    field(3, "status", Nested(&CERTIFICATE_SIGNING_REQUEST_STATUS)),
]);

static CERTIFICATE_SIGNING_REQUEST_SPEC: Message = Message(&[
    kept(1, "request", Bytes),
    field(2, "username", Text),
    field(3, "uid", Text),
    list(4, "groups", Text),
    list(5, "usages", Text),
    map(6, "extra", Texts),
    kept(7, "signerName", Text),
    kept(8, "expirationSeconds", Int32),
]);

static CERTIFICATE_SIGNING_REQUEST_STATUS: Message = Message(&[
    list(1, "conditions", Nested(&CERTIFICATE_SIGNING_REQUEST_CONDITION)),
    field(2, "certificate", Bytes),
]);

static CERTIFICATE_SIGNING_REQUEST_CONDITION: Message = Message(&[
    kept(1, "type", Text),
    field(2, "reason", Text),
    field(3, "message", Text),
    field(4, "lastUpdateTime", Time),
    field(5, "lastTransitionTime", Time),
    kept(6, "status", Text),
]);
