//! Sets of fields, in the form in which objects carry them: `fieldsV1`.
//!
//! A set is the tree of its paths. `{}` is a path that is a member; `{".": {}, …}` one that is a member
//! with others below it; without the dot only those below are. The tree is kept as JSON, because that is
//! what it is read from and written to with every change of an object, and steps in their canonical
//! form are compared as text.

use serde_json::{Map, Value};

use crate::element::{self, Parsed, SELF};

/// Deeper sets are refused. No document of ours is nested so deeply.
const MAX_DEPTH: usize = 120;

/// Larger sets are refused.
const MAX_STEPS: usize = 50_000;

/// The steps of one level, each with the tree below it.
pub(crate) type Tree = Map<String, Value>;

/// A set of fields of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSet(pub(crate) Tree);

/// Why a document is not a set of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldSetError {
    /// What stands below a step is no object.
    #[error("a set of fields holds something else than objects")]
    NotAnObject,
    /// A key is neither a field, nor keys, a value or an index.
    #[error("{0:?} is not the name of a field, a key, a value or an index")]
    Step(String),
    /// It is nested too deeply.
    #[error("a set of fields is deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// It has too many steps.
    #[error("a set of fields has more than {MAX_STEPS} steps")]
    TooLarge,
}

impl FieldSet {
    /// The set without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of these paths, whose steps are names of fields.
    #[must_use]
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let steps: Vec<_> = path.iter().map(|name| element::field(name)).collect();
            set.insert(&steps);
        }
        set
    }

    /// Reads `fieldsV1`. Steps of kinds that we do not know are left out, as upstream does.
    pub fn parse(value: &Value) -> Result<Self, FieldSetError> {
        let mut left = MAX_STEPS;
        let Value::Object(tree) = value else { return Err(FieldSetError::NotAnObject) };
        let (_, tree) = parse_tree(tree, 0, &mut left)?;
        Ok(Self(tree))
    }

    /// Takes a set that was written by this type. Whatever it is, nothing that is done to it fails.
    #[must_use]
    pub fn from_written(value: Value) -> Self {
        match value {
            Value::Object(tree) => Self(tree),
            _ => Self::new(),
        }
    }

    /// The set as `fieldsV1`.
    #[must_use]
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// Whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the path of these steps, which are in their canonical form.
    pub fn insert<S: AsRef<str>>(&mut self, path: &[S]) {
        if let Some((first, rest)) = path.split_first() {
            insert(&mut self.0, first.as_ref(), rest);
        }
    }

    /// Whether the path of these steps is a member.
    #[must_use]
    pub fn contains<S: AsRef<str>>(&self, path: &[S]) -> bool {
        let Some((last, way)) = path.split_last() else { return false };
        let mut tree = &self.0;
        for step in way {
            match below(tree, step.as_ref()) {
                Some(next) => tree = next,
                None => return false,
            }
        }
        tree.get(last.as_ref()).is_some_and(is_member)
    }

    /// Adds the members of `other`.
    pub fn unite(&mut self, other: &Self) {
        unite(&mut self.0, &other.0);
    }

    /// Removes the members of `other`; what lies below them stays.
    pub fn subtract(&mut self, other: &Self) {
        subtract(&mut self.0, &other.0);
    }

    /// Removes the members of `other` and all that lies below them.
    pub fn subtract_deep(&mut self, other: &Self) {
        subtract_deep(&mut self.0, &other.0);
    }

    /// The members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(intersection(&self.0, &other.0))
    }

    /// The members below which there are no others.
    #[must_use]
    pub fn leaves(&self) -> Self {
        Self(leaves(&self.0))
    }

    /// Calls `visit` with each member: those of a level before those below it.
    pub fn each<'s>(&'s self, mut visit: impl FnMut(&[&'s str])) {
        each(&self.0, &mut Vec::new(), &mut visit);
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut count = 0;
        self.each(|_| count += 1);
        count
    }
}

/// Puts what was found below `step` into `tree`, if anything was.
pub(crate) fn graft(tree: &mut Tree, step: String, member: bool, mut below: Tree) {
    if below.is_empty() && !member {
        return;
    }
    if member && !below.is_empty() {
        below.insert(SELF.to_owned(), Value::Object(Tree::new()));
    }
    tree.insert(step, Value::Object(below));
}

/// Whether the path above this tree is a member itself.
pub(crate) fn is_member(node: &Value) -> bool {
    node.as_object().is_none_or(|tree| tree.is_empty() || tree.contains_key(SELF))
}

/// The tree below `step`, if there is more than the step itself.
pub(crate) fn below<'t>(tree: &'t Tree, step: &str) -> Option<&'t Tree> {
    tree.get(step)?.as_object().filter(|tree| has_steps(tree))
}

/// The steps of a level, without the dot.
pub(crate) fn steps(tree: &Tree) -> impl Iterator<Item = (&String, &Value)> {
    tree.iter().filter(|(step, _)| *step != SELF)
}

fn has_steps(tree: &Tree) -> bool {
    tree.len() > usize::from(tree.contains_key(SELF))
}

/// What lies below a node, to be changed.
fn tree_of(node: &mut Value) -> &mut Tree {
    if !node.is_object() {
        *node = Value::Object(Tree::new());
    }
    match node {
        Value::Object(tree) => tree,
        _ => unreachable!("it was made an object above"),
    }
}

/// Makes the dot of a node say what it is to say; false if nothing is left of the node.
fn settle(node: &mut Value, member: bool) -> bool {
    let tree = tree_of(node);
    if !has_steps(tree) {
        tree.clear();
        return member;
    }
    if !member {
        tree.remove(SELF);
    } else if !tree.contains_key(SELF) {
        tree.insert(SELF.to_owned(), Value::Object(Tree::new()));
    }
    true
}

fn insert<S: AsRef<str>>(tree: &mut Tree, step: &str, rest: &[S]) {
    let (existed, node) = match tree.get_mut(step) {
        Some(node) => (true, node),
        None => (false, tree.entry(step).or_insert_with(|| Value::Object(Tree::new()))),
    };
    let member = existed && is_member(node);
    match rest.split_first() {
        None => settle(node, true),
        Some((next, rest)) => {
            insert(tree_of(node), next.as_ref(), rest);
            settle(node, member)
        }
    };
}

fn unite(tree: &mut Tree, other: &Tree) {
    for (step, theirs) in steps(other) {
        let Some(ours) = tree.get_mut(step) else {
            tree.insert(step.clone(), theirs.clone());
            continue;
        };
        let member = is_member(ours) || is_member(theirs);
        if let Some(theirs) = theirs.as_object() {
            unite(tree_of(ours), theirs);
        }
        settle(ours, member);
    }
}

fn subtract(tree: &mut Tree, other: &Tree) {
    for (step, theirs) in steps(other) {
        let Some(ours) = tree.get_mut(step) else { continue };
        let member = is_member(ours) && !is_member(theirs);
        if let Some(theirs) = theirs.as_object() {
            subtract(tree_of(ours), theirs);
        }
        if !settle(ours, member) {
            tree.remove(step);
        }
    }
}

fn subtract_deep(tree: &mut Tree, other: &Tree) {
    for (step, theirs) in steps(other) {
        let Some(ours) = tree.get_mut(step) else { continue };
        if is_member(theirs) {
            tree.remove(step);
            continue;
        }
        let member = is_member(ours);
        if let Some(theirs) = theirs.as_object() {
            subtract_deep(tree_of(ours), theirs);
        }
        if !settle(ours, member) {
            tree.remove(step);
        }
    }
}

fn intersection(one: &Tree, other: &Tree) -> Tree {
    let mut both = Tree::new();
    for (step, ours) in steps(one) {
        let Some(theirs) = other.get(step) else { continue };
        let common = match (ours.as_object(), theirs.as_object()) {
            (Some(ours), Some(theirs)) => intersection(ours, theirs),
            _ => Tree::new(),
        };
        graft(&mut both, step.clone(), is_member(ours) && is_member(theirs), common);
    }
    both
}

fn leaves(tree: &Tree) -> Tree {
    let mut found = Tree::new();
    for (step, node) in steps(tree) {
        let inner = node.as_object().filter(|inner| has_steps(inner));
        let is_leaf = inner.is_none();
        graft(&mut found, step.clone(), is_leaf, inner.map(leaves).unwrap_or_default());
    }
    found
}

fn each<'s>(tree: &'s Tree, path: &mut Vec<&'s str>, visit: &mut impl FnMut(&[&'s str])) {
    for (step, node) in steps(tree) {
        if is_member(node) {
            path.push(step);
            visit(path);
            path.pop();
        }
    }
    for (step, node) in steps(tree) {
        if let Some(inner) = node.as_object() {
            path.push(step);
            each(inner, path, visit);
            path.pop();
        }
    }
}

/// The tree in its canonical form, and whether what stands above it is a member.
fn parse_tree(tree: &Tree, depth: usize, left: &mut usize) -> Result<(bool, Tree), FieldSetError> {
    if depth > MAX_DEPTH {
        return Err(FieldSetError::TooDeep);
    }
    let mut found = Tree::new();
    for (step, node) in steps(tree) {
        *left = left.checked_sub(1).ok_or(FieldSetError::TooLarge)?;
        let step = match element::parse(step) {
            Some(Parsed::Step(step)) => step,
            Some(Parsed::Unknown) => continue,
            None => return Err(FieldSetError::Step(step.clone())),
        };
        let Value::Object(inner) = node else { return Err(FieldSetError::NotAnObject) };
        let (member, inner) = parse_tree(inner, depth + 1, left)?;
        // Two texts may mean one step.
        let mut one = Tree::new();
        graft(&mut one, step, member, inner);
        unite(&mut found, &one);
    }
    Ok((found.is_empty() || tree.contains_key(SELF), found))
}

#[cfg(test)]
mod tests;
