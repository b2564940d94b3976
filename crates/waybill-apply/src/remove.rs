//! Taking fields out of an object.

use serde_json::{Map, Value};

use crate::{
    element,
    schema::{Node, Schema, find},
    set::{FieldSet, Tree, below, is_member},
};

/// What becomes of objects and lists that nothing is left of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emptied {
    /// They go, too.
    Gone,
    /// They are null: whoever manages them as such still does.
    Null,
}

/// `object` without the members of `set`.
pub(crate) fn without(schema: &Schema, object: &Value, set: &FieldSet, emptied: Emptied) -> Value {
    let left = Walk { schema, emptied }.visit(schema.root(), object, &set.0);
    left.unwrap_or_else(|| Value::Object(Map::new()))
}

struct Walk<'s> {
    schema: &'s Schema,
    emptied: Emptied,
}

impl Walk<'_> {
    fn visit(&self, node: &Node, value: &Value, tree: &Tree) -> Option<Value> {
        match (node, value) {
            (Node::Open | Node::Map(_) | Node::Struct(_), Value::Object(entries)) => {
                let kept: Map<_, _> = entries
                    .iter()
                    .filter_map(|(name, value)| {
                        let kept = self.entry(node, name, value, tree)?;
                        Some((name.clone(), kept))
                    })
                    .collect();
                (!kept.is_empty()).then_some(Value::Object(kept))
            }
            (Node::Set, Value::Array(items)) => some(items.iter().filter_map(|item| {
                let step = element::value(item);
                self.item(&Node::Leaf, step.as_deref(), item, tree)
            })),
            (Node::Keyed(keys, node), Value::Array(items)) => {
                let node = self.schema.node(*node);
                some(items.iter().filter_map(|item| {
                    let step = element::keyed(keys, item);
                    self.item(node, step.as_deref(), item, tree)
                }))
            }
            // A list, a map or an object that is owned as a whole goes as a whole, if a part of it is to go.
            (_, Value::Array(_) | Value::Object(_)) => None,
            (_, _) => Some(value.clone()),
        }
    }

    fn entry(&self, node: &Node, name: &str, value: &Value, tree: &Tree) -> Option<Value> {
        let step = element::field(name);
        if tree.get(&step).is_some_and(is_member) {
            return None;
        }
        let Some(inner) = below(tree, &step) else { return Some(value.clone()) };
        let node = match node {
            Node::Map(entry) => self.schema.node(*entry),
            Node::Open => &Node::Open,
            Node::Struct(fields) => match find(fields, name) {
                Some(field) => self.schema.node(field.node),
                None => &Node::Leaf,
            },
            Node::Leaf | Node::Set | Node::Keyed(..) => &Node::Leaf,
        };
        let left = self.visit(node, value, inner);
        match self.emptied {
            Emptied::Gone => left,
            Emptied::Null => left.or(Some(Value::Null)),
        }
    }

    fn item(&self, node: &Node, step: Option<&str>, item: &Value, tree: &Tree) -> Option<Value> {
        let Some(step) = step else { return Some(item.clone()) };
        if tree.get(step).is_some_and(is_member) {
            return None;
        }
        match below(tree, step) {
            Some(inner) => self.visit(node, item, inner),
            None => Some(item.clone()),
        }
    }
}

fn some(items: impl Iterator<Item = Value>) -> Option<Value> {
    let items: Vec<_> = items.collect();
    (!items.is_empty()).then_some(Value::Array(items))
}
