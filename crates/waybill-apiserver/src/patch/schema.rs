//! What strategic merge patch knows about the types of the API: which lists are merged, and by what.
//!
//! They are written by `cargo xtask gen` (ADR 0058). A list that stands nowhere there is atomic: a patch replaces it. The strategies are those of
//! upstream's Go types and not its `x-kubernetes-list-type`, which speak about server-side apply
//! and differ. Clients compute their patches by the same strategies, so a row more is as wrong as a
//! row less: `kubectl taint` removes a taint by sending the whole list.

#[rustfmt::skip]
mod generated;

use self::Rule::Object;
pub(crate) use self::generated::{admissionregistration_v1, core_v1, storage_v1};

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
pub(crate) const ANY: Fields = &[("metadata", Object(generated::meta_v1::OBJECT_META))];

/// A type whose lists are all atomic.
pub(crate) const PLAIN: Fields = &[];
