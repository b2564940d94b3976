//! Reading objects that may hold anything: what is missing or of another type is empty.

use jiff::Timestamp;
use serde_json::{Map, Value};

pub(crate) use crate::document::{items as list, text};

/// The text at `pointer`, or `placeholder` if it is empty.
pub(crate) fn text_or<'a>(object: &'a Value, pointer: &str, placeholder: &'a str) -> &'a str {
    match text(object, pointer) {
        "" => placeholder,
        text => text,
    }
}

/// The number at `pointer`.
pub(crate) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The flag at `pointer`.
pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// The object at `pointer`.
pub(crate) fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

/// How many entries the object at `pointer` has.
pub(crate) fn size(object: &Value, pointer: &str) -> usize {
    map(object, pointer).map_or(0, Map::len)
}

/// The time at `pointer`.
pub(crate) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// The text of the field `name` of each element, with `separator` between them.
pub(crate) fn joined(items: &[Value], pointer: &str, separator: &str) -> String {
    items.iter().map(|item| text(item, pointer)).collect::<Vec<_>>().join(separator)
}

/// Whether the list of conditions at `pointer` has one of this type that is true.
pub(crate) fn condition_holds(object: &Value, pointer: &str, kind: &str) -> bool {
    let found = list(object, pointer).iter().find(|condition| text(condition, "/type") == kind);
    found.is_some_and(|condition| text(condition, "/status") == "True")
}
