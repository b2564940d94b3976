//! Which pod goes first when the machine is short of something, in a kubelet's order and words: no call, no clock.
//!
//! First those that use more than they asked for, of these the less important ones, and of equals the one that is furthest above its
//! request. Nobody asks for process ids, so there importance comes first.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use crate::{
    cri::resources::{bytes_requested, bytes_requested_by},
    pod::Pod,
    pressure::{Shortage, Signal},
};

/// A pod that may go, and what it has of what is short.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) pod: Arc<Pod>,
    pub(super) used: u64,
    /// Of that, in bytes, by the names of containers; empty for what is counted.
    pub(super) containers: BTreeMap<String, u64>,
}

/// The one that must go first.
pub(super) fn first_to_go(
    signal: Signal,
    candidates: impl Iterator<Item = Candidate>,
) -> Option<Candidate> {
    candidates.min_by_key(|candidate| {
        let above = i128::from(candidate.used) - i128::from(requested(signal, &candidate.pod));
        let exceeds = above > 0 && signal != Signal::PidAvailable;
        (Reverse(exceeds), candidate.pod.spec().priority.unwrap_or(0), Reverse(above))
    })
}

/// In bytes. What is counted cannot be asked for.
fn requested(signal: Signal, pod: &Pod) -> i64 {
    if signal.is_in_bytes() { bytes_requested(pod, signal.resource()) } else { 0 }
}

/// A kubelet's words, down to the blank at the end.
pub(super) fn message(candidate: &Candidate, shortage: Shortage) -> String {
    let Shortage { signal, least, available } = shortage;
    let resource = signal.resource();
    let shown = if signal.is_in_bytes() { bytes } else { count };
    let mut text = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        shown(least),
        shown(available)
    );
    for container in candidate.pod.containers() {
        let Some(used) = candidate.containers.get(container.name()) else { continue };
        let asked = bytes_requested_by(&container.to_container(), resource);
        let asked = u64::try_from(asked).unwrap_or(0);
        if *used > asked {
            let (name, used, asked) = (container.name(), bytes(*used), bytes(asked));
            text.push_str(&format!(
                "Container {name} was using {used}, request is {asked}, has larger consumption of {resource}. "
            ));
        }
    }
    text
}

/// As quantities of bytes are written.
fn bytes(amount: u64) -> String {
    with_suffix(amount, 1024, &["Ki", "Mi", "Gi", "Ti"])
}

/// As quantities of what is counted are written.
fn count(amount: u64) -> String {
    with_suffix(amount, 1000, &["k", "M", "G"])
}

/// With the longest suffix that leaves nothing out.
fn with_suffix(mut amount: u64, step: u64, suffixes: &[&str]) -> String {
    let mut found = "";
    for suffix in suffixes {
        if amount == 0 || !amount.is_multiple_of(step) {
            break;
        }
        (amount, found) = (amount / step, suffix);
    }
    format!("{amount}{found}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodOrigin;

    fn candidate(name: &str, priority: i32, request: &str, used: u64) -> Candidate {
        let requests = json!({ "memory": request, "ephemeral-storage": request });
        let object = json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name },
            "spec": {
                "priority": priority,
                "containers": [{ "name": "a", "image": "i", "resources": { "requests": requests } }],
            },
        });
        let pod = Arc::new(Pod::from_value(object, PodOrigin::ApiServer).unwrap());
        let used = used << 20;
        Candidate { pod, used, containers: BTreeMap::from([("a".to_owned(), used)]) }
    }

    #[track_caller]
    fn check(signals: &[Signal], candidates: &[Candidate], expected: Option<&str>) {
        for signal in signals {
            let first = first_to_go(*signal, candidates.iter().cloned());
            assert_eq!(first.as_ref().map(|it| it.pod.name()), expected, "{signal:?}");
        }
    }

    const BYTES: [Signal; 3] =
        [Signal::MemoryAvailable, Signal::NodefsAvailable, Signal::ImagefsAvailable];

    #[test]
    fn who_uses_more_than_it_asked_for_goes_first() {
        check(&BYTES, &[], None);
        let greedy = [candidate("large", 0, "2Gi", 1000), candidate("greedy", 0, "1Mi", 2)];
        check(&BYTES, &greedy, Some("greedy"));
        let small = [candidate("large", 0, "1Mi", 1000), candidate("small", -1, "1Mi", 2)];
        check(&BYTES, &small, Some("small"));
        let more = [candidate("some", 0, "1Mi", 10), candidate("more", 0, "20Mi", 40)];
        check(&BYTES, &more, Some("more"));
        let modest = [candidate("vital", 9, "1Gi", 1), candidate("modest", 1, "1Gi", 1)];
        check(&BYTES, &modest, Some("modest"));
    }

    #[test]
    fn of_what_is_counted_nothing_was_asked_for() {
        let two = || vec![candidate("many", 0, "1Gi", 9), candidate("few", 0, "1Mi", 8)];
        check(&[Signal::NodefsInodesFree, Signal::PidAvailable], &two(), Some("many"));
        let vital = || vec![candidate("vital", 9, "0", 900), candidate("idle", 0, "0", 0)];
        check(&[Signal::PidAvailable], &vital(), Some("idle"));
        check(&[Signal::NodefsInodesFree], &vital(), Some("vital"));
    }

    #[test]
    fn the_words_are_those_that_people_search_for() {
        let found = candidate("p", 0, "1Mi", 2);
        let shortage = |signal| Shortage { signal, least: 100 << 20, available: 5 << 10 };
        assert_eq!(
            message(&found, shortage(Signal::MemoryAvailable)),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 5Ki. \
             Container a was using 2Mi, request is 1Mi, has larger consumption of memory. "
        );
        assert_eq!(
            message(&found, shortage(Signal::NodefsAvailable)),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 5Ki. \
             Container a was using 2Mi, request is 1Mi, has larger consumption of ephemeral-storage. "
        );
        let counted = Candidate { containers: BTreeMap::new(), ..found };
        let shortage = Shortage { signal: Signal::PidAvailable, least: 1500, available: 1000 };
        assert_eq!(
            message(&counted, shortage),
            "The node was low on resource: pids. Threshold quantity: 1500, available: 1k. "
        );
    }

    #[test]
    fn quantities_leave_nothing_out() {
        for (amount, expected) in [(0, "0"), (1024, "1Ki"), (1536, "1536"), (3 << 30, "3Gi")] {
            assert_eq!(bytes(amount), expected);
        }
        for (amount, expected) in [(0, "0"), (999, "999"), (2000, "2k"), (2_000_000, "2M")] {
            assert_eq!(count(amount), expected);
        }
    }
}
