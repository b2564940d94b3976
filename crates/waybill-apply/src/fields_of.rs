//! The fields that an object mentions, as a set.

use serde_json::Value;

use crate::{
    element,
    schema::{Node, Schema, find},
    set::{FieldSet, Tree, below, graft, is_member},
};

/// The fields of `object`, without those of `ignored` and what lies below them.
pub(crate) fn fields_of(schema: &Schema, object: &Value, ignored: &FieldSet) -> FieldSet {
    let mut tree = Tree::new();
    Walk { schema }.visit(schema.root(), object, Some(&ignored.0), &mut tree);
    FieldSet(tree)
}

struct Walk<'s> {
    schema: &'s Schema,
}

impl Walk<'_> {
    /// Adds what lies below `value`; true if the value itself is a member.
    fn visit(&self, node: &Node, value: &Value, ignored: Option<&Tree>, tree: &mut Tree) -> bool {
        match (node, value) {
            // What is null or empty is mentioned, though nothing lies below it.
            (_, Value::Null) => true,
            (Node::Leaf, _) => true,
            (Node::Open | Node::Map(_) | Node::Struct(_), Value::Object(entries)) => {
                for (name, value) in entries {
                    self.entry(node, name, value, ignored, tree);
                }
                entries.is_empty()
            }
            (Node::Open, _) => true,
            (Node::Set, Value::Array(items)) => {
                for step in items.iter().filter_map(element::value) {
                    graft(tree, step, true, Tree::new());
                }
                false
            }
            (Node::Keyed(keys, item), Value::Array(items)) => {
                let item = self.schema.node(*item);
                for value in items {
                    let Some(step) = element::keyed(keys, value) else { continue };
                    let mut inner = Tree::new();
                    // Of elements that stand twice only the place is known.
                    if !tree.contains_key(&step) {
                        self.visit(item, value, None, &mut inner);
                    }
                    graft(tree, step, true, inner);
                }
                false
            }
            (Node::Map(_) | Node::Struct(_) | Node::Set | Node::Keyed(..), _) => true,
        }
    }

    fn entry(
        &self,
        node: &Node,
        name: &str,
        value: &Value,
        ignored: Option<&Tree>,
        tree: &mut Tree,
    ) {
        let step = element::field(name);
        if ignored.and_then(|tree| tree.get(&step)).is_some_and(is_member) {
            return;
        }
        let (inner_node, is_entry) = match node {
            Node::Map(entry) => (self.schema.node(*entry), true),
            Node::Open => (&Node::Open, true),
            Node::Struct(fields) => match find(fields, name) {
                Some(field) => (self.schema.node(field.node), false),
                None => (&Node::Leaf, true),
            },
            Node::Leaf | Node::Set | Node::Keyed(..) => (&Node::Leaf, true),
        };
        let mut inner = Tree::new();
        let inner_ignored = ignored.and_then(|tree| below(tree, &step));
        let member = self.visit(inner_node, value, inner_ignored, &mut inner);
        graft(tree, step, member || is_entry, inner);
    }
}
