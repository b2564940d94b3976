//! What somebody may do: `authorization.k8s.io/v1`.

use super::meta::{FIELD_SELECTOR_REQUIREMENT, LABEL_SELECTOR_REQUIREMENT, OBJECT_META};
use crate::protobuf::table::{
    Message,
    Type::{Bool, Message as Nested, Text, Texts},
    field, kept, list, map,
};

pub(in crate::protobuf) static SELF_SUBJECT_ACCESS_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&SELF_SUBJECT_ACCESS_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
]);

static SELF_SUBJECT_ACCESS_REVIEW_SPEC: Message = Message(&[
    kept(1, "resourceAttributes", Nested(&RESOURCE_ATTRIBUTES)),
    kept(2, "nonResourceAttributes", Nested(&NON_RESOURCE_ATTRIBUTES)),
]);

static RESOURCE_ATTRIBUTES: Message = Message(&[
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

static FIELD_SELECTOR_ATTRIBUTES: Message = Message(&[
    field(1, "rawSelector", Text),
    list(2, "requirements", Nested(&FIELD_SELECTOR_REQUIREMENT)),
]);

static LABEL_SELECTOR_ATTRIBUTES: Message = Message(&[
    field(1, "rawSelector", Text),
    list(2, "requirements", Nested(&LABEL_SELECTOR_REQUIREMENT)),
]);

static NON_RESOURCE_ATTRIBUTES: Message =
    Message(&[field(1, "path", Text), field(2, "verb", Text)]);

static SUBJECT_ACCESS_REVIEW_STATUS: Message = Message(&[
    kept(1, "allowed", Bool),
    field(2, "reason", Text),
    field(3, "evaluationError", Text),
    field(4, "denied", Bool),
]);

pub(in crate::protobuf) static SUBJECT_ACCESS_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&SUBJECT_ACCESS_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
]);

static SUBJECT_ACCESS_REVIEW_SPEC: Message = Message(&[
    kept(1, "resourceAttributes", Nested(&RESOURCE_ATTRIBUTES)),
    kept(2, "nonResourceAttributes", Nested(&NON_RESOURCE_ATTRIBUTES)),
    field(3, "user", Text),
    list(4, "groups", Text),
    map(5, "extra", Texts),
    field(6, "uid", Text),
]);

pub(in crate::protobuf) static LOCAL_SUBJECT_ACCESS_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&SUBJECT_ACCESS_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_ACCESS_REVIEW_STATUS)),
]);

pub(in crate::protobuf) static SELF_SUBJECT_RULES_REVIEW: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&SELF_SUBJECT_RULES_REVIEW_SPEC)),
    field(3, "status", Nested(&SUBJECT_RULES_REVIEW_STATUS)),
]);

static SELF_SUBJECT_RULES_REVIEW_SPEC: Message = Message(&[field(1, "namespace", Text)]);

static SUBJECT_RULES_REVIEW_STATUS: Message = Message(&[
    list(1, "resourceRules", Nested(&RESOURCE_RULE)),
    list(2, "nonResourceRules", Nested(&NON_RESOURCE_RULE)),
    kept(3, "incomplete", Bool),
    field(4, "evaluationError", Text),
]);

static RESOURCE_RULE: Message = Message(&[
    list(1, "verbs", Text),
    list(2, "apiGroups", Text),
    list(3, "resources", Text),
    list(4, "resourceNames", Text),
]);

static NON_RESOURCE_RULE: Message =
    Message(&[list(1, "verbs", Text), list(2, "nonResourceURLs", Text)]);
