//! Which node runs which pods, and what those refer to.
//!
//! Each node counts how many of its pods refer to a thing, so a question is one look-up and a change
//! costs as much as one pod has references.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use serde_json::Value;

use super::references::{Reference, references};

/// The pods of every node.
#[derive(Debug, Default)]
pub(crate) struct NodeGraph {
    edges: RwLock<Edges>,
}

impl NodeGraph {
    /// A pod was created (no `old`), changed or deleted (no `new`).
    pub(crate) fn pod_changed(&self, old: Option<&Value>, new: Option<&Value>) {
        let Some(pod) = new.or(old) else { return };
        let name = ObjectName::of(pod);
        // Most changes are of the status, and mean nothing here.
        if let (Some(old), Some(new)) = (old, new)
            && old.get("spec") == new.get("spec")
            && self.edges().pods.contains_key(&name) == node_name(new).is_some()
        {
            return;
        }
        let bound = new.and_then(|pod| Some((node_name(pod)?, references(pod))));
        let mut edges = self.edges.write().unwrap_or_else(PoisonError::into_inner);
        edges.remove(&name);
        if let Some((node, references)) = bound {
            edges.add(name, node, references);
        }
    }

    /// Whether a pod on `node` refers to it.
    pub(super) fn refers(&self, node: &str, reference: &Reference) -> bool {
        self.edges().nodes.get(node).is_some_and(|counts| counts.contains_key(reference))
    }

    /// Whether the pod is bound to `node`.
    pub(super) fn is_bound(&self, node: &str, pod: &ObjectName) -> bool {
        self.edges().pods.get(pod).is_some_and(|bound| *bound.node == *node)
    }

    fn edges(&self) -> RwLockReadGuard<'_, Edges> {
        // No code under the lock can panic halfway through a change.
        self.edges.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The graph itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Edges {
    pods: HashMap<ObjectName, BoundPod>,
    nodes: HashMap<Arc<str>, HashMap<Arc<Reference>, usize>>,
}

impl Edges {
    fn add(&mut self, name: ObjectName, node: &str, references: Vec<Reference>) {
        let node = match self.nodes.get_key_value(node) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::from(node),
        };
        let mut shared = Vec::with_capacity(references.len());
        for reference in references {
            let counts = self.nodes.entry(Arc::clone(&node)).or_default();
            shared.push(count(counts, reference));
        }
        self.pods.insert(name, BoundPod { node, references: shared });
    }

    fn remove(&mut self, name: &ObjectName) {
        let Some(pod) = self.pods.remove(name) else { return };
        let Entry::Occupied(mut counts) = self.nodes.entry(pod.node) else { return };
        for reference in pod.references {
            if let Entry::Occupied(mut count) = counts.get_mut().entry(reference) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        if counts.get().is_empty() {
            counts.remove();
        }
    }
}

/// Counts one more pod that refers to it, and gives the one copy that all those pods share.
fn count(counts: &mut HashMap<Arc<Reference>, usize>, reference: Reference) -> Arc<Reference> {
    let shared = match counts.get_key_value(&reference) {
        Some((known, _)) => Arc::clone(known),
        None => Arc::new(reference),
    };
    *counts.entry(Arc::clone(&shared)).or_default() += 1;
    shared
}

/// A pod that has a node.
#[derive(Debug, PartialEq, Eq)]
struct BoundPod {
    node: Arc<str>,
    /// Each once.
    references: Vec<Arc<Reference>>,
}

/// An object of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ObjectName {
    namespace: Box<str>,
    name: Box<str>,
}

impl ObjectName {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    fn of(object: &Value) -> Self {
        Self::new(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
    }
}

/// The text at `pointer`; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn node_name(pod: &Value) -> Option<&str> {
    Some(text(pod, "/spec/nodeName")).filter(|node| !node.is_empty())
}

#[cfg(test)]
mod tests;
