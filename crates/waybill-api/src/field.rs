//! What is wrong with which field, said as Kubernetes says it.
//!
//! Validation never stops at the first fault: it fills an [`ErrorList`], which
//! [`crate::status::Status::invalid`] turns into one answer. Texts and reasons are upstream's, since
//! clients match on them.

use std::fmt;

use serde_json::Value;

/// The place of a field in an object: `spec.containers[0].env[2].name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// A path that starts at the field `name`.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The field `name` of this object.
    pub fn child(&self, name: &str) -> Self {
        // The root of a view may be the object itself.
        if self.0.is_empty() { Self::new(name) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// Element `position` of this list.
    pub fn index(&self, position: usize) -> Self {
        Self(format!("{}[{position}]", self.0))
    }

    /// The entry `key` of this map.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One fault of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    path: FieldPath,
    kind: FieldErrorKind,
    detail: String,
}

/// The kinds of faults, with the offending value where Kubernetes repeats it.
///
/// Values of variables are never among them; names, references and counts are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldErrorKind {
    /// A value that may occur once occurs again.
    Duplicate(String),
    /// The field may not be used here.
    Forbidden,
    /// The value breaks a rule.
    Invalid(BadValue),
    /// The value names something that does not exist.
    NotFound(String),
    /// The value is not one of a closed set.
    NotSupported(String),
    /// The field must be set.
    Required,
    /// The value is too long.
    TooLong,
    /// The list has too many items; how many it has.
    TooMany(usize),
}

/// A value as an error repeats it: texts in quotes, all else as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadValue {
    /// A number, a boolean, null, a list or an object, in JSON.
    Json(String),
    /// A text.
    Text(String),
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for BadValue {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for BadValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for BadValue {
    fn from(number: i64) -> Self {
        Self::Json(number.to_string())
    }
}

impl From<&Value> for BadValue {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            other => Self::Json(other.to_string()),
        }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(text) => f.write_str(text),
            Self::Text(text) => f.write_str(&go_quote(text)),
        }
    }
}

/// Every fault found in one object.
pub type ErrorList = Vec<FieldError>;

impl FieldError {
    /// `value` occurs twice.
    pub fn duplicate(path: FieldPath, value: impl Into<String>) -> Self {
        Self { path, kind: FieldErrorKind::Duplicate(value.into()), detail: String::new() }
    }

    /// The field may not be used, because of `detail`.
    pub fn forbidden(path: FieldPath, detail: impl Into<String>) -> Self {
        Self { path, kind: FieldErrorKind::Forbidden, detail: detail.into() }
    }

    /// `value` breaks the rule that `detail` states.
    pub fn invalid(path: FieldPath, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self { path, kind: FieldErrorKind::Invalid(value.into()), detail: detail.into() }
    }

    /// Nothing is called `value`.
    pub fn not_found(path: FieldPath, value: impl Into<String>) -> Self {
        Self { path, kind: FieldErrorKind::NotFound(value.into()), detail: String::new() }
    }

    /// `value` is none of `supported`.
    pub fn not_supported(path: FieldPath, value: impl Into<String>, supported: &[&str]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self { path, kind: FieldErrorKind::NotSupported(value.into()), detail }
    }

    /// The field is missing; `detail` may be empty.
    pub fn required(path: FieldPath, detail: impl Into<String>) -> Self {
        Self { path, kind: FieldErrorKind::Required, detail: detail.into() }
    }

    /// The value has more than `limit` bytes.
    pub fn too_long(path: FieldPath, limit: usize) -> Self {
        let detail = format!("may not be more than {limit} bytes");
        Self { path, kind: FieldErrorKind::TooLong, detail }
    }

    /// The list has `count` items where `limit` are allowed.
    pub fn too_many(path: FieldPath, count: usize, limit: usize) -> Self {
        let detail = format!("must have at most {limit} items");
        Self { path, kind: FieldErrorKind::TooMany(count), detail }
    }

    /// The field at fault.
    pub fn path(&self) -> &FieldPath {
        &self.path
    }

    /// What kind of fault it is.
    pub fn kind(&self) -> &FieldErrorKind {
        &self.kind
    }

    /// The fault without its path, as in the `message` of a status cause.
    pub fn body(&self) -> String {
        let head = match &self.kind {
            FieldErrorKind::Duplicate(value) => format!("Duplicate value: {}", go_quote(value)),
            FieldErrorKind::Forbidden => "Forbidden".to_owned(),
            FieldErrorKind::Invalid(value) => format!("Invalid value: {value}"),
            FieldErrorKind::NotFound(value) => format!("Not found: {}", go_quote(value)),
            FieldErrorKind::NotSupported(value) => {
                format!("Unsupported value: {}", go_quote(value))
            }
            FieldErrorKind::Required => "Required value".to_owned(),
            FieldErrorKind::TooLong => "Too long".to_owned(),
            FieldErrorKind::TooMany(count) => format!("Too many: {count}"),
        };
        if self.detail.is_empty() { head } else { format!("{head}: {}", self.detail) }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl FieldErrorKind {
    /// The machine-readable reason of a status cause.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Duplicate(_) => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid(_) => "FieldValueInvalid",
            Self::NotFound(_) => "FieldValueNotFound",
            Self::NotSupported(_) => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany(_) => "FieldValueTooMany",
        }
    }
}

/// Quotes as Go's `%q`, so that a value cannot break out of its message.
fn go_quote(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for c in value.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            ' '..='~' => quoted.push(c),
            '\0'..='\x7f' => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            // The C1 controls and the non-characters, which could reach a terminal.
            '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &FieldError, text: &str, reason: &str) {
        assert_eq!(error.to_string(), text);
        assert_eq!(error.kind().reason(), reason);
    }

    #[test]
    fn paths_read_as_in_kubernetes() {
        let path = FieldPath::new("spec").child("containers").index(0).child("env").index(2);
        assert_eq!(path.child("name").to_string(), "spec.containers[0].env[2].name");
        assert_eq!(
            FieldPath::new("spec").child("parameters").key("allowedFields").to_string(),
            "spec.parameters[allowedFields]"
        );
    }

    #[test]
    fn texts_and_reasons_read_as_in_kubernetes() {
        let path = || FieldPath::new("f");
        check(&FieldError::required(path(), ""), "f: Required value", "FieldValueRequired");
        check(
            &FieldError::required(path(), "driver name is required"),
            "f: Required value: driver name is required",
            "FieldValueRequired",
        );
        check(
            &FieldError::invalid(path(), "a:b", "no colons"),
            "f: Invalid value: \"a:b\": no colons",
            "FieldValueInvalid",
        );
        check(
            &FieldError::invalid(path(), 70000, "too high"),
            "f: Invalid value: 70000: too high",
            "FieldValueInvalid",
        );
        check(
            &FieldError::duplicate(path(), "A"),
            "f: Duplicate value: \"A\"",
            "FieldValueDuplicate",
        );
        check(&FieldError::forbidden(path(), "why"), "f: Forbidden: why", "FieldValueForbidden");
        check(&FieldError::not_found(path(), "v"), "f: Not found: \"v\"", "FieldValueNotFound");
        check(
            &FieldError::not_supported(path(), "x", &["a", "b"]),
            "f: Unsupported value: \"x\": supported values: \"a\", \"b\"",
            "FieldValueNotSupported",
        );
        check(
            &FieldError::too_long(path(), 128),
            "f: Too long: may not be more than 128 bytes",
            "FieldValueTooLong",
        );
        check(
            &FieldError::too_many(path(), 257, 256),
            "f: Too many: 257: must have at most 256 items",
            "FieldValueTooMany",
        );
    }

    #[test]
    fn quoted_values_cannot_leave_their_quotes_or_drive_a_terminal() {
        assert_eq!(go_quote("a\"b\\c\n\x1b[31m\x7fé"), "\"a\\\"b\\\\c\\n\\x1b[31m\\x7fé\"");
        assert_eq!(go_quote("\u{9b}\u{202e}"), "\"\\u009b\\u202e\"");
    }
}
