//! Whether the node has room for a pod that comes.
//!
//! The scheduler sees to it for pods that it places; those that name their node, or that another than our scheduler bound, come all
//! the same. Only pods that the node has taken count, so of two that come at once the first has the room.

use std::collections::BTreeMap;

use waybill_core::{id::PodUid, quantity::Quantity};

use super::{End, Entry, Workers, admission::is_critical, lock, resize::Requests};
use crate::pod::Pod;

impl Workers {
    /// Takes a pod, or says why there is no room for it: reason and message. What the node cannot do without it always takes.
    pub(super) fn take(&self, pod: &Pod) -> Result<(), (&'static str, String)> {
        let mut entries = lock(&self.0.entries);
        if !is_critical(pod) {
            let (used, pods) = used_by_others(pod, &entries);
            let allocatable = &self.0.around.resolver.node.allocatable;
            if let Some(shortage) = shortage(Requests::of(pod), used, pods, allocatable) {
                return Err(shortage);
            }
        }
        if let Some(entry) = entries.get_mut(pod.uid()) {
            entry.is_taken = true;
        }
        Ok(())
    }

    /// Nothing of the pod runs any more, nor will it. The objects of static pods do not say so.
    pub(super) fn give_back(&self, uid: &PodUid) {
        if let Some(entry) = lock(&self.0.entries).get_mut(uid) {
            entry.is_taken = false;
        }
    }
}

/// What pods that were taken before have asked for, and how many they are.
///
/// A pod whose object is gone does not count, though the last of it may still run: the scheduler has given its room away.
fn used_by_others(pod: &Pod, entries: &BTreeMap<PodUid, Entry>) -> (Requests, i64) {
    let others = entries.values().filter_map(|entry| {
        let wanted = entry.wanted.borrow();
        let other = &wanted.pod;
        let counts = other.uid() != pod.uid()
            && wanted.end != Some(End::Gone)
            && !other.has_ended()
            // The start is what is left of it when the node starts anew.
            && (entry.is_taken || other.start_time().is_some());
        counts.then(|| Requests::held(other))
    });
    others
        .fold((Requests::default(), 0), |(sum, count), held| (sum.saturating_add(held), count + 1))
}

/// What the node does not have enough of, in a kubelet's words.
fn shortage(
    asked: Requests,
    used: Requests,
    pods: i64,
    allocatable: &BTreeMap<String, Quantity>,
) -> Option<(&'static str, String)> {
    let all =
        |name: &str, of: fn(Quantity) -> i64| allocatable.get(name).copied().map_or(i64::MAX, of);
    let rows = [
        ("OutOfpods", "pods", 1, pods, all("pods", Quantity::value)),
        ("OutOfcpu", "cpu", asked.cpu, used.cpu, all("cpu", Quantity::milli_value)),
        ("OutOfmemory", "memory", asked.memory, used.memory, all("memory", Quantity::value)),
    ];
    let short = rows.into_iter().find(|(_, _, asked, used, all)| {
        // Who asks for nothing is no burden, however full the node is.
        *asked > 0 && asked.saturating_add(*used) > *all
    });
    short.map(|(reason, name, asked, used, all)| {
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {all}"
        );
        (reason, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(asked: (i64, i64), pods: i64, expected: Option<(&str, &str)>) {
        let allocatable = [("cpu", "2"), ("memory", "1Ki"), ("pods", "3")];
        let allocatable = allocatable
            .map(|(name, text)| (name.to_owned(), Quantity::parse(text).unwrap()))
            .into();
        let asked = Requests { cpu: asked.0, memory: asked.1 };
        let used = Requests { cpu: 1500, memory: 1000 };
        let found = shortage(asked, used, pods, &allocatable);
        assert_eq!(found.as_ref().map(|(reason, text)| (*reason, text.as_str())), expected);
    }

    #[test]
    fn a_node_says_what_it_has_not_enough_of() {
        check((500, 24), 2, None);
        check((0, 0), 2, None);
        check(
            (501, 24),
            2,
            Some((
                "OutOfcpu",
                "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000",
            )),
        );
        check(
            (i64::MAX, 25),
            2,
            Some((
                "OutOfcpu",
                "Node didn't have enough resource: cpu, requested: 9223372036854775807, used: 1500, \
                 capacity: 2000",
            )),
        );
        check(
            (0, 25),
            2,
            Some((
                "OutOfmemory",
                "Node didn't have enough resource: memory, requested: 25, used: 1000, capacity: 1024",
            )),
        );
        check(
            (0, 0),
            3,
            Some((
                "OutOfpods",
                "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
            )),
        );
        let nothing = Requests::default();
        assert_eq!(shortage(Requests { cpu: 9, memory: 9 }, nothing, 9, &BTreeMap::new()), None);
    }
}
