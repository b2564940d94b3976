//! The scheduler's picture of the cluster, and the steps it takes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    document::metadata,
    schedule::{
        decision::Decision,
        drivers::Drivers,
        fit::{Obstacle, explain, obstacles, reluctance},
        node::{Node, Usage},
        pod::{Place, Pod, PodKey, PodRef},
    },
};

/// The first wait after a failed binding; it doubles each time.
const BACKOFF: SignedDuration = SignedDuration::from_secs(1);

/// How often it doubles, at most.
const DOUBLINGS: u32 = 4;

/// Places pods on nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scheduler {
    nodes: BTreeMap<String, Node>,
    /// By the name of their node; also of nodes that are not known yet, or not any more.
    drivers: HashMap<String, Drivers>,
    /// Also of nodes that are not known yet, or not any more.
    usage: HashMap<String, Usage>,
    waiting: BTreeMap<PodKey, Waiting>,
    placed: HashMap<PodKey, Placed>,
    /// How often the cluster changed so that a pod might fit that did not before.
    changes: u64,
}

impl Scheduler {
    /// A pod was added or changed.
    ///
    /// If the object cannot be read, nothing changes. Admission lets no such pod in.
    pub(crate) fn pod_changed(&mut self, object: &Value) -> Result<(), ViewError> {
        let pod = Pod::read(object).map_err(ViewError::Pod)?;
        let known = self.waiting.remove(&pod.id.key);
        match (&pod.place, self.placed.get(&pod.id.key)) {
            // The news of our own decision is still under way.
            (Place::Wanted | Place::Gated, Some(placed))
                if placed.is_assumed && placed.pod.id == pod.id => {}
            (Place::On(node), _) => {
                let node = node.clone();
                self.place(pod, node, Certainty::Known);
            }
            (Place::Wanted | Place::Gated, _) => {
                self.release(&pod.id.key);
                let same = |known: &Waiting| known.pod.id == pod.id;
                let waiting = Waiting::again(pod.clone(), known.filter(same));
                self.waiting.insert(pod.id.key, waiting);
            }
            (Place::None, _) => drop(self.release(&pod.id.key)),
        }
        Ok(())
    }

    /// A pod is gone.
    pub(crate) fn pod_deleted(&mut self, key: &PodKey) {
        self.waiting.remove(key);
        self.release(key);
    }

    /// A node was added or changed.
    pub(crate) fn node_changed(&mut self, object: &Value) -> Result<(), ViewError> {
        let node = Node::read(object).map_err(ViewError::Node)?;
        // Heartbeats change nothing that matters here.
        if self.nodes.get(&node.name) != Some(&node) {
            self.nodes.insert(node.name.clone(), node);
            self.changes += 1;
        }
        Ok(())
    }

    /// A node is gone. Its pods still count should it come back.
    pub(crate) fn node_deleted(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            // No pod fits because of this, but what is said about those that do not has changed.
            self.changes += 1;
        }
    }

    /// The drivers of a node were told, or told again.
    pub(crate) fn drivers_changed(&mut self, object: &Value) {
        let (name, drivers) = (metadata(object, "name"), Drivers::read(object));
        if self.drivers.get(name) != Some(&drivers) {
            self.drivers.insert(name.to_owned(), drivers);
            self.changes += 1;
        }
    }

    /// A node has no drivers any more.
    pub(crate) fn drivers_deleted(&mut self, name: &str) {
        if self.drivers.remove(name).is_some() {
            self.changes += 1;
        }
    }

    /// A binding was refused or failed; the pod is tried again after a while.
    pub(crate) fn bind_failed(&mut self, pod: &PodRef, now: Timestamp) {
        let current = |placed: &Placed| placed.is_assumed && placed.pod.id == *pod;
        if !self.placed.get(&pod.key).is_some_and(current) {
            return;
        }
        if let Some(placed) = self.release(&pod.key) {
            let failures = placed.failures + 1;
            let wait = BACKOFF * 2_i32.pow((failures - 1).min(DOUBLINGS));
            let not_before = now.checked_add(wait).ok();
            let waiting =
                Waiting { pod: placed.pod, tried: None, told: None, not_before, failures };
            self.waiting.insert(pod.key.clone(), waiting);
        }
    }

    /// Decides on every pod for which something changed since it was last tried. What is decided
    /// twice is told once.
    pub(crate) fn step(&mut self, now: Timestamp) -> Vec<Decision> {
        let mut due: Vec<_> = self
            .waiting
            .values()
            .filter(|waiting| waiting.is_due(self.changes, now))
            .map(|waiting| (Reverse(waiting.pod.priority), &waiting.pod.created, &waiting.pod.id))
            .collect();
        due.sort();
        let due: Vec<_> = due.into_iter().map(|(_, _, id)| id.key.clone()).collect();
        due.iter().filter_map(|key| self.decide(key)).collect()
    }

    /// When the next step is due even if nothing changes.
    pub(crate) fn next_step(&self) -> Option<Timestamp> {
        let untried = self.waiting.values().filter(|waiting| waiting.tried.is_none());
        untried.filter_map(|waiting| waiting.not_before).min()
    }

    fn decide(&mut self, key: &PodKey) -> Option<Decision> {
        let mut waiting = self.waiting.remove(key)?;
        let pod = waiting.pod.id.clone();
        let decision = if waiting.pod.place == Place::Gated {
            Decision::Gated { pod }
        } else if let Some(node) = self.best_node(&waiting.pod).map(ToOwned::to_owned) {
            let certainty = Certainty::Assumed { failures: waiting.failures };
            self.place(waiting.pod, node.clone(), certainty);
            return Some(Decision::Bind { pod, node });
        } else {
            Decision::Unschedulable { pod, message: self.explain(&waiting.pod) }
        };
        waiting.tried = Some(self.changes);
        waiting.not_before = None;
        let news = waiting.told.as_ref() != Some(&decision);
        waiting.told = Some(decision.clone());
        self.waiting.insert(key.clone(), waiting);
        news.then_some(decision)
    }

    /// Of the nodes that fit the one that is least reluctant, then has the fewest pods, then comes
    /// first by name.
    fn best_node(&self, pod: &Pod) -> Option<&str> {
        self.nodes
            .values()
            .filter(|node| self.obstacles(pod, node).is_empty())
            .map(|node| {
                let pods = self.usage.get(&node.name).map_or(0, |usage| usage.pods);
                (reluctance(pod, node), pods, node.name.as_str())
            })
            .min()
            .map(|(_, _, name)| name)
    }

    fn explain(&self, pod: &Pod) -> String {
        explain(self.nodes.values().map(|node| self.obstacles(pod, node)))
    }

    fn obstacles(&self, pod: &Pod, node: &Node) -> Vec<Obstacle> {
        let (nothing, none) = (Usage::default(), Drivers::default());
        let usage = self.usage.get(&node.name).unwrap_or(&nothing);
        let drivers = self.drivers.get(&node.name).unwrap_or(&none);
        obstacles(pod, node, drivers, usage)
    }

    fn place(&mut self, pod: Pod, node: String, certainty: Certainty) {
        let (is_assumed, failures) = match certainty {
            Certainty::Known => (false, 0),
            Certainty::Assumed { failures } => (true, failures),
        };
        let changes = self.changes;
        let before = self.release(&pod.id.key);
        // A change of status frees nothing.
        let uses = |pod: &Pod| (pod.requests.clone(), pod.host_ports.clone());
        if before.is_some_and(|before| before.node == node && uses(&before.pod) == uses(&pod)) {
            self.changes = changes;
        }
        self.usage.entry(node.clone()).or_default().add(&pod);
        self.placed.insert(pod.id.key.clone(), Placed { pod, node, is_assumed, failures });
    }

    /// Takes a pod off its node, if it has one.
    fn release(&mut self, key: &PodKey) -> Option<Placed> {
        let placed = self.placed.remove(key)?;
        if let Some(usage) = self.usage.get_mut(&placed.node) {
            usage.remove(&placed.pod);
            if usage.pods == 0 {
                self.usage.remove(&placed.node);
            }
        }
        self.changes += 1;
        Some(placed)
    }
}

/// Why an object is not taken notice of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    #[error("cannot read a pod")]
    Pod(#[source] serde_json::Error),
    #[error("cannot read a node")]
    Node(#[source] serde_json::Error),
}

/// A pod that has no node.
#[derive(Clone, Debug)]
struct Waiting {
    pod: Pod,
    /// The count of changes when it was last tried.
    tried: Option<u64>,
    told: Option<Decision>,
    not_before: Option<Timestamp>,
    failures: u32,
}

impl Waiting {
    /// A pod of which `known` was the picture before.
    fn again(pod: Pod, known: Option<Self>) -> Self {
        match known {
            Some(known) if known.pod == pod => known,
            Some(known) => Self { pod, tried: None, ..known },
            None => Self { pod, tried: None, told: None, not_before: None, failures: 0 },
        }
    }

    fn is_due(&self, changes: u64, now: Timestamp) -> bool {
        // Gates are opened by a change of the pod, whatever the cluster does.
        let tried = match self.pod.place {
            Place::Gated => self.tried.is_some(),
            Place::On(_) | Place::Wanted | Place::None => self.tried == Some(changes),
        };
        !tried && self.not_before.is_none_or(|time| time <= now)
    }
}

/// A pod that has a node.
#[derive(Clone, Debug)]
struct Placed {
    pod: Pod,
    node: String,
    /// We decided so, and the store has not confirmed it.
    is_assumed: bool,
    failures: u32,
}

/// Whether the store knows of a placement.
#[derive(Clone, Copy)]
enum Certainty {
    Known,
    Assumed { failures: u32 },
}

#[cfg(test)]
mod tests;
