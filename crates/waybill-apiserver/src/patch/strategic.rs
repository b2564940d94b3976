//! Strategic merge patch: a merge patch that knows which lists are merged, and directives.
//!
//! | Directive | Meaning |
//! |---|---|
//! | `$patch: replace` | the object, or the list around it, becomes what the patch says |
//! | `$patch: delete` | the object becomes empty; in a list, the element with this key goes |
//! | `$retainKeys` | fields that the list does not name go, as with the members of a union |
//! | `$deleteFromPrimitiveList/f` | these values leave the list of scalars `f` |
//! | `$setElementOrder/f` | the elements of `f` stand in this order |
//!
//! This is the side that applies. Patches themselves are computed by clients, `kubectl apply` first
//! of all, and what they send is what must work.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use super::{
    PatchError, lists, parse_object,
    schema::{Fields, PLAIN, Rule, rule_of},
    strip::{self, Directive, strip},
};

/// Applies `patch` to `to`, whose type is told by `fields`.
pub(super) fn apply(patch: &[u8], to: &Value, fields: Fields) -> Result<Value, PatchError> {
    let patch = parse_object(patch)?;
    let original = to.as_object().cloned().unwrap_or_default();
    merge_object(original, patch, fields).map(Value::Object)
}

/// Merges `patch` into `original`. Recursion follows the patch, whose depth its parser bounds.
pub(super) fn merge_object(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    fields: Fields,
) -> Result<Map<String, Value>, PatchError> {
    match Directive::take(&mut patch)? {
        Some(Directive::Delete) => return Ok(Map::new()),
        Some(Directive::Replace) => return Ok(strip::object(patch)),
        // Upstream documents this one and refuses it; it says what happens anyway.
        Some(Directive::Merge) | None => {}
    }
    retain_keys(&mut original, &mut patch)?;
    let Parts { mut orders, deletions, values } = Parts::of(patch)?;
    for (field, value) in values {
        let order = orders.remove(&field);
        merge_field(&mut original, field, value, order, fields)?;
    }
    for (field, order) in orders {
        if let Some(Value::Array(list)) = original.get_mut(&field) {
            let unordered = std::mem::take(list);
            *list = lists::merge(&field, unordered, Vec::new(), Some(order), fields)?;
        }
    }
    for (field, deleted) in deletions {
        if let Some(Value::Array(list)) = original.get_mut(&field) {
            list.retain(|value| !deleted.contains(value));
        }
    }
    Ok(original)
}

fn merge_field(
    original: &mut Map<String, Value>,
    field: String,
    value: Value,
    order: Option<Vec<Value>>,
    fields: Fields,
) -> Result<(), PatchError> {
    let rule = rule_of(fields, &field);
    let current = original.get_mut(&field);
    match (current, value) {
        (_, Value::Null) => {
            original.remove(&field);
        }
        (Some(Value::Object(current)), Value::Object(patch)) => {
            let inner = match rule {
                Some(Rule::Object(inner)) => inner,
                Some(Rule::Keyed(..) | Rule::Set) | None => PLAIN,
            };
            *current = merge_object(std::mem::take(current), patch, inner)?;
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            *current = lists::merge(&field, std::mem::take(current), patch, order, fields)?;
        }
        // Nothing to merge with: a new list is taken as it stands, but in the order asked for.
        (_, Value::Array(patch)) if order.is_some() => {
            let list = lists::merge(&field, Vec::new(), patch, order, fields)?;
            original.insert(field, Value::Array(list));
        }
        (_, value) => {
            if let Some(value) = strip(value) {
                original.insert(field, value);
            }
        }
    }
    Ok(())
}

/// A patch taken apart.
struct Parts {
    orders: BTreeMap<String, Vec<Value>>,
    deletions: BTreeMap<String, HashSet<Value>>,
    values: Map<String, Value>,
}

impl Parts {
    fn of(patch: Map<String, Value>) -> Result<Self, PatchError> {
        let mut parts =
            Self { orders: BTreeMap::new(), deletions: BTreeMap::new(), values: Map::new() };
        for (field, value) in patch {
            if let Some(list) = field.strip_prefix(strip::SET_ELEMENT_ORDER) {
                let Value::Array(order) = value else {
                    return Err(PatchError::ElementOrderFormat);
                };
                parts.orders.insert(list.to_owned(), order);
            } else if let Some(list) = field.strip_prefix(strip::DELETE_FROM_PRIMITIVE_LIST) {
                let Value::Array(deleted) = value else {
                    return Err(PatchError::PrimitiveListFormat);
                };
                parts.deletions.insert(list.to_owned(), deleted.into_iter().collect());
            } else {
                parts.values.insert(field, value);
            }
        }
        Ok(parts)
    }
}

/// Obeys `$retainKeys`: whatever the patch sets must be among the names, and the rest goes.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let Some(names) = patch.remove(strip::RETAIN_KEYS) else { return Ok(()) };
    let names = names.as_array().ok_or(PatchError::RetainKeysFormat)?;
    let names: HashSet<_> = names.iter().filter_map(Value::as_str).collect();
    let stray = |(field, value): (&String, &Value)| {
        !(value.is_null() || strip::is_directive(field) || names.contains(field.as_str()))
    };
    if patch.iter().any(stray) {
        return Err(PatchError::RetainKeysFormat);
    }
    original.retain(|field, _| names.contains(field.as_str()));
    Ok(())
}

#[cfg(test)]
mod tests;
