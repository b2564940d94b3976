//! Fields of a secret that is a JSON object.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use waybill_core::secret::SecretBytes;

use crate::driver::{Answer, FetchError};

/// Parameter of a variable that names a field.
pub(crate) const FIELD: &str = "field";

/// How many names of fields an error lists.
const NAMED: usize = 10;

/// Values stay in the text that they are borrowed from, and are wiped with it.
pub(crate) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The value of the field `name` of the secret at `key`.
pub(crate) fn named(fields: &Fields<'_>, name: &str, key: &str) -> Answer {
    let value = fields.get(name).ok_or_else(|| {
        FetchError::not_found(format!("{key} has no field {name:?}; it has {}", names(fields)))
    })?;
    let null = || FetchError::not_found(format!("the field {name:?} of {key} is null"));
    text(value).ok_or_else(null)
}

/// The names, for an error. They are no values: whoever may read the secret may know them.
pub(crate) fn names(fields: &Fields<'_>) -> String {
    let named: Vec<_> = fields.keys().take(NAMED).map(String::as_str).collect();
    match (named.is_empty(), fields.len() > NAMED) {
        (true, _) => "none".into(),
        (false, more) => format!("{}{}", named.join(", "), if more { " and more" } else { "" }),
    }
}

/// A string as it is, anything else as it is written; `None` for null.
fn text(value: &RawValue) -> Option<SecretBytes> {
    let raw = value.get();
    if raw == "null" {
        return None;
    }
    match serde_json::from_str::<String>(raw) {
        Ok(text) => Some(text.into_bytes().into()),
        Err(_) => Some(SecretBytes::copy_of(raw.as_bytes())),
    }
}
