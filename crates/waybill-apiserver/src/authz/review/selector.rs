//! The selectors that an access review may carry.
//!
//! Of a field selector, the terms `field=value` can decide about nodes. Label selectors decide
//! nothing here, and are only checked for their form.

use serde::Deserialize;
use waybill_api::field::{ErrorList, FieldError, FieldPath};

use crate::authz::{FieldTerm, objects::or_default};

/// `FieldSelectorAttributes` and `LabelSelectorAttributes`, which look the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Selector {
    #[serde(deserialize_with = "or_default")]
    raw_selector: String,
    #[serde(deserialize_with = "or_default")]
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    #[serde(deserialize_with = "or_default")]
    key: String,
    #[serde(deserialize_with = "or_default")]
    operator: String,
    #[serde(deserialize_with = "or_default")]
    values: Vec<String>,
}

impl Selector {
    /// The terms `field=value`, and whether every part of the selector could be read.
    pub(super) fn terms(&self) -> (Vec<FieldTerm<'_>>, bool) {
        let raw = self.raw_selector.split(',').filter(|term| !term.is_empty()).map(read_term);
        let listed = self.requirements.iter().map(Requirement::read);
        let mut terms = Vec::new();
        let mut complete = true;
        for read in raw.chain(listed) {
            match read {
                Read::Equals(term) => terms.push(term),
                Read::Other => {}
                Read::Unreadable => complete = false,
            }
        }
        (terms, complete)
    }

    pub(super) fn check(&self, path: &FieldPath) -> ErrorList {
        let mut errors = ErrorList::new();
        match (self.raw_selector.is_empty(), self.requirements.is_empty()) {
            (false, false) => errors.push(FieldError::invalid(
                path.child("rawSelector"),
                &self.raw_selector,
                "may not specified at the same time as requirements",
            )),
            (true, true) => errors.push(FieldError::required(
                path.child("requirements"),
                format!("when {path} is specified, requirements or rawSelector is required"),
            )),
            (true, false) | (false, true) => {}
        }
        for (position, requirement) in self.requirements.iter().enumerate() {
            errors.extend(requirement.check(&path.child("requirements").index(position)));
        }
        errors
    }
}

impl Requirement {
    fn read(&self) -> Read<'_> {
        match (self.operator.as_str(), self.values.as_slice()) {
            ("In", [value]) => Read::Equals(FieldTerm { field: &self.key, value }),
            ("NotIn", [_]) => Read::Other,
            _ => Read::Unreadable,
        }
    }

    /// Unknown operators are left alone: newer clients may know more of them.
    fn check(&self, path: &FieldPath) -> ErrorList {
        let mut errors = ErrorList::new();
        if self.key.is_empty() {
            errors.push(FieldError::required(path.child("key"), "must be specified"));
        }
        match (self.operator.as_str(), self.values.is_empty()) {
            ("In" | "NotIn", true) => errors.push(FieldError::required(
                path.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            ("Exists" | "DoesNotExist", false) => errors.push(FieldError::forbidden(
                path.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            _ => {}
        }
        errors
    }
}

/// One part of a selector.
enum Read<'a> {
    Equals(FieldTerm<'a>),
    /// Understood, but it does not limit to one value.
    Other,
    Unreadable,
}

fn read_term(term: &str) -> Read<'_> {
    match term.split_once('=') {
        Some((field, _)) if field.ends_with('!') => Read::Other,
        // A backslash escapes the separators, and no name that matters here has any.
        Some((field, value)) if !field.is_empty() && !value.contains('\\') => {
            let value = value.strip_prefix('=').unwrap_or(value);
            Read::Equals(FieldTerm { field: field.trim(), value: value.trim() })
        }
        Some(_) | None => Read::Unreadable,
    }
}
