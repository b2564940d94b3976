//! The words that mean something in a strategic merge patch, and what is left without them.

use serde_json::{Map, Value};

use super::PatchError;

const PATCH: &str = "$patch";
pub(super) const RETAIN_KEYS: &str = "$retainKeys";
pub(super) const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";
pub(super) const SET_ELEMENT_ORDER: &str = "$setElementOrder/";

/// The value of `$patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directive {
    Delete,
    Merge,
    Replace,
}

impl Directive {
    /// Takes the directive out of `patch`, if there is one.
    pub(super) fn take(patch: &mut Map<String, Value>) -> Result<Option<Self>, PatchError> {
        let Some(value) = patch.remove(PATCH) else { return Ok(None) };
        match value.as_str() {
            Some("delete") => Ok(Some(Self::Delete)),
            Some("merge") => Ok(Some(Self::Merge)),
            Some("replace") => Ok(Some(Self::Replace)),
            unknown => Err(PatchError::Directive(unknown.unwrap_or_default().to_owned())),
        }
    }
}

/// Whether a field is a directive and not one of the object's.
pub(super) fn is_directive(field: &str) -> bool {
    field == PATCH
        || field == RETAIN_KEYS
        || field.starts_with(DELETE_FROM_PRIMITIVE_LIST)
        || field.starts_with(SET_ELEMENT_ORDER)
}

/// What a part of a patch says where there is nothing to merge it with: the value without nulls and
/// directives, or nothing if it is deleted.
pub(super) fn strip(value: Value) -> Option<Value> {
    match value {
        Value::Array(items) => Some(Value::Array(list(items))),
        Value::Object(fields) if says(&fields, "delete") => None,
        Value::Object(fields) => Some(Value::Object(object(fields))),
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => Some(value),
    }
}

/// [`strip`] for a list; elements that only carry a directive are none.
pub(super) fn list(items: Vec<Value>) -> Vec<Value> {
    let marker = |item: &Value| item.as_object().is_some_and(|fields| says(fields, "replace"));
    items.into_iter().filter(|item| !marker(item)).filter_map(strip).collect()
}

/// [`strip`] for the fields of an object.
pub(super) fn object(fields: Map<String, Value>) -> Map<String, Value> {
    fields
        .into_iter()
        .filter(|(field, value)| !(is_directive(field) || value.is_null()))
        .filter_map(|(field, value)| Some((field, strip(value)?)))
        .collect()
}

fn says(fields: &Map<String, Value>, directive: &str) -> bool {
    fields.get(PATCH).and_then(Value::as_str) == Some(directive)
}
