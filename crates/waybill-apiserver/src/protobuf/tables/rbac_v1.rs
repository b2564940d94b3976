//! Messages of `rbac_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Message as Nested, Text}, field, kept, list};

pub(crate) static AGGREGATION_RULE: Message = Message(&[
    list(1, "clusterRoleSelectors", Nested(&super::meta_v1::LABEL_SELECTOR)),
]);

pub(crate) static CLUSTER_ROLE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "rules", Nested(&POLICY_RULE)),
    kept(3, "aggregationRule", Nested(&AGGREGATION_RULE)),
]);

pub(crate) static CLUSTER_ROLE_BINDING: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "subjects", Nested(&SUBJECT)),
    field(3, "roleRef", Nested(&ROLE_REF)),
]);

pub(crate) static POLICY_RULE: Message = Message(&[
    list(1, "verbs", Text),
    list(2, "apiGroups", Text),
    list(3, "resources", Text),
    list(4, "resourceNames", Text),
    list(5, "nonResourceURLs", Text),
]);

pub(crate) static ROLE: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "rules", Nested(&POLICY_RULE)),
]);

pub(crate) static ROLE_BINDING: Message = Message(&[
    field(1, "metadata", Nested(&super::meta_v1::OBJECT_META)),
    list(2, "subjects", Nested(&SUBJECT)),
    field(3, "roleRef", Nested(&ROLE_REF)),
]);

pub(crate) static ROLE_REF: Message = Message(&[
    kept(1, "apiGroup", Text),
    kept(2, "kind", Text),
    kept(3, "name", Text),
]);

pub(crate) static SUBJECT: Message = Message(&[
    kept(1, "kind", Text),
    field(2, "apiGroup", Text),
    kept(3, "name", Text),
    field(4, "namespace", Text),
]);
