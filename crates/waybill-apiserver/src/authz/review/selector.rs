//! The selectors that an access review may carry.
//!
//! Of a field selector, the terms `field=value` can decide about nodes. Label selectors decide
//! nothing here, and are only checked for their form.

use serde::Deserialize;
use waybill_api::field::{ErrorList, FieldError, FieldPath};

use crate::{
    authz::objects::or_default,
    selector::field::{FieldOperator, FieldRequirement, FieldSelector},
};

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
    /// What it asks of fields, and whether every part of it could be read.
    pub(super) fn fields(&self) -> (FieldSelector, bool) {
        if !self.raw_selector.is_empty() {
            return match FieldSelector::parse(&self.raw_selector) {
                Ok(parsed) => (parsed, true),
                Err(_) => (FieldSelector::default(), false),
            };
        }
        let read: Vec<_> = self.requirements.iter().filter_map(Requirement::on_field).collect();
        let complete = read.len() == self.requirements.len();
        (FieldSelector::new(read), complete)
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
    fn on_field(&self) -> Option<FieldRequirement> {
        let operator = match self.operator.as_str() {
            "In" => FieldOperator::Equals,
            "NotIn" => FieldOperator::NotEquals,
            _ => return None,
        };
        let [value] = self.values.as_slice() else { return None };
        Some(FieldRequirement { field: self.key.clone(), operator, value: value.clone() })
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
