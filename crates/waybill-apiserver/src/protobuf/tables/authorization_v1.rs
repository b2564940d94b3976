//! Messages of `authorization_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bool, Message as Nested, Text, Texts}, field, kept, list, map};

pub(crate) static FIELD_SELECTOR_ATTRIBUTES: Message = Message(&[
    field(1, "rawSelector", Text),
    list(2, "requirements", Nested(&super::meta_v1::FIELD_SELECTOR_REQUIREMENT)),
]);

pub(crate) static LABEL_SELECTOR_ATTRIBUTES: Message = Message(&[
    field(1, "rawSelector", Text),
    list(2, "requirements", Nested(&super::meta_v1::LABEL_SELECTOR_REQUIREMENT)),
]);

pub(crate) static LOCAL_SUBJECT_ACCESS_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&SUBJECT_ACCESS_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
]);

pub(crate) static NON_RESOURCE_ATTRIBUTES: Message = Message(&[
    field(1, "path", Text),
    field(2, "verb", Text),
]);

pub(crate) static NON_RESOURCE_RULE: Message = Message(&[
    list(1, "verbs", Text),
    list(2, "nonResourceURLs", Text),
]);

pub(crate) static RESOURCE_ATTRIBUTES: Message = Message(&[
    field(1, "namespace", Text),
    field(2, "verb", Text),
    field(3, "group", Text),
    field(4, "version", Text),
    field(5, "resource", Text),
    field(6, "subresource", Text),
    field(7, "name", Text),
    kept(8, "fieldSelector", Nested(&FIELD_SELECTOR_ATTRIBUTES)),
    kept(9, "labelSelector", Nested(&LABEL_SELECTOR_ATTRIBUTES)),
]);

pub(crate) static RESOURCE_RULE: Message = Message(&[
    list(1, "verbs", Text),
    list(2, "apiGroups", Text),
    list(3, "resources", Text),
    list(4, "resourceNames", Text),
]);

pub(crate) static SELF_SUBJECT_ACCESS_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&SELF_SUBJECT_ACCESS_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
]);

pub(crate) static SELF_SUBJECT_ACCESS_REVIEW_SPEC: Message = Message(&[
    kept(1, "resourceAttributes", Nested(&RESOURCE_ATTRIBUTES)),
    kept(2, "nonResourceAttributes", Nested(&NON_RESOURCE_ATTRIBUTES)),
]);

pub(crate) static SELF_SUBJECT_RULES_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&SELF_SUBJECT_RULES_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_RULES_REVIEW_STATUS)),
]);

pub(crate) static SELF_SUBJECT_RULES_REVIEW_SPEC: Message = Message(&[
    field(1, "namespace", Text),
]);

pub(crate) static SUBJECT_ACCESS_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    field(2, "spec", Nested(&SUBJECT_ACCESS_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
]);

pub(crate) static SUBJECT_ACCESS_REVIEW_SPEC: Message = Message(&[
    kept(1, "resourceAttributes", Nested(&RESOURCE_ATTRIBUTES)),
    kept(2, "nonResourceAttributes", Nested(&NON_RESOURCE_ATTRIBUTES)),
    field(3, "user", Text),
    list(4, "groups", Text),
    map(5, "extra", Texts),
    field(6, "uid", Text),
]);

pub(crate) static SUBJECT_ACCESS_REVIEW_STATUS: Message = Message(&[
    kept(1, "allowed", Bool),
    field(2, "reason", Text),
    field(3, "evaluationError", Text),
    field(4, "denied", Bool),
]);

pub(crate) static SUBJECT_RULES_REVIEW_STATUS: Message = Message(&[
    list(1, "resourceRules", Nested(&RESOURCE_RULE)),
    list(2, "nonResourceRules", Nested(&NON_RESOURCE_RULE)),
    kept(3, "incomplete", Bool),
    field(4, "evaluationError", Text),
]);
