//! Where pods want to run.

use super::meta::LABEL_SELECTOR;
use crate::protobuf::table::{
    Message,
    Type::{Int32, Int64, Message as Nested, Text},
    field, kept, list,
};

pub(super) static AFFINITY: Message = Message(&[
    kept(1, "nodeAffinity", Nested(&NODE_AFFINITY)),
    kept(2, "podAffinity", Nested(&POD_AFFINITY)),
    kept(3, "podAntiAffinity", Nested(&POD_ANTI_AFFINITY)),
]);

static NODE_AFFINITY: Message = Message(&[
    kept(1, "requiredDuringSchedulingIgnoredDuringExecution", Nested(&NODE_SELECTOR)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Nested(&PREFERRED_SCHEDULING_TERM)),
]);

static NODE_SELECTOR: Message =
    Message(&[list(1, "nodeSelectorTerms", Nested(&NODE_SELECTOR_TERM))]);

static NODE_SELECTOR_TERM: Message = Message(&[
    list(1, "matchExpressions", Nested(&NODE_SELECTOR_REQUIREMENT)),
    list(2, "matchFields", Nested(&NODE_SELECTOR_REQUIREMENT)),
]);

static NODE_SELECTOR_REQUIREMENT: Message =
    Message(&[kept(1, "key", Text), kept(2, "operator", Text), list(3, "values", Text)]);

static PREFERRED_SCHEDULING_TERM: Message =
    Message(&[kept(1, "weight", Int32), field(2, "preference", Nested(&NODE_SELECTOR_TERM))]);

static POD_AFFINITY: Message = Message(&[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Nested(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Nested(&WEIGHTED_POD_AFFINITY_TERM)),
]);

static POD_AFFINITY_TERM: Message = Message(&[
    kept(1, "labelSelector", Nested(&LABEL_SELECTOR)),
    list(2, "namespaces", Text),
    kept(3, "topologyKey", Text),
    kept(4, "namespaceSelector", Nested(&LABEL_SELECTOR)),
    list(5, "matchLabelKeys", Text),
    list(6, "mismatchLabelKeys", Text),
]);

static WEIGHTED_POD_AFFINITY_TERM: Message =
    Message(&[kept(1, "weight", Int32), field(2, "podAffinityTerm", Nested(&POD_AFFINITY_TERM))]);

static POD_ANTI_AFFINITY: Message = Message(&[
    list(1, "requiredDuringSchedulingIgnoredDuringExecution", Nested(&POD_AFFINITY_TERM)),
    list(2, "preferredDuringSchedulingIgnoredDuringExecution", Nested(&WEIGHTED_POD_AFFINITY_TERM)),
]);

pub(super) static TOLERATION: Message = Message(&[
    field(1, "key", Text),
    field(2, "operator", Text),
    field(3, "value", Text),
    field(4, "effect", Text),
    kept(5, "tolerationSeconds", Int64),
]);

pub(super) static TOPOLOGY_SPREAD_CONSTRAINT: Message = Message(&[
    kept(1, "maxSkew", Int32),
    kept(2, "topologyKey", Text),
    kept(3, "whenUnsatisfiable", Text),
    kept(4, "labelSelector", Nested(&LABEL_SELECTOR)),
    kept(5, "minDomains", Int32),
    kept(6, "nodeAffinityPolicy", Text),
    kept(7, "nodeTaintsPolicy", Text),
    list(8, "matchLabelKeys", Text),
]);
