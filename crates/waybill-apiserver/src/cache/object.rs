//! An object as the cache keeps it: the bytes of the store, and what selectors look at.
//!
//! What clients get differs from what is stored by the `resourceVersion` alone, which is known only
//! once the write is. So the bytes are held once, shared with the store, and the version is put in
//! when they are copied into an answer.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use waybill_core::id::ResourceVersion;

use crate::{
    document::{metadata, to_bytes, with_version, without_managers},
    registry::Resource,
    selector::supported::SelectableFields,
};

/// Namespace and name; objects without a namespace have an empty one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// A key that comes before every object of `namespace`.
    pub(super) fn first_of(namespace: &str) -> Self {
        Self::new(namespace, "")
    }
}

/// What a label takes beyond its bytes: two pointers with lengths, and two small allocations.
const PER_LABEL: usize = 64;

/// One object at one revision.
#[derive(Clone)]
pub(crate) struct CachedObject {
    pub(crate) key: ObjectKey,
    pub(crate) revision: ResourceVersion,
    stored: Bytes,
    /// What is put into `stored` at `version_at`; empty if the version is there already.
    version: Box<str>,
    version_at: usize,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// What field selectors of this resource can ask for, beyond name and namespace.
    fields: SelectableFields,
}

impl CachedObject {
    /// The object of `resource` that was stored at `revision`.
    pub(crate) fn new(
        resource: &'static Resource,
        stored: Bytes,
        revision: ResourceVersion,
    ) -> Result<Self, serde_json::Error> {
        let document = without_managers(&stored)?;
        let (key, labels) = (key_of(&document), labels_of(&document));
        let fields = SelectableFields::read(resource, &document);
        let (stored, version, version_at) = match version_at(&stored, &document) {
            Some(at) => (stored, member(revision), at),
            // Not as we write it: by another program, or by an older version of this one.
            None => {
                let document = serde_json::from_slice(&stored)?;
                (to_bytes(&with_version(document, revision)), "".into(), 0)
            }
        };
        Ok(Self { key, revision, stored, version, version_at, labels, fields })
    }

    /// The same object at another revision.
    pub(super) fn at(&self, revision: ResourceVersion) -> Self {
        let (stored, version) = if self.version.is_empty() {
            (to_bytes(&with_version(self.document(), revision)), "".into())
        } else {
            (self.stored.clone(), member(revision))
        };
        Self { revision, stored, version, ..self.clone() }
    }

    /// The whole document with its `resourceVersion`, as clients get it.
    pub(crate) fn json(&self) -> Bytes {
        let mut json = BytesMut::with_capacity(self.json_len());
        self.put_json(&mut json);
        json.freeze()
    }

    /// Appends what [`Self::json`] returns.
    pub(crate) fn put_json(&self, to: &mut BytesMut) {
        let (before, after) = self.stored.split_at_checked(self.version_at).unwrap_or_default();
        to.put_slice(before);
        to.put_slice(self.version.as_bytes());
        to.put_slice(after);
    }

    /// Appends at most `most` bytes of what [`Self::json`] returns, after the first `skipped`.
    pub(crate) fn put_json_part(&self, mut skipped: usize, mut most: usize, to: &mut BytesMut) {
        let (before, after) = self.stored.split_at_checked(self.version_at).unwrap_or_default();
        for part in [before, self.version.as_bytes(), after] {
            let rest = part.get(skipped..).unwrap_or_default();
            skipped = skipped.saturating_sub(part.len());
            let taken = rest.get(..most).unwrap_or(rest);
            most -= taken.len();
            to.put_slice(taken);
        }
    }

    /// How many bytes [`Self::json`] has.
    pub(crate) fn json_len(&self) -> usize {
        self.stored.len() + self.version.len()
    }

    /// About how many bytes the object takes in memory.
    pub(super) fn memory(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len() + PER_LABEL);
        size_of::<Self>() + self.json_len() + labels.sum::<usize>()
    }

    /// The document, to be changed.
    pub(crate) fn document(&self) -> Value {
        let document: Value = serde_json::from_slice(&self.stored).unwrap_or_default();
        if self.version.is_empty() { document } else { with_version(document, self.revision) }
    }

    /// The document without its managers, which are half of many objects, for those who only look at it.
    pub(crate) fn content(&self) -> Value {
        let content = without_managers(&self.stored).unwrap_or_default();
        if self.version.is_empty() { content } else { with_version(content, self.revision) }
    }

    /// The value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| &**label == key).map(|(_, value)| &**value)
    }

    /// The value of a field that a selector asks for.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(&self.key.name),
            "metadata.namespace" => Some(&self.key.namespace),
            _ => self.fields.get(name),
        }
    }
}

/// Shows no content, which may be a Secret's.
impl std::fmt::Debug for CachedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedObject")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

fn key_of(document: &Value) -> ObjectKey {
    ObjectKey::new(metadata(document, "namespace"), metadata(document, "name"))
}

fn labels_of(document: &Value) -> Box<[(Box<str>, Box<str>)]> {
    let labels = document.pointer("/metadata/labels").and_then(Value::as_object);
    let text = |value: &Value| value.as_str().unwrap_or_default().into();
    labels.into_iter().flatten().map(|(key, value)| (key.as_str().into(), text(value))).collect()
}

/// The version as the first of several members of `metadata`.
fn member(revision: ResourceVersion) -> Box<str> {
    format!("\"resourceVersion\":\"{revision}\",").into()
}

/// Where the first member of `metadata` begins in `stored`, if a version can be put before it.
fn version_at(stored: &[u8], document: &Value) -> Option<usize> {
    #[derive(Deserialize)]
    struct Parts<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let metadata = document.get("metadata")?.as_object()?;
    if metadata.is_empty() || metadata.contains_key("resourceVersion") {
        return None;
    }
    let parts: Parts<'_> = serde_json::from_slice(stored).ok()?;
    // The text is a part of `stored`, and its first byte is the brace.
    let offset = parts.metadata.get().as_ptr().addr().checked_sub(stored.as_ptr().addr())?;
    Some(offset + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(stored: &str, shown: &str, held_once: bool) {
        let bytes = Bytes::from(stored.to_owned());
        let object =
            CachedObject::new(crate::registry::named("pods"), bytes.clone(), 7.into()).unwrap();
        assert_eq!(object.json(), shown);
        assert_eq!(object.json().len(), object.json_len());
        for size in [1, 5, 16, shown.len()] {
            let mut whole = BytesMut::new();
            for skipped in (0..shown.len()).step_by(size) {
                object.put_json_part(skipped, size, &mut whole);
            }
            assert_eq!(whole, shown, "in parts of {size}");
        }
        assert_eq!(object.document(), serde_json::from_str::<Value>(shown).unwrap());
        assert_eq!(object.stored.as_ptr() == bytes.as_ptr(), held_once, "{stored}");
        let later = object.at(12.into());
        assert_eq!(later.document()["metadata"]["resourceVersion"], "12");
        assert_eq!(later.stored.as_ptr() == bytes.as_ptr(), held_once, "{stored}");
    }

    #[test]
    fn stored_bytes_are_served_with_their_version_and_held_once() {
        check(
            r#"{"kind":"Pod","metadata":{"name":"a"},"spec":{"x":{"metadata":{}}}}"#,
            r#"{"kind":"Pod","metadata":{"resourceVersion":"7","name":"a"},"spec":{"x":{"metadata":{}}}}"#,
            true,
        );
        // A text that looks like the place is none, and an inner object of that name neither.
        check(
            r#"{"data":{"metadata":{"a":"\"metadata\":{"}},"metadata":{"name":"a"}}"#,
            r#"{"data":{"metadata":{"a":"\"metadata\":{"}},"metadata":{"resourceVersion":"7","name":"a"}}"#,
            true,
        );
        check(
            "{ \"metadata\" :\n { \"name\": \"a\" } }",
            "{ \"metadata\" :\n {\"resourceVersion\":\"7\", \"name\": \"a\" } }",
            true,
        );
    }

    #[test]
    fn what_others_stored_is_served_as_well() {
        check(
            r#"{"metadata":{"name":"a","resourceVersion":"3"}}"#,
            r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#,
            false,
        );
        check(r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":"7"}}"#, false);
        check(r#"{"spec":1}"#, r#"{"metadata":{"resourceVersion":"7"},"spec":1}"#, false);
        check(
            r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#,
            r#"{"metadata":{"name":"b","resourceVersion":"7"}}"#,
            false,
        );
        assert!(
            CachedObject::new(crate::registry::named("pods"), Bytes::from_static(b"{"), 7.into())
                .is_err()
        );
    }

    #[test]
    fn selectors_see_names_labels_and_fields() {
        let pod = json!({
            "metadata": {"name": "a", "namespace": "n", "labels": {"x": "1", "y": ""}},
            "spec": {"nodeName": "n1"},
        });
        let object = CachedObject::new(
            crate::registry::named("pods"),
            Bytes::from(pod.to_string()),
            7.into(),
        )
        .unwrap();
        assert_eq!((object.label("x"), object.label("y")), (Some("1"), Some("")));
        assert_eq!(object.label("z"), None);
        assert_eq!(object.field("metadata.namespace"), Some("n"));
        assert_eq!(object.field("spec.nodeName"), Some("n1"));
        assert_eq!(object.field("status.phase"), Some(""));
        assert_eq!(object.field("spec.image"), None);
    }

    #[test]
    fn debug_output_never_shows_content() {
        let stored = Bytes::from_static(br#"{"metadata":{"name":"a"},"data":{"k":"hunter2"}}"#);
        let object =
            CachedObject::new(crate::registry::named("secrets"), stored, 7.into()).unwrap();
        assert!(!format!("{object:?}").contains("hunter2"));
    }
}
