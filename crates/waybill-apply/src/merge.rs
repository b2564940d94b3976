//! Laying a configuration over an object.
//!
//! Nothing is removed: what the configuration does not mention stays. Lists that both have are ordered as
//! the configuration says, and what it does not mention keeps its place between what it does.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::{Map, Value};

use crate::{
    element,
    schema::{Node, Schema, find},
};

/// Why a configuration cannot be laid over an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// Elements of a list lack what tells them apart.
    #[error("{path}: element {at}: {why}")]
    Element {
        /// The list.
        path: String,
        /// Which element, counted from zero.
        at: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A field that the kind has not.
    #[error("{path}: field not declared in schema")]
    Undeclared {
        /// The field.
        path: String,
    },
    /// Two elements of a list are the same one.
    #[error("{path}: duplicate entries for key {key}")]
    Twice {
        /// The list.
        path: String,
        /// What both are called.
        key: String,
    },
}

/// `object` with everything that `config` says.
pub(crate) fn merge(schema: &Schema, object: &Value, config: &Value) -> Result<Value, MergeError> {
    let mut walk = Walk { schema, path: Vec::new() };
    let merged = walk.merge(schema.root(), Some(object), Some(config))?;
    Ok(merged.unwrap_or_else(|| Value::Object(Map::new())))
}

struct Walk<'s> {
    schema: &'s Schema,
    path: Vec<String>,
}

impl Walk<'_> {
    fn merge(
        &mut self,
        node: &Node,
        object: Option<&Value>,
        config: Option<&Value>,
    ) -> Result<Option<Value>, MergeError> {
        let whole = || config.or(object).cloned();
        match node {
            Node::Leaf => Ok(whole()),
            Node::Open | Node::Map(_) | Node::Struct(_) => match (entries(object), entries(config))
            {
                (Some(ours), Some(theirs)) if !ours.is_empty() || !theirs.is_empty() => {
                    self.merge_entries(node, ours, theirs)
                }
                _ => Ok(whole()),
            },
            Node::Set | Node::Keyed(..) => match (items(object), items(config)) {
                (Some(ours), Some(theirs)) if !ours.is_empty() || !theirs.is_empty() => {
                    self.merge_items(node, ours, theirs)
                }
                _ => Ok(whole()),
            },
        }
    }

    fn merge_entries(
        &mut self,
        node: &Node,
        object: &Map<String, Value>,
        config: &Map<String, Value>,
    ) -> Result<Option<Value>, MergeError> {
        let added = config.keys().filter(|name| !object.contains_key(*name));
        let mut merged = Map::new();
        for name in object.keys().chain(added) {
            let node = match node {
                Node::Map(entry) => self.schema.node(*entry),
                Node::Open => &Node::Open,
                Node::Struct(fields) => match find(fields, name) {
                    Some(field) => self.schema.node(field.node),
                    None if config.contains_key(name) => {
                        self.path.push(element::field(name));
                        return Err(MergeError::Undeclared { path: self.path() });
                    }
                    None => &Node::Leaf,
                },
                Node::Leaf | Node::Set | Node::Keyed(..) => &Node::Leaf,
            };
            self.path.push(element::field(name));
            let value = self.merge(node, object.get(name), config.get(name))?;
            self.path.pop();
            if let Some(value) = value {
                merged.insert(name.clone(), value);
            }
        }
        Ok((!merged.is_empty()).then_some(Value::Object(merged)))
    }

    fn merge_items(
        &mut self,
        node: &Node,
        object: &[Value],
        config: &[Value],
    ) -> Result<Option<Value>, MergeError> {
        let theirs = self.index(node, config)?;
        let mut at_theirs = HashMap::new();
        for (at, key) in theirs.iter().enumerate() {
            if at_theirs.insert(key.as_str(), at).is_some() {
                let path = self.path();
                return Err(MergeError::Twice { path, key: element::describe_path(&[key]) });
            }
        }
        // What cannot be told apart in the object is kept beside the rest.
        let ours: Vec<_> = object.iter().map(|item| step(node, item)).collect();
        let mut at_ours: HashMap<&str, Option<usize>> = HashMap::new();
        for (at, key) in ours.iter().enumerate() {
            if let Some(key) = key {
                // Elements that stand twice are not merged with anything.
                at_ours.entry(key).and_modify(|found| *found = None).or_insert(Some(at));
            }
        }

        let item_node = match node {
            Node::Keyed(_, item) => self.schema.node(*item),
            _ => &Node::Leaf,
        };
        let mut merged = Vec::with_capacity(object.len().max(config.len()));
        let mut shared = theirs.iter().filter(|key| at_ours.contains_key(key.as_str())).peekable();
        let mut done = vec![false; theirs.len()];
        let (mut left, mut right) = (0, 0);
        while left < ours.len() || right < theirs.len() {
            if let Some(key) = ours.get(left) {
                let Some(&at) = key.as_deref().and_then(|key| at_theirs.get(key)) else {
                    merged.extend(object.get(left).cloned());
                    left += 1;
                    continue;
                };
                let is_next = theirs.get(right).map(String::as_str) == key.as_deref();
                let wanted = shared.peek().map(|next| next.as_str());
                if !is_next && right < theirs.len() && wanted.is_some() && wanted != key.as_deref()
                {
                    // It gets its place when its turn comes.
                    left += 1;
                    continue;
                }
                if is_next || done.get(at) == Some(&true) {
                    left += 1;
                }
            }
            let Some(key) = theirs.get(right) else { continue };
            if let Some(seen) = done.get_mut(right) {
                *seen = true;
            }
            let ours = at_ours.get(key.as_str()).copied().flatten().and_then(|at| object.get(at));
            self.path.push(key.clone());
            let item = self.merge(item_node, ours, config.get(right))?;
            self.path.pop();
            merged.extend(item);
            if shared.peek() == Some(&key) {
                shared.next();
            }
            right += 1;
        }
        Ok((!merged.is_empty()).then_some(Value::Array(merged)))
    }

    /// The steps to the elements of a list of the configuration.
    fn index(&self, node: &Node, items: &[Value]) -> Result<Vec<String>, MergeError> {
        let why = match node {
            Node::Keyed(..) => {
                "associative list with keys has an element that omits all key fields"
            }
            _ => "associative list without keys has an element that is no scalar",
        };
        let steps = items.iter().enumerate().map(|(at, item)| {
            step(node, item).ok_or_else(|| MergeError::Element { path: self.path(), at, why })
        });
        steps.collect()
    }

    fn path(&self) -> String {
        let steps: Vec<_> = self.path.iter().map(String::as_str).collect();
        element::describe_path(&steps)
    }
}

fn step(node: &Node, item: &Value) -> Option<String> {
    match node {
        Node::Keyed(keys, _) => element::keyed(keys, item),
        _ => element::value(item),
    }
}

/// The entries of an object; none if there is nothing, `None` if there is something else.
fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    match value {
        None | Some(Value::Null) => Some(&NONE),
        Some(Value::Object(entries)) => Some(entries),
        Some(_) => None,
    }
}

/// As [`entries`], for lists.
fn items(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Array(items)) => Some(items),
        Some(_) => None,
    }
}
