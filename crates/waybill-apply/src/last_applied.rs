//! From `kubectl apply` to `kubectl apply --server-side`: the annotation in which the former keeps what it
//! applied.
//!
//! What stands there as it stands in the object is `kubectl`'s own, so the latter may take it over. As long
//! as the annotation is there it is kept up to date, so that one can go back.

use serde_json::Value;

use crate::{compare::Comparison, fields_of::fields_of, set::FieldSet, track::Tracker};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How large the annotations of an object may be together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields that `kubectl apply` set in `live` and that have not changed since.
pub(crate) fn allowed(tracker: &Tracker<'_>, live: &Value) -> Option<FieldSet> {
    let text = annotation(live)?;
    let config: Value = serde_json::from_str(text).ok()?;
    if config.get("apiVersion")?.as_str()? != tracker.api_version {
        return None;
    }
    let schema = tracker.versions.schema(tracker.api_version)?;
    let live = tracker.versions.convert(live, tracker.api_version)?;
    let mut allowed = fields_of(schema, &config, &FieldSet::new());
    let found = Comparison::new(schema, &config, &live, &FieldSet::new());
    allowed.subtract(&found.changed);
    allowed.subtract(&found.removed);
    Some(allowed)
}

/// Writes `config` into the annotation of `applied`, if there is one.
pub(crate) fn renew(applied: &mut Value, config: &Value) {
    if annotation(applied).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations_mut(applied) else { return };
    // As upstream writes it: with a line feed.
    annotations.insert(ANNOTATION.to_owned(), Value::String(format!("{config}\n")));
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len())
        .sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(document: &Value) -> Option<&str> {
    let annotations = document.get("metadata")?.get("annotations")?;
    annotations.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

fn annotations_mut(document: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    document.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
