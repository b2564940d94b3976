//! Roles and bindings: `rbac.authorization.k8s.io/v1`.

use super::meta::{LABEL_SELECTOR, OBJECT_META};
use crate::protobuf::table::{
    Message,
    Type::{Message as Nested, Text},
    field, kept, list,
};

pub(in crate::protobuf) static ROLE: Message =
    Message(&[field(1, "metadata", Nested(&OBJECT_META)), list(2, "rules", Nested(&POLICY_RULE))]);

static POLICY_RULE: Message = Message(&[
    list(1, "verbs", Text),
    list(2, "apiGroups", Text),
    list(3, "resources", Text),
    list(4, "resourceNames", Text),
    list(5, "nonResourceURLs", Text),
]);

pub(in crate::protobuf) static CLUSTER_ROLE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    list(2, "rules", Nested(&POLICY_RULE)),
    kept(3, "aggregationRule", Nested(&AGGREGATION_RULE)),
]);

static AGGREGATION_RULE: Message =
    Message(&[list(1, "clusterRoleSelectors", Nested(&LABEL_SELECTOR))]);

pub(in crate::protobuf) static ROLE_BINDING: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    list(2, "subjects", Nested(&SUBJECT)),
    field(3, "roleRef", Nested(&ROLE_REF)),
]);

static SUBJECT: Message = Message(&[
    kept(1, "kind", Text),
    field(2, "apiGroup", Text),
    kept(3, "name", Text),
    field(4, "namespace", Text),
]);

static ROLE_REF: Message =
    Message(&[kept(1, "apiGroup", Text), kept(2, "kind", Text), kept(3, "name", Text)]);

pub(in crate::protobuf) static CLUSTER_ROLE_BINDING: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    list(2, "subjects", Nested(&SUBJECT)),
    field(3, "roleRef", Nested(&ROLE_REF)),
]);
