//! Reading objects that may hold anything: what is missing or of another type is empty.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The text at `pointer`.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text at `pointer`, or `placeholder` if it is empty.
pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, placeholder: &'a str) -> &'a str {
    match text(object, pointer) {
        "" => placeholder,
        text => text,
    }
}

/// The number at `pointer`.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The flag at `pointer`.
pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// The elements of the list at `pointer`.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The object at `pointer`.
pub(super) fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

/// The time at `pointer`.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// The text of the field `name` of each element, with `separator` between them.
pub(super) fn joined(items: &[Value], pointer: &str, separator: &str) -> String {
    items.iter().map(|item| text(item, pointer)).collect::<Vec<_>>().join(separator)
}

/// Whether the list of conditions at `pointer` has one of this type that is true.
pub(super) fn condition_holds(object: &Value, pointer: &str, kind: &str) -> bool {
    let found = list(object, pointer).iter().find(|condition| text(condition, "/type") == kind);
    found.is_some_and(|condition| text(condition, "/status") == "True")
}
