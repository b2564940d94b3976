//! Sets that hold the named fields on the way to their members, too.

use serde_json::Value;

use crate::{
    schema::{Node, Schema, find},
    set::{FieldSet, Tree, graft, is_member, steps},
};

/// `set`, with every named field of an object below which a member lies. Entries of maps and elements of
/// lists are members for themselves already, or they are not meant.
pub(crate) fn with_named_fields(schema: &Schema, set: &FieldSet) -> FieldSet {
    FieldSet(visit(schema, Some(schema.root()), &set.0))
}

/// `set`, in which what has become atomic since it was written is a single member.
pub(crate) fn with_whole_fields(schema: &Schema, set: &FieldSet) -> FieldSet {
    FieldSet(whole(schema, schema.root(), &set.0))
}

fn visit(schema: &Schema, node: Option<&Node>, tree: &Tree) -> Tree {
    let mut found = Tree::new();
    for (step, inner) in steps(tree) {
        let (node, is_named) = node.map_or((None, false), |node| descend(schema, node, step));
        let below = inner.as_object().map(|inner| visit(schema, node, inner)).unwrap_or_default();
        let member = is_member(inner) || (is_named && !below.is_empty());
        graft(&mut found, step.clone(), member, below);
    }
    found
}

fn whole(schema: &Schema, node: &Node, tree: &Tree) -> Tree {
    let mut found = Tree::new();
    for (step, inner) in steps(tree) {
        let (below, member) = match (descend(schema, node, step).0, inner) {
            (Some(Node::Leaf), _) => (Tree::new(), true),
            (Some(node), Value::Object(tree)) => (whole(schema, node, tree), is_member(inner)),
            (None, Value::Object(tree)) => {
                let mut tree = tree.clone();
                tree.remove(crate::element::SELF);
                (tree, is_member(inner))
            }
            (_, _) => (Tree::new(), true),
        };
        graft(&mut found, step.clone(), member, below);
    }
    found
}

/// What stands below `step`, and whether the step is a named field of an object.
fn descend<'s>(schema: &'s Schema, node: &'s Node, step: &str) -> (Option<&'s Node>, bool) {
    match (node, step.split_at_checked(2)) {
        (Node::Struct(fields), Some(("f:", name))) => match find(fields, name) {
            Some(field) => (Some(schema.node(field.node)), true),
            None => (None, false),
        },
        (Node::Map(entry), Some(("f:", _))) => (Some(schema.node(*entry)), false),
        (Node::Keyed(_, item), Some(("k:", _))) => (Some(schema.node(*item)), false),
        _ => (None, false),
    }
}
