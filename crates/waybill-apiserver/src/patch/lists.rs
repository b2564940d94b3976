//! How the lists of an object and of a strategic merge patch become one.
//!
//! Elements are found by their keys through hash tables: both lists come from peers, and comparing
//! each with each would be quadratic in the size of a request.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{
    PatchError,
    schema::{Fields, Rule, rule_of},
    strategic::merge_object,
    strip::{self, Directive},
};

/// Merges the list `field` of an object with `patch`, and puts it into `order`, if there is one.
pub(super) fn merge(
    field: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
    order: Option<Vec<Value>>,
    fields: Fields,
) -> Result<Vec<Value>, PatchError> {
    match rule_of(fields, field) {
        Some(Rule::Keyed(key, element)) => {
            merge_keyed(Keyed { field, key, element }, original, patch, order)
        }
        Some(Rule::Set) => merge_set(field, original, patch, order),
        // Without a strategy there is nothing to order: a patch holds the whole list or nothing.
        Some(Rule::Object(_)) | None if patch.is_empty() && order.is_some() => Ok(original),
        Some(Rule::Object(_)) | None => Ok(strip::list(patch)),
    }
}

/// A list whose elements are told apart by a field.
#[derive(Clone, Copy)]
struct Keyed<'a> {
    field: &'a str,
    key: &'static str,
    element: Fields,
}

fn merge_keyed(
    list: Keyed<'_>,
    mut original: Vec<Value>,
    patch: Vec<Value>,
    order: Option<Vec<Value>>,
) -> Result<Vec<Value>, PatchError> {
    let key_of = |item: &Value| item.get(list.key).cloned().unwrap_or_default();
    let order = order.map(|order| list.keys(&order)).transpose()?;
    let server_order = ranks(original.iter().map(key_of));
    let changes = Changes::of(list, patch)?;
    if let Some(order) = &order {
        check_order(list.field, changes.merged.iter().map(|(key, _)| key), order)?;
    }
    if changes.replaces {
        original = Vec::new();
    }
    if original.iter().any(|item| !item.is_object()) {
        return Err(PatchError::MixedList);
    }
    original.retain(|item| !item.get(list.key).is_some_and(|key| changes.deleted.contains(key)));

    let patch_order: Vec<_> = changes.merged.iter().map(|(key, _)| key.clone()).collect();
    let mut positions = ranks(original.iter().map(key_of));
    for (key, patch) in changes.merged {
        match positions.get(&key).and_then(|&at| original.get_mut(at)) {
            Some(Value::Object(current)) => {
                *current = merge_object(std::mem::take(current), patch, list.element)?;
            }
            _ => {
                positions.insert(key, original.len());
                original.push(Value::Object(strip::object(patch)));
            }
        }
    }
    let named = ranks(order.unwrap_or(patch_order));
    let items = original.into_iter().map(|item| (key_of(&item), item)).collect();
    Ok(arrange(items, &named, &server_order))
}

fn merge_set(
    field: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
    order: Option<Vec<Value>>,
) -> Result<Vec<Value>, PatchError> {
    if original.iter().chain(&patch).any(Value::is_array) {
        return Err(PatchError::ListOfLists);
    }
    if original.iter().chain(&patch).any(Value::is_object) {
        return Err(PatchError::MixedList);
    }
    if let Some(order) = &order {
        check_order(field, patch.iter(), order)?;
    }
    let server_order = ranks(original.iter().cloned());
    let named = ranks(order.unwrap_or_else(|| patch.clone()));
    let mut seen = HashSet::new();
    let items = original
        .into_iter()
        .chain(patch)
        .filter(|value| seen.insert(value.clone()))
        .map(|value| (value.clone(), value))
        .collect();
    Ok(arrange(items, &named, &server_order))
}

impl Keyed<'_> {
    /// The keys that `$setElementOrder` lists.
    fn keys(self, order: &[Value]) -> Result<Vec<Value>, PatchError> {
        order.iter().map(|item| self.key(item.get(self.key))).collect()
    }

    /// The key of an element, which it must have.
    fn key(self, found: Option<&Value>) -> Result<Value, PatchError> {
        let found = found.filter(|key| !key.is_null());
        found.cloned().ok_or(PatchError::MergeKey(self.key))
    }
}

/// What a patch does to a list with keys.
struct Changes {
    /// Whether the elements of the patch take the place of all others.
    replaces: bool,
    deleted: HashSet<Value>,
    /// Elements to merge or to add, with their keys.
    merged: Vec<(Value, Map<String, Value>)>,
}

impl Changes {
    fn of(list: Keyed<'_>, patch: Vec<Value>) -> Result<Self, PatchError> {
        let mut changes = Self { replaces: false, deleted: HashSet::new(), merged: Vec::new() };
        for item in patch {
            let Value::Object(mut item) = item else { return Err(PatchError::MixedList) };
            let directive = Directive::take(&mut item)?;
            let key = list.key(item.get(list.key));
            match directive {
                Some(Directive::Delete) => {
                    changes.deleted.insert(key?);
                }
                Some(Directive::Merge) => return Err(PatchError::MergeDirectiveInList),
                Some(Directive::Replace) => changes.replaces = true,
                None => changes.merged.push((key?, item)),
            }
        }
        Ok(changes)
    }
}

/// Every element of the patch must stand in the order, and in that order.
fn check_order<'a>(
    field: &str,
    patch: impl Iterator<Item = &'a Value>,
    order: &[Value],
) -> Result<(), PatchError> {
    let mut rest = order.iter();
    for key in patch {
        if !order.is_empty() && !rest.any(|next| next == key) {
            return Err(PatchError::ElementOrder(field.to_owned()));
        }
    }
    Ok(())
}

/// Puts the named elements into the order of their names, and each other element where the server
/// had it: before the first named one that it preceded there. So what a patch adds comes early.
fn arrange(
    items: Vec<(Value, Value)>,
    named: &HashMap<Value, usize>,
    server_order: &HashMap<Value, usize>,
) -> Vec<Value> {
    let mut arranged = Vec::with_capacity(items.len());
    let (mut wanted, others): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|(key, _)| named.contains_key(key));
    wanted.sort_by_key(|(key, _)| named.get(key).copied());
    let mut others = others.into_iter().peekable();
    for (key, item) in wanted {
        let at = server_order.get(&key);
        let precedes = |(other, _): &(Value, Value)| match (server_order.get(other), at) {
            (Some(other), Some(at)) => other < at,
            _ => false,
        };
        while let Some((_, other)) = others.next_if(precedes) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, other)| other));
    arranged
}

/// The position of each key; of equal ones, the first counts.
fn ranks(keys: impl IntoIterator<Item = Value>) -> HashMap<Value, usize> {
    let mut ranks = HashMap::new();
    for (position, key) in keys.into_iter().enumerate() {
        ranks.entry(key).or_insert(position);
    }
    ranks
}
