//! What strategic merge patch knows about the types of the API: which lists are merged, and by what.
//!
//! A list that stands nowhere here is atomic: a patch replaces it. The strategies are those of
//! upstream's Go types and not its `x-kubernetes-list-type`, which speak about server-side apply
//! and differ. Clients compute their patches by the same strategies, so a row more is as wrong as a
//! row less: `kubectl taint` removes a taint by sending the whole list.

use self::Rule::{Keyed, Object, Set};

/// The fields of a type that a patch treats in a way of their own.
pub(crate) type Fields = &'static [(&'static str, Rule)];

/// How a patch treats a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// An object, with rules for its fields.
    Object(Fields),
    /// A list of objects, merged by the value of the named field.
    Keyed(&'static str, Fields),
    /// A list of scalars, merged as a set.
    Set,
}

/// The rule for the field `name`, if it has one.
pub(super) fn rule_of(fields: Fields, name: &str) -> Option<Rule> {
    fields.iter().find(|(field, _)| *field == name).map(|&(_, rule)| rule)
}

/// A type that has metadata and atomic lists only: ConfigMap, Secret, Event, Lease, Role, and so on.
pub(crate) const ANY: Fields = &[("metadata", Object(METADATA))];

pub(crate) const METADATA: Fields =
    &[("finalizers", Set), ("ownerReferences", Keyed("uid", PLAIN))];

pub(crate) const NAMESPACE: Fields =
    &[("metadata", Object(METADATA)), ("status", Object(CONDITIONS))];

pub(crate) const NODE: Fields = &[
    ("metadata", Object(METADATA)),
    ("spec", Object(&[("podCIDRs", Set)])),
    (
        "status",
        Object(&[("addresses", Keyed("type", PLAIN)), ("conditions", Keyed("type", PLAIN))]),
    ),
];

pub(crate) const POD: Fields =
    &[("metadata", Object(METADATA)), ("spec", Object(POD_SPEC)), ("status", Object(POD_STATUS))];

pub(crate) const POD_TEMPLATE: Fields = &[
    ("metadata", Object(METADATA)),
    ("template", Object(&[("metadata", Object(METADATA)), ("spec", Object(POD_SPEC))])),
];

/// Its `imagePullSecrets` are atomic, other than those of a pod.
pub(crate) const SERVICE_ACCOUNT: Fields =
    &[("metadata", Object(METADATA)), ("secrets", Keyed("name", PLAIN))];

const POD_SPEC: Fields = &[
    ("containers", Keyed("name", CONTAINER)),
    ("ephemeralContainers", Keyed("name", CONTAINER)),
    ("hostAliases", Keyed("ip", PLAIN)),
    ("imagePullSecrets", Keyed("name", PLAIN)),
    ("initContainers", Keyed("name", CONTAINER)),
    ("resourceClaims", Keyed("name", PLAIN)),
    ("schedulingGates", Keyed("name", PLAIN)),
    ("topologySpreadConstraints", Keyed("topologyKey", PLAIN)),
    ("volumes", Keyed("name", PLAIN)),
];

const POD_STATUS: Fields = &[
    ("conditions", Keyed("type", PLAIN)),
    ("hostIPs", Keyed("ip", PLAIN)),
    ("podIPs", Keyed("ip", PLAIN)),
    ("resourceClaimStatuses", Keyed("name", PLAIN)),
];

const CONTAINER: Fields = &[
    ("env", Keyed("name", PLAIN)),
    ("ports", Keyed("containerPort", PLAIN)),
    ("volumeDevices", Keyed("devicePath", PLAIN)),
    ("volumeMounts", Keyed("mountPath", PLAIN)),
];

pub(crate) const CONDITIONS: Fields = &[("conditions", Keyed("type", PLAIN))];

/// A type whose lists are all atomic.
pub(crate) const PLAIN: Fields = &[];
