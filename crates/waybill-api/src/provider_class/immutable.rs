//! Which fields of a class must not change.
//!
//! The annotation [`IMMUTABLE_FIELDS`] names them. An entry holds from the update after the one that
//! brought it, and for good: the list may grow and never shrink (OP-36). The driver and the
//! allow-lists need no entry once they are set.

use std::{collections::BTreeSet, fmt};

use waybill_core::provider::{ALLOWED_FIELDS, ALLOWED_NAMESPACES};

use super::{IMMUTABLE_FIELDS, ProviderClass};
use crate::field::FieldPath;

/// A field that the annotation can name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ImmutableField {
    Driver,
    /// All parameters together: none may be added, changed or removed.
    Parameters,
    Parameter(String),
}

impl ImmutableField {
    /// Parses one entry. A parameter's name is all that follows, dots included.
    pub(super) fn parse(entry: &str) -> Option<Self> {
        match entry {
            "spec.driver" => Some(Self::Driver),
            "spec.parameters" => Some(Self::Parameters),
            _ => {
                let key = entry.strip_prefix("spec.parameters.")?;
                (!key.is_empty()).then(|| Self::Parameter(key.to_owned()))
            }
        }
    }

    /// Where a change of the field is reported.
    pub(super) fn path(&self) -> FieldPath {
        let spec = FieldPath::new("spec");
        match self {
            Self::Driver => spec.child("driver"),
            Self::Parameters => spec.child("parameters"),
            Self::Parameter(key) => spec.child("parameters").key(key),
        }
    }

    /// Whether the field differs between two versions of a class.
    pub(super) fn differs(&self, new: &ProviderClass, old: &ProviderClass) -> bool {
        match self {
            Self::Driver => new.spec.driver != old.spec.driver,
            Self::Parameters => new.spec.parameters != old.spec.parameters,
            Self::Parameter(key) => new.parameter(key) != old.parameter(key),
        }
    }
}

/// As the entry reads in the annotation.
impl fmt::Display for ImmutableField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver => f.write_str("spec.driver"),
            Self::Parameters => f.write_str("spec.parameters"),
            Self::Parameter(key) => write!(f, "spec.parameters.{key}"),
        }
    }
}

/// The entries of a class's annotation: those that are understood, and the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Annotated {
    pub(super) fields: BTreeSet<ImmutableField>,
    pub(super) unknown: Vec<String>,
}

impl Annotated {
    /// Reads the annotation; absent and empty name no field.
    pub(super) fn of(class: &ProviderClass) -> Self {
        let text = class.metadata.annotations.get(IMMUTABLE_FIELDS).map_or("", |text| text.trim());
        let mut annotated = Self::default();
        if text.is_empty() {
            return annotated;
        }
        for entry in text.split(',').map(str::trim) {
            match ImmutableField::parse(entry) {
                Some(field) => drop(annotated.fields.insert(field)),
                None => annotated.unknown.push(entry.to_owned()),
            }
        }
        annotated
    }
}

/// The fields that are fixed in `class` without annotation, because they are set (OP-36).
pub(super) fn fixed_once_set(class: &ProviderClass) -> impl Iterator<Item = ImmutableField> {
    let driver = (!class.spec.driver.is_empty()).then_some(ImmutableField::Driver);
    let lists = [ALLOWED_FIELDS, ALLOWED_NAMESPACES].into_iter();
    let set_lists = lists
        .filter(|key| class.parameter(key).is_some())
        .map(|key| ImmutableField::Parameter(key.to_owned()));
    driver.into_iter().chain(set_lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(annotation: &str, fields: &[&str], unknown: &[&str]) {
        let mut class = ProviderClass::default();
        class.metadata.annotations.insert(IMMUTABLE_FIELDS.into(), annotation.into());
        let annotated = Annotated::of(&class);
        let found: Vec<_> = annotated.fields.iter().map(ToString::to_string).collect();
        assert_eq!(found, fields, "{annotation:?}");
        assert_eq!(annotated.unknown, unknown, "{annotation:?}");
    }

    /// CSI-17
    #[test]
    fn entries_are_paths_between_commas_csi_17() {
        check("", &[], &[]);
        check(" ", &[], &[]);
        check("spec.driver", &["spec.driver"], &[]);
        check(
            " spec.parameters.b , spec.parameters,spec.parameters.a,spec.parameters.a",
            &["spec.parameters", "spec.parameters.a", "spec.parameters.b"],
            &[],
        );
        check("spec.parameters.a.b", &["spec.parameters.a.b"], &[]);
        check("spec.driver,", &["spec.driver"], &[""]);
        check(
            "spec,Spec.driver,spec.driver.x,spec.parameters.,spec.parametersx,metadata.name",
            &[],
            &[
                "spec",
                "Spec.driver",
                "spec.driver.x",
                "spec.parameters.",
                "spec.parametersx",
                "metadata.name",
            ],
        );
    }
}
