//! Messages of `meta_v1`. Written by `cargo xtask gen` from k8s-pb 0.9.0; do not edit.

use crate::protobuf::table::{Message, Type::{Bool, Int32, Int64, Json, Message as Nested, Text, Time}, field, kept, list, map};

pub(crate) static CONDITION: Message = Message(&[
    kept(1, "type", Text),
    kept(2, "status", Text),
    field(3, "observedGeneration", Int64),
    field(4, "lastTransitionTime", Time),
    kept(5, "reason", Text),
    kept(6, "message", Text),
]);

pub(crate) static DELETE_OPTIONS: Message = Message(&[
    kept(1, "gracePeriodSeconds", Int64),
    kept(2, "preconditions", Nested(&PRECONDITIONS)),
    kept(3, "orphanDependents", Bool),
    kept(4, "propagationPolicy", Text),
    list(5, "dryRun", Text),
    kept(6, "ignoreStoreReadErrorWithClusterBreakingPotential", Bool),
]);

pub(crate) static FIELD_SELECTOR_REQUIREMENT: Message = Message(&[
    kept(1, "key", Text),
    kept(2, "operator", Text),
    list(3, "values", Text),
]);

pub(crate) static LABEL_SELECTOR: Message = Message(&[
    map(1, "matchLabels", Text),
    list(2, "matchExpressions", Nested(&LABEL_SELECTOR_REQUIREMENT)),
]);

pub(crate) static LABEL_SELECTOR_REQUIREMENT: Message = Message(&[
    kept(1, "key", Text),
    kept(2, "operator", Text),
    list(3, "values", Text),
]);

pub(crate) static LIST_META: Message = Message(&[
    field(1, "selfLink", Text),
    field(2, "resourceVersion", Text),
    field(3, "continue", Text),
    kept(4, "remainingItemCount", Int64),
]);

pub(crate) static MANAGED_FIELDS_ENTRY: Message = Message(&[
    field(1, "manager", Text),
    field(2, "operation", Text),
    field(3, "apiVersion", Text),
    field(4, "time", Time),
    field(6, "fieldsType", Text),
    field(7, "fieldsV1", Json),
    field(8, "subresource", Text),
]);

pub(crate) static OBJECT_META: Message = Message(&[
    field(1, "name", Text),
    field(2, "generateName", Text),
    field(3, "namespace", Text),
    field(4, "selfLink", Text),
    field(5, "uid", Text),
    field(6, "resourceVersion", Text),
    field(7, "generation", Int64),
    field(8, "creationTimestamp", Time),
    field(9, "deletionTimestamp", Time),
    kept(10, "deletionGracePeriodSeconds", Int64),
    map(11, "labels", Text),
    map(12, "annotations", Text),
    list(13, "ownerReferences", Nested(&OWNER_REFERENCE)),
    list(14, "finalizers", Text),
    list(17, "managedFields", Nested(&MANAGED_FIELDS_ENTRY)),
]);

pub(crate) static OWNER_REFERENCE: Message = Message(&[
    kept(1, "kind", Text),
    kept(3, "name", Text),
    kept(4, "uid", Text),
    kept(5, "apiVersion", Text),
    kept(6, "controller", Bool),
    kept(7, "blockOwnerDeletion", Bool),
]);

pub(crate) static PARTIAL_OBJECT_METADATA: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
]);

pub(crate) static PRECONDITIONS: Message = Message(&[
    kept(1, "uid", Text),
    kept(2, "resourceVersion", Text),
]);

pub(crate) static STATUS: Message = Message(&[
    field(1, "metadata", Nested(&LIST_META)),
    field(2, "status", Text),
    field(3, "message", Text),
    field(4, "reason", Text),
    kept(5, "details", Nested(&STATUS_DETAILS)),
    field(6, "code", Int32),
]);

pub(crate) static STATUS_CAUSE: Message = Message(&[
    field(1, "reason", Text),
    field(2, "message", Text),
    field(3, "field", Text),
]);

pub(crate) static STATUS_DETAILS: Message = Message(&[
    field(1, "name", Text),
    field(2, "group", Text),
    field(3, "kind", Text),
    list(4, "causes", Nested(&STATUS_CAUSE)),
    field(5, "retryAfterSeconds", Int32),
    field(6, "uid", Text),
]);
