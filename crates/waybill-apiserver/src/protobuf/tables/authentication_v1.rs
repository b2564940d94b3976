//! Messages of `authentication_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bool, Int64, Message as Nested, Text, Texts, Time}, field, kept, list, map};

pub(crate) static BOUND_OBJECT_REFERENCE: Message = Message(&[
    field(1, "kind", Text),
    field(2, "apiVersion", Text),
    field(3, "name", Text),
    field(4, "uid", Text),
]);

pub(crate) static SELF_SUBJECT_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "status", Nested(&SELF_SUBJECT_REVIEW_STATUS)),
]);

pub(crate) static SELF_SUBJECT_REVIEW_STATUS: Message = Message(&[
    field(1, "userInfo", Nested(&USER_INFO)),
]);

pub(crate) static TOKEN_REQUEST: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&TOKEN_REQUEST_SPEC)),
    field(3, "status", Nested(&TOKEN_REQUEST_STATUS)),
]);

pub(crate) static TOKEN_REQUEST_SPEC: Message = Message(&[
    list(1, "audiences", Text),
    kept(3, "boundObjectRef", Nested(&BOUND_OBJECT_REFERENCE)),
    kept(4, "expirationSeconds", Int64),
]);

pub(crate) static TOKEN_REQUEST_STATUS: Message = Message(&[
    kept(1, "token", Text),
    field(2, "expirationTimestamp", Time),
]);

pub(crate) static TOKEN_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&TOKEN_REVIEW_SPEC)),
    field(3, "status", Nested(&TOKEN_REVIEW_STATUS)),
]);

pub(crate) static TOKEN_REVIEW_SPEC: Message = Message(&[
    field(1, "token", Text),
    list(2, "audiences", Text),
]);

pub(crate) static TOKEN_REVIEW_STATUS: Message = Message(&[
    field(1, "authenticated", Bool),
    field(2, "user", Nested(&USER_INFO)),
    field(3, "error", Text),
    list(4, "audiences", Text),
]);

pub(crate) static USER_INFO: Message = Message(&[
    field(1, "username", Text),
    field(2, "uid", Text),
    list(3, "groups", Text),
    map(4, "extra", Texts),
]);
