//! What differs between two objects of one kind, as sets of fields.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value};

use crate::{
    element,
    schema::{Field, Key, Node, NodeId, Schema, find},
    set::{FieldSet, Tree, below, graft, is_member},
};

/// What stands on the other side of a field that is always there.
static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// The fields in which two objects differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    /// What the new object has and the old one has not, or has otherwise.
    pub(crate) changed: FieldSet,
    /// What the old object has and the new one has not.
    pub(crate) removed: FieldSet,
}

impl Comparison {
    /// Compares `old` with `new`, without the fields of `ignored` and what lies below them.
    pub(crate) fn new(schema: &Schema, old: &Value, new: &Value, ignored: &FieldSet) -> Self {
        let mut found = Found::default();
        let pair = Pair { old: Some(old), new: Some(new) };
        Walk { schema }.compare(schema.root(), pair, Some(&ignored.0), &mut found);
        Self { changed: FieldSet(found.changed), removed: FieldSet(found.removed) }
    }
}

/// What stands at one place of both objects; at least one of them has something there.
#[derive(Clone, Copy)]
struct Pair<'v> {
    old: Option<&'v Value>,
    new: Option<&'v Value>,
}

/// What was found at one place and below it.
#[derive(Default)]
struct Found {
    changed: Tree,
    removed: Tree,
    is_changed: bool,
    is_removed: bool,
}

impl Found {
    /// Takes what was found below `step`.
    fn graft(&mut self, step: impl FnOnce() -> String, found: Self) {
        let changed = found.is_changed || !found.changed.is_empty();
        let removed = found.is_removed || !found.removed.is_empty();
        if !changed && !removed {
            return;
        }
        let step = step();
        if changed && removed {
            graft(&mut self.changed, step.clone(), found.is_changed, found.changed);
            graft(&mut self.removed, step, found.is_removed, found.removed);
        } else if changed {
            graft(&mut self.changed, step, found.is_changed, found.changed);
        } else {
            graft(&mut self.removed, step, found.is_removed, found.removed);
        }
    }

    /// Notes that the place itself came or went.
    fn settle(&mut self, pair: Pair<'_>) {
        self.is_changed |= pair.old.is_none();
        self.is_removed |= pair.new.is_none();
    }

    /// Compares a place that is owned as a whole.
    fn leaf(&mut self, pair: Pair<'_>) {
        match (pair.old, pair.new) {
            (Some(old), Some(new)) => self.is_changed |= old != new,
            _ => self.settle(pair),
        }
    }
}

struct Walk<'s> {
    schema: &'s Schema,
}

impl Walk<'_> {
    fn compare(&self, node: &Node, pair: Pair<'_>, ignored: Option<&Tree>, found: &mut Found) {
        match node {
            Node::Leaf => found.leaf(pair),
            Node::Open => match pair.objects() {
                Some((old, new)) => {
                    self.entries(|_| Some((&Node::Open, false)), old, new, ignored, found);
                    found.settle(pair);
                }
                None => found.leaf(pair),
            },
            Node::Map(entry) => match pair.objects() {
                Some((old, new)) => {
                    let entry = self.schema.node(*entry);
                    self.entries(|_| Some((entry, false)), old, new, ignored, found);
                    found.settle(pair);
                }
                None => found.leaf(pair),
            },
            Node::Struct(fields) => match pair.objects() {
                Some((old, new)) => {
                    self.entries(|name| self.field(fields, name), old, new, ignored, found);
                    found.settle(pair);
                }
                None => found.leaf(pair),
            },
            Node::Set => match pair.lists() {
                Some((old, new)) => {
                    self.items(element::value, &Node::Leaf, old, new, found);
                    found.settle(pair);
                }
                None => found.leaf(pair),
            },
            Node::Keyed(keys, item) => match pair.lists() {
                Some((old, new)) => {
                    self.keyed(keys, *item, old, new, found);
                    found.settle(pair);
                }
                None => found.leaf(pair),
            },
        }
    }

    fn field(&self, fields: &[Field], name: &str) -> Option<(&Node, bool)> {
        find(fields, name).map(|field| (self.schema.node(field.node), field.always))
    }

    /// Compares two objects, entry by entry; both are ordered by name.
    fn entries<'n>(
        &self,
        node: impl Fn(&str) -> Option<(&'n Node, bool)>,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        ignored: Option<&Tree>,
        found: &mut Found,
    ) {
        let mut visit = |name: &str, mut pair: Pair<'_>| {
            let skipped =
                ignored.filter(|tree| !tree.is_empty()).map(|tree| (tree, element::field(name)));
            if let Some((tree, step)) = &skipped
                && tree.get(step).is_some_and(is_member)
            {
                return;
            }
            // What a schema does not know is a thing of its own.
            let (node, always) = node(name).unwrap_or((&Node::Leaf, false));
            if always {
                // Only where the object around it is there on that side, too.
                pair.old = pair.old.or(old.map(|_| &*EMPTY));
                pair.new = pair.new.or(new.map(|_| &*EMPTY));
            }
            let inner_ignored = skipped.as_ref().and_then(|(tree, step)| below(tree, step));
            let mut inner = Found::default();
            self.compare(node, pair, inner_ignored, &mut inner);
            found.graft(|| element::field(name), inner);
        };
        for (name, value) in old.into_iter().flatten() {
            visit(name, Pair { old: Some(value), new: new.and_then(|new| new.get(name)) });
        }
        for (name, value) in new.into_iter().flatten() {
            if !old.is_some_and(|old| old.contains_key(name)) {
                visit(name, Pair { old: None, new: Some(value) });
            }
        }
    }

    fn keyed(&self, keys: &[Key], item: NodeId, old: &[Value], new: &[Value], found: &mut Found) {
        self.items(|value| element::keyed(keys, value), self.schema.node(item), old, new, found);
    }

    /// Compares two lists, element by element. Elements that cannot be told apart are nobody's.
    fn items(
        &self,
        step: impl Fn(&Value) -> Option<String>,
        node: &Node,
        old: &[Value],
        new: &[Value],
        found: &mut Found,
    ) {
        if old == new {
            return;
        }
        let steps = |items: &[Value]| -> Vec<Option<String>> { items.iter().map(&step).collect() };
        let (old_steps, new_steps) = (steps(old), steps(new));
        // Most writes change elements, and neither add, remove nor move any.
        if old_steps == new_steps && are_distinct(&old_steps) {
            for ((step, old), new) in new_steps.into_iter().zip(old).zip(new) {
                let Some(step) = step else { continue };
                let mut inner = Found::default();
                self.compare(node, Pair { old: Some(old), new: Some(new) }, None, &mut inner);
                found.graft(|| step, inner);
            }
            return;
        }
        let mut sides: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (step, value) in old_steps.into_iter().zip(old) {
            if let Some(step) = step {
                sides.entry(step).or_default().0.push(value);
            }
        }
        for (step, value) in new_steps.into_iter().zip(new) {
            if let Some(step) = step {
                sides.entry(step).or_default().1.push(value);
            }
        }
        for (step, (old, new)) in sides {
            let mut inner = Found::default();
            match (&*old, &*new) {
                // Elements that stand twice are compared as a whole.
                ([_, _, ..], [_, _, ..]) => inner.is_changed = old != new,
                ([_, _, ..], _) => {
                    if let Some(new) = new.first() {
                        let pair = Pair { old: None, new: Some(new) };
                        self.compare(node, pair, None, &mut inner);
                    }
                    inner.is_removed = true;
                }
                (_, [_, _, ..]) => {
                    if let Some(old) = old.first() {
                        let pair = Pair { old: Some(old), new: None };
                        self.compare(node, pair, None, &mut inner);
                    }
                    inner.is_changed = true;
                }
                _ => {
                    let pair = Pair { old: old.first().copied(), new: new.first().copied() };
                    self.compare(node, pair, None, &mut inner);
                }
            }
            found.graft(|| step, inner);
        }
    }
}

/// Whether no two steps are the same one.
fn are_distinct(steps: &[Option<String>]) -> bool {
    let mut sorted: Vec<_> = steps.iter().flatten().collect();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair.first() != pair.last())
}

impl<'v> Pair<'v> {
    /// Both sides as objects; `None` if they are to be compared as a whole: because both are empty, which
    /// tells null from an empty object, or because one is something else.
    #[expect(clippy::type_complexity, reason = "a pair of what the caller has names for")]
    fn objects(self) -> Option<(Option<&'v Map<String, Value>>, Option<&'v Map<String, Value>>)> {
        let side = |value: Option<&'v Value>| match value {
            None | Some(Value::Null) => Some(None),
            Some(Value::Object(fields)) => Some(Some(fields)),
            Some(_) => None,
        };
        let (old, new) = (side(self.old)?, side(self.new)?);
        let is_empty = |fields: Option<&Map<String, Value>>| fields.is_none_or(Map::is_empty);
        (!is_empty(old) || !is_empty(new)).then_some((old, new))
    }

    /// As [`Self::objects`], for lists.
    fn lists(self) -> Option<(&'v [Value], &'v [Value])> {
        let side = |value: Option<&'v Value>| match value {
            None | Some(Value::Null) => Some([].as_slice()),
            Some(Value::Array(items)) => Some(items.as_slice()),
            Some(_) => None,
        };
        let (old, new) = (side(self.old)?, side(self.new)?);
        (!old.is_empty() || !new.is_empty()).then_some((old, new))
    }
}
