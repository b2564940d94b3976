//! How the views read JSON that is absent, null or of the wrong kind.
//!
//! Kubernetes reads null as absent, everywhere. A wrong kind is an error that says where and what
//! was expected but never repeats the content: a misplaced text may be the value of a variable.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::Value;

use super::HiddenText;

/// Null means the default.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A list of objects; null means empty.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let items = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => return Err(wrong_kind(&other, "a list")),
    };
    items
        .into_iter()
        .enumerate()
        .map(|(position, item)| {
            let item = object_from::<T, D::Error>(item);
            item.map_err(|error| Error::custom(format_args!("item {position}: {error}")))
        })
        // A null item is an object without fields.
        .map(|item| item.map(Option::unwrap_or_default))
        .collect()
}

/// A list of texts that may hold secrets; null means empty.
pub(super) fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<HiddenText>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items
            .into_iter()
            .map(|item| HiddenText::deserialize(item).map_err(Error::custom))
            .collect(),
        other => Err(wrong_kind(&other, "a list")),
    }
}

/// An object; null means absent.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    object_from(Value::deserialize(deserializer)?)
}

/// Reads `value` as an object; null means absent.
pub(super) fn object_from<T, E>(value: Value) -> Result<Option<T>, E>
where
    T: DeserializeOwned,
    E: Error,
{
    match value {
        Value::Null => Ok(None),
        // A derived reader would take a list as well, field by field.
        Value::Object(_) => T::deserialize(value).map(Some).map_err(E::custom),
        other => Err(wrong_kind(&other, "an object")),
    }
}

/// The error for `found` in a place where `expected` belongs.
pub(super) fn wrong_kind<E: Error>(found: &Value, expected: &str) -> E {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    E::custom(format_args!("found {kind} where {expected} belongs"))
}
