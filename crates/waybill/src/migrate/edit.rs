//! Changes in the text of a manifest, so that comments and the order of its author stay.
//!
//! The parser says where each value stands; only that place is written anew. The result is read again
//! and compared with what was meant: if it is not the same, as with anchors, the caller writes the
//! whole document.

use std::{collections::BTreeMap, ops::Range};

use granit_parser::{Event, Parser, Span, StructureStyle};
use serde_json::Value;

use super::plan::Change;

/// Changes a document, given as JSON.
pub(super) fn apply(document: &mut Value, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Replace { pointer, value } => {
                if let Some(place) = document.pointer_mut(pointer) {
                    *place = value.clone();
                }
            }
            Change::Remove { list, at } => {
                let Some(items) = document.pointer_mut(list).and_then(Value::as_array_mut) else {
                    continue;
                };
                if *at < items.len() {
                    items.remove(*at);
                }
                if items.is_empty() {
                    remove_field(document, list);
                }
            }
            Change::Prepend { list, items } => prepend(document, list, items),
        }
    }
}

fn prepend(document: &mut Value, list: &str, items: &[Value]) {
    let Some((parent, field)) = list.rsplit_once('/') else { return };
    let Some(Value::Object(parent)) = document.pointer_mut(parent) else { return };
    let found = parent.entry(field).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(found) = found {
        found.splice(0..0, items.iter().cloned());
    }
}

fn remove_field(document: &mut Value, pointer: &str) {
    if let Some((parent, field)) = pointer.rsplit_once('/')
        && let Some(Value::Object(parent)) = document.pointer_mut(parent)
    {
        parent.remove(field);
    }
}

/// The changed text of a file with many documents, if all changes are of values and can be made in
/// place. Changes stand by document.
pub(super) fn in_place(text: &str, changes: &BTreeMap<usize, Vec<Change>>) -> Option<String> {
    let places = places(text)?;
    let mut edits = Vec::new();
    for (document, changes) in changes {
        for change in changes {
            let Change::Replace { pointer, value } = change else { return None };
            let place = places.get(*document)?.get(pointer)?;
            edits.push((place.range.clone(), place.written(value)?));
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut result = text.to_owned();
    for (range, replacement) in edits.into_iter().rev() {
        result.replace_range(range, &replacement);
    }
    is_as_meant(text, &result, changes).then_some(result)
}

/// Reads all documents of a text.
pub(super) fn documents(text: &str) -> Option<Vec<Value>> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options).ok()
}

fn is_as_meant(before: &str, after: &str, changes: &BTreeMap<usize, Vec<Change>>) -> bool {
    let (Some(mut meant), Some(found)) = (documents(before), documents(after)) else {
        return false;
    };
    for (document, changes) in changes {
        if let Some(document) = meant.get_mut(*document) {
            apply(document, changes);
        }
    }
    meant == found
}

/// Where a value stands in the text, and how it is written there.
struct Place {
    range: Range<usize>,
    column: usize,
    block: bool,
}

impl Place {
    fn written(&self, value: &Value) -> Option<String> {
        if !self.block {
            return serde_json::to_string(value).ok();
        }
        let text = serde_saphyr::to_string(value).ok()?;
        Some(text.trim_end().replace('\n', &format!("\n{}", " ".repeat(self.column))))
    }
}

/// The places of all values, by JSON pointer, of each document; none for a text with anchors.
fn places(text: &str) -> Option<Vec<BTreeMap<String, Place>>> {
    let events = Parser::new_from_str(text).collect::<Result<Vec<_>, _>>().ok()?;
    let data = |(event, _): &(Event<'_>, Span)| !matches!(event, Event::Comment(..));
    let mut events = events.into_iter().filter(data);
    let mut found = Vec::new();
    while let Some((event, _)) = events.next() {
        if let Event::DocumentStart(..) = event {
            let mut places = BTreeMap::new();
            let root = events.next()?;
            walk(root, &mut events, String::new(), &mut places)?;
            found.push(places);
        }
    }
    Some(found)
}

/// Takes one value from the events; answers where it ends.
fn walk<'t>(
    (event, span): (Event<'t>, Span),
    events: &mut impl Iterator<Item = (Event<'t>, Span)>,
    pointer: String,
    places: &mut BTreeMap<String, Place>,
) -> Option<usize> {
    let range = span.byte_range()?;
    let (block, end) = match event {
        Event::Scalar(_, _, 0, _) => (false, range.end),
        Event::MappingStart(style, 0, _) => {
            let mut end = range.end;
            loop {
                let (key, key_span) = events.next()?;
                match key {
                    Event::MappingEnd => {
                        let flow_end = key_span.byte_range()?.end;
                        break (is_block(style), if is_block(style) { end } else { flow_end });
                    }
                    Event::Scalar(key, _, 0, _) => {
                        let key = key.replace('~', "~0").replace('/', "~1");
                        let value = events.next()?;
                        end = walk(value, events, format!("{pointer}/{key}"), places)?;
                    }
                    _ => return None,
                }
            }
        }
        Event::SequenceStart(style, 0, _) => {
            let mut end = range.end;
            let mut at = 0;
            loop {
                let item = events.next()?;
                if let Event::SequenceEnd = item.0 {
                    let flow_end = item.1.byte_range()?.end;
                    break (is_block(style), if is_block(style) { end } else { flow_end });
                }
                end = walk(item, events, format!("{pointer}/{at}"), places)?;
                at += 1;
            }
        }
        _ => return None,
    };
    let place = Place { range: range.start..end, column: span.start.col(), block };
    places.insert(pointer, place);
    Some(end)
}

fn is_block(style: StructureStyle) -> bool {
    matches!(style, StructureStyle::Block)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(before: &str, pointer: &str, after: Option<&str>) {
        let change = Change::Replace {
            pointer: pointer.to_owned(),
            value: json!({"csiSecretRef": {"driver": "d", "key": "k"}}),
        };
        let changes = [(0, vec![change])].into();
        assert_eq!(in_place(before, &changes).as_deref(), after);
    }

    #[test]
    fn a_block_is_replaced_with_its_indent_and_what_is_around_stays() {
        check(
            "# my pod\nenv:\n- name: A # first\n  valueFrom:\n    secretKeyRef:\n      name: s\n      key: k\n# between\n- name: B\n",
            "/env/0/valueFrom",
            Some(
                "# my pod\nenv:\n- name: A # first\n  valueFrom:\n    csiSecretRef:\n      driver: d\n      key: k\n# between\n- name: B\n",
            ),
        );
    }

    #[test]
    fn flow_stays_flow() {
        check(
            "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}] # all\n",
            "/env/0/valueFrom",
            Some(
                "env: [{name: A, valueFrom: {\"csiSecretRef\":{\"driver\":\"d\",\"key\":\"k\"}}}] # all\n",
            ),
        );
    }

    #[test]
    fn a_text_with_anchors_is_left_to_who_writes_it_whole() {
        check("a: &x {b: c}\nd: *x\n", "/a", None);
        check("a: {b: c}\n", "/nowhere", None);
    }

    #[test]
    fn lists_lose_and_gain_items() {
        let mut document = json!({"c": {"envFrom": [{"a": 1}]}});
        apply(
            &mut document,
            &[
                Change::Remove { list: "/c/envFrom".into(), at: 0 },
                Change::Prepend { list: "/c/env".into(), items: vec![json!({"name": "A"})] },
            ],
        );
        assert_eq!(document, json!({"c": {"env": [{"name": "A"}]}}));
    }
}
