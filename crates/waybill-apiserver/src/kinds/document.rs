//! Reading and filling documents.
//!
//! A [`Field`] is a value together with the way to it, so a check can name the place of a fault
//! without carrying paths around; the path is put together only when there is a fault. Null reads
//! as absent, as everywhere in Kubernetes, and so does a value of the wrong type: the schema has
//! refused it before.

use serde_json::{Map, Value};
use waybill_api::field::{BadValue, FieldError, FieldPath};

/// A value in a document, and the way to it from the root; an absent value is null.
#[derive(Clone, Copy)]
pub(crate) struct Field<'v, 'w> {
    value: &'v Value,
    way: Way<'w>,
}

#[derive(Clone, Copy)]
enum Way<'w> {
    Root,
    Child(&'w Self, &'w str),
    Index(&'w Self, usize),
    Key(&'w Self, &'w str),
}

impl<'v> Field<'v, 'static> {
    /// The whole document.
    pub(crate) fn root(document: &'v Value) -> Self {
        Self { value: document, way: Way::Root }
    }
}

impl<'v, 'w> Field<'v, 'w> {
    /// The field `name` of this object.
    pub(crate) fn get<'a>(&'a self, name: &'a str) -> Field<'v, 'a> {
        Field { value: member(self.value, name), way: Way::Child(&self.way, name) }
    }

    /// Another value that is to be judged as if it stood here.
    pub(crate) fn holding<'n>(&self, value: &'n Value) -> Field<'n, 'w> {
        Field { value, way: self.way }
    }

    /// The items of this list.
    pub(crate) fn items(&self) -> impl Iterator<Item = Field<'v, '_>> {
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().map(|(at, value)| Field { value, way: Way::Index(&self.way, at) })
    }

    /// The entries of this map, by key.
    pub(crate) fn entries<'a>(&'a self) -> impl Iterator<Item = (&'v str, Field<'v, 'a>)>
    where
        'v: 'a,
    {
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(|(key, value)| (&**key, Field { value, way: Way::Key(&self.way, key) }))
    }

    /// The value itself.
    pub(crate) fn value(&self) -> &'v Value {
        self.value
    }

    /// Whether there is a value.
    pub(crate) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether there is nothing: no value, or an empty text, list or object.
    pub(crate) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
        }
    }

    /// The text; empty if there is none.
    pub(crate) fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// The whole number, if it is one.
    pub(crate) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// Whether it is true.
    pub(crate) fn is_true(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    /// How many items or entries there are.
    pub(crate) fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            _ => 0,
        }
    }

    /// Where it stands.
    pub(crate) fn path(&self) -> FieldPath {
        self.way.path()
    }

    /// The fault that the value breaks the rule that `detail` states. Never for secret values.
    pub(crate) fn invalid(&self, detail: impl Into<String>) -> FieldError {
        FieldError::invalid(self.path(), self.value, detail)
    }

    /// As [`Field::invalid`], where an absent text reads as empty.
    pub(crate) fn invalid_text(&self, detail: impl Into<String>) -> FieldError {
        FieldError::invalid(self.path(), self.text(), detail)
    }

    /// As [`Field::invalid`], with another value in the message.
    pub(crate) fn invalid_as(
        &self,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::invalid(self.path(), value, detail)
    }

    /// One fault for each of `faults` about the text.
    pub(crate) fn all_invalid(&self, faults: Vec<String>) -> impl Iterator<Item = FieldError> {
        faults.into_iter().map(|fault| self.invalid_text(fault))
    }

    /// The fault that it is missing.
    pub(crate) fn required(&self, detail: &str) -> FieldError {
        FieldError::required(self.path(), detail)
    }

    /// The fault that it may not be set.
    pub(crate) fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        FieldError::forbidden(self.path(), detail)
    }

    /// The fault that it stands there twice.
    pub(crate) fn duplicate(&self) -> FieldError {
        FieldError::duplicate(self.path(), self.text())
    }

    /// The fault that nothing has this name.
    pub(crate) fn not_found(&self) -> FieldError {
        FieldError::not_found(self.path(), self.text())
    }

    /// As [`Field::not_supported`], with another value in the message.
    pub(crate) fn invalid_choice(&self, value: &str, supported: &[&str]) -> FieldError {
        FieldError::not_supported(self.path(), value, supported)
    }

    /// The fault that it is none of `supported`.
    pub(crate) fn not_supported(&self, supported: &[&str]) -> FieldError {
        FieldError::not_supported(self.path(), self.text(), supported)
    }
}

impl Way<'_> {
    fn path(&self) -> FieldPath {
        match self {
            Self::Root => FieldPath::new(""),
            Self::Child(parent, name) => parent.path().child(name),
            Self::Index(parent, at) => parent.path().index(*at),
            Self::Key(parent, key) => parent.path().key(key),
        }
    }
}

/// The field `name` of `object`; null if there is none.
pub(crate) fn member<'v>(object: &'v Value, name: &str) -> &'v Value {
    object.get(name).unwrap_or(&Value::Null)
}

/// The text of the field `name` of `object`; empty if there is none.
pub(crate) fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    member(object, name).as_str().unwrap_or_default()
}

/// The items of the list `name` of `object`, to be changed.
pub(crate) fn items_mut<'v>(
    object: &'v mut Value,
    name: &str,
) -> impl Iterator<Item = &'v mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Puts `value` into the field `name` of `object`, if nothing stands there.
pub(crate) fn fill(object: &mut Value, name: &str, value: impl Into<Value>) {
    if member(object, name).is_null() {
        put(object, name, value);
    }
}

/// As [`fill`], where an empty text counts as nothing.
pub(crate) fn fill_text(object: &mut Value, name: &str, text: &str) {
    if member(object, name).as_str().is_none_or(str::is_empty) {
        put(object, name, text);
    }
}

/// As [`fill`], where zero counts as nothing.
pub(crate) fn fill_number(object: &mut Value, name: &str, number: i64) {
    if member(object, name).as_i64().is_none_or(|found| found == 0) {
        put(object, name, number);
    }
}

/// Puts `value` into the field `name` of `object`, whatever stands there; null removes it.
pub(crate) fn put(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object {
        match value.into() {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.to_owned(), value)),
        }
    }
}

/// Removes the field `name` of `object`.
pub(crate) fn remove(object: &mut Value, name: &str) {
    if let Value::Object(fields) = object {
        fields.remove(name);
    }
}

/// Makes the field `name` of `new` what it is in `old`.
pub(crate) fn keep(new: &mut Value, old: &Value, name: &str) {
    put(new, name, member(old, name).clone());
}

/// The object in the field `name` of `object`, which is made if there is none.
pub(crate) fn object_mut<'v>(object: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    fill(object, name, Map::new());
    object.get_mut(name).filter(|found| found.is_object())
}

/// Whether two values mean the same: null and what is empty mean absent.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let is_same = |key: &String| {
                same(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null))
            };
            a.keys().all(is_same) && b.keys().filter(|key| !a.contains_key(*key)).all(is_same)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => one == other || (means_absent(one) && means_absent(other)),
    }
}

fn means_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(means_absent),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_know_their_way() {
        let document = json!({"spec": {"list": [{"a": 1}, {"map": {"x/y": "v"}}]}});
        let root = Field::root(&document);
        let spec = root.get("spec");
        let list = spec.get("list");
        let second = list.items().nth(1).unwrap();
        let map = second.get("map");
        let (key, entry) = map.entries().next().unwrap();
        assert_eq!((key, entry.text()), ("x/y", "v"));
        assert_eq!(entry.path().to_string(), "spec.list[1].map[x/y]");
        assert_eq!(second.get("none").path().to_string(), "spec.list[1].none");
        assert!(!second.get("none").is_set());
    }

    #[test]
    fn whatever_has_the_wrong_type_reads_as_absent() {
        let document = json!([1]);
        let field = Field::root(&document);
        let child = field.get("x");
        assert_eq!((child.text(), child.number(), child.len()), ("", None, 0));
        assert_eq!(child.items().count() + child.entries().count(), 0);
        let mut odd = json!(5);
        fill(&mut odd, "a", 1);
        put(&mut odd, "a", 1);
        remove(&mut odd, "a");
        assert_eq!(odd, json!(5));
        assert!(object_mut(&mut odd, "a").is_none());
        assert!(object_mut(&mut json!({"a": 5}), "a").is_none());
    }

    #[test]
    fn nothing_is_spelled_in_many_ways() {
        assert!(same(&json!({"a": null, "b": [], "c": ""}), &json!({"d": {"e": {}}})));
        assert!(same(&json!(null), &json!({})));
        assert!(!same(&json!({"a": 0}), &json!({})));
        assert!(!same(&json!({"a": false}), &json!({})));
        assert!(!same(&json!([1, 2]), &json!([2, 1])));
        assert!(!same(&json!([]), &json!([""])));
    }
}
