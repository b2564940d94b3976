//! An object as the cache keeps it: the bytes of the store, and what selectors look at.
//!
//! What clients get differs from what is stored by the `resourceVersion` alone, which is known only
//! once the write is. So the bytes are held once, shared with the store, and the version is put in
//! when they are copied into an answer. Items of a list do not say what they are; that is left out then.

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
    /// Where `stored` says what the object is, in the order of the bytes; empty if it does not.
    type_at: [Span; 2],
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
        let (stored, version, places) = match Places::find(&stored, &document) {
            Some(places) => (stored, member(revision), places),
            // Not as we write it: by another program, or by an older version of this one.
            None => rewritten(serde_json::from_slice(&stored)?, revision),
        };
        let Places { version_at, type_at } = places;
        Ok(Self { key, revision, stored, version, version_at, type_at, labels, fields })
    }

    /// The same object at another revision.
    pub(super) fn at(&self, revision: ResourceVersion) -> Self {
        if self.version.is_empty() {
            let (stored, version, places) = rewritten(self.document(), revision);
            let Places { version_at, type_at } = places;
            return Self { revision, stored, version, version_at, type_at, ..self.clone() };
        }
        Self { revision, version: member(revision), ..self.clone() }
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
    pub(crate) fn put_json_part(&self, skipped: usize, most: usize, to: &mut BytesMut) {
        let (before, after) = self.stored.split_at_checked(self.version_at).unwrap_or_default();
        put_part([before, self.version.as_bytes(), after], skipped, most, to);
    }

    /// Appends the document as an item of a list: with its version, and without its kind.
    pub(crate) fn put_item(&self, to: &mut BytesMut) {
        for part in self.item_parts() {
            to.put_slice(part);
        }
    }

    /// Appends at most `most` bytes of what [`Self::put_item`] appends, after the first `skipped`.
    pub(crate) fn put_item_part(&self, skipped: usize, most: usize, to: &mut BytesMut) {
        put_part(self.item_parts(), skipped, most, to);
    }

    /// How many bytes [`Self::put_item`] appends.
    pub(crate) fn item_len(&self) -> usize {
        self.json_len() - self.type_at.iter().map(Span::len).sum::<usize>()
    }

    fn item_parts(&self) -> [&[u8]; 5] {
        let [first, second] = self.type_at;
        let part = |from: usize, to: usize| self.stored.get(from..to).unwrap_or_default();
        let (version, at) = (self.version.as_bytes(), self.version_at);
        let (a, b, c, d, end) =
            (first.start(), first.end(), second.start(), second.end(), self.stored.len());
        // The version stands in none of what is left out.
        if at < a {
            [part(0, at), version, part(at, a), part(b, c), part(d, end)]
        } else if at < c {
            [part(0, a), part(b, at), version, part(at, c), part(d, end)]
        } else {
            [part(0, a), part(b, c), part(d, at), version, part(at, end)]
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

    /// Some fields of it, for those who look at no others.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_slice(&self.stored).ok()
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

/// Appends at most `most` bytes of `parts` after the first `skipped`.
fn put_part<const N: usize>(
    parts: [&[u8]; N],
    mut skipped: usize,
    mut most: usize,
    to: &mut BytesMut,
) {
    for part in parts {
        let rest = part.get(skipped..).unwrap_or_default();
        skipped = skipped.saturating_sub(part.len());
        let taken = rest.get(..most).unwrap_or(rest);
        most -= taken.len();
        to.put_slice(taken);
    }
}

/// A part of the stored bytes. No object is larger than a few megabytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn start(self) -> usize {
        self.start as usize
    }

    fn end(self) -> usize {
        self.end as usize
    }

    fn len(&self) -> usize {
        self.end().saturating_sub(self.start())
    }
}

/// What of the stored bytes is not as it is sent.
#[derive(Clone, Copy, Default)]
struct Places {
    /// Where the first member of `metadata` begins.
    version_at: usize,
    type_at: [Span; 2],
}

/// The members of a document that matter here, as they are written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    #[serde(borrow, default)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
}

impl Places {
    /// Where a version can be put into `stored`, and where its kind stands; nothing if it is not as we write it.
    fn find(stored: &[u8], document: &Value) -> Option<Self> {
        let metadata = document.get("metadata")?.as_object()?;
        if metadata.is_empty() || metadata.contains_key("resourceVersion") {
            return None;
        }
        let members: Members<'_> = serde_json::from_slice(stored).ok()?;
        // The first byte is the brace.
        let version_at = place(stored, members.metadata?)? + 1;
        Some(Self { version_at, type_at: members.types(stored)? })
    }
}

impl Members<'_> {
    /// Where the two members are that say what the object is; nothing if they are not as we write them.
    fn types(&self, stored: &[u8]) -> Option<[Span; 2]> {
        let mut found = [Span::default(); 2];
        let named = [("\"apiVersion\":", self.api_version), ("\"kind\":", self.kind)];
        for (span, (name, value)) in found.iter_mut().zip(named) {
            let Some(value) = value else { continue };
            let at = place(stored, value)?;
            let start = at.checked_sub(name.len())?;
            if stored.get(start..at)? != name.as_bytes() {
                return None;
            }
            let end = at + value.get().len();
            // The comma that follows; that before the last, of which there is one unless it is alone.
            let (start, end) = match (stored.get(end)?, stored.get(start.checked_sub(1)?)?) {
                (b',', _) => (start, end + 1),
                (_, b',') => (start - 1, end),
                _ => (start, end),
            };
            *span = Span { start: u32::try_from(start).ok()?, end: u32::try_from(end).ok()? };
        }
        found.sort_unstable();
        let [first, second] = found;
        // Side by side at the end, they would share a comma.
        (first.end <= second.start || second == Span::default()).then_some(found)
    }
}

/// Where `part`, which is one of `stored`, begins in it.
fn place(stored: &[u8], part: &RawValue) -> Option<usize> {
    part.get().as_ptr().addr().checked_sub(stored.as_ptr().addr())
}

/// `document` as we write it, with its version.
fn rewritten(document: Value, revision: ResourceVersion) -> (Bytes, Box<str>, Places) {
    let stored = to_bytes(&with_version(document, revision));
    let members = serde_json::from_slice::<Members<'_>>(&stored).ok();
    let type_at = members.and_then(|members| members.types(&stored)).unwrap_or_default();
    (stored, "".into(), Places { version_at: 0, type_at })
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
    fn items_of_lists_do_not_say_what_they_are() {
        let check = |stored: &str, held_once: bool| {
            let bytes = Bytes::from(stored.to_owned());
            let object =
                CachedObject::new(crate::registry::named("pods"), bytes.clone(), 7.into()).unwrap();
            for object in [&object, &object.at(7.into())] {
                let mut item = BytesMut::new();
                object.put_item(&mut item);
                assert_eq!(item.len(), object.item_len(), "{stored}");
                let found: Value = serde_json::from_slice(&item).unwrap();
                let expected = crate::document::without_type(object.document());
                assert_eq!(found, expected, "{stored}");
                assert!(found["metadata"]["resourceVersion"] == "7" && found.get("kind").is_none());
                for size in [1, 7, 30] {
                    let mut parts = BytesMut::new();
                    for skipped in (0..item.len()).step_by(size) {
                        object.put_item_part(skipped, size, &mut parts);
                    }
                    assert_eq!(parts, item, "in parts of {size}");
                }
            }
            assert_eq!(object.stored.as_ptr() == bytes.as_ptr(), held_once, "{stored}");
        };
        let meta = r#""metadata":{"name":"a","kind":"k"}"#;
        check(&format!(r#"{{"apiVersion":"v1","kind":"Pod",{meta},"spec":{{"kind":1}}}}"#), true);
        check(&format!(r#"{{"kind":"Pod","apiVersion":"v1",{meta}}}"#), true);
        check(&format!(r#"{{"apiVersion":"v1","data":{{"a":1}},"kind":"Pod",{meta}}}"#), true);
        check(&format!(r#"{{"apiVersion":"v1",{meta},"kind":"Pod"}}"#), true);
        check(&format!(r#"{{"kind":"Pod",{meta},"spec":{{}},"apiVersion":"v1"}}"#), true);
        check(&format!(r#"{{{meta},"kind":"Pod","spec":2}}"#), true);
        check(&format!("{{{meta}}}"), true);
        // As other programs may write it.
        check(&format!(r#"{{{meta},"apiVersion":"v1","kind":"Pod"}}"#), false);
        check(&format!(r#"{{ "kind" : "Pod", {meta} }}"#), false);
        check(r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"3"}}"#, false);
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
