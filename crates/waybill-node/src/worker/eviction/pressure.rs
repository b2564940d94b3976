//! When the machine is short of memory, pods go before the kernel's killer comes: one at a look, in a kubelet's order. First those
//! that use more than they asked for, of these the less important ones, and of equals the one that is furthest above its request.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use tracing::{debug, info};

use super::{super::Workers, may_be_evicted};
use crate::{
    cri::resources::{memory_request, memory_requests},
    pod::Pod,
    register::Shortage,
};

/// Bytes that containers use, by their names.
type Usage = BTreeMap<String, u64>;

/// Evicts the pod that must go first, if one must.
pub(super) async fn relieve(workers: &Workers) {
    let Some(shortage) = Shortage::of_memory() else { return };
    let used = workers.0.around.runtime.memory_of_pods().await.unwrap_or_else(|status| {
        debug!(reason = status.message(), "the runtime does not tell what containers use");
        BTreeMap::new()
    });
    let pods = workers.all().into_iter().filter(|pod| may_be_evicted(pod));
    let using = pods.filter_map(|pod| Some((used.get(pod.uid().as_str())?.clone(), pod)));
    if let Some((usage, pod)) = first_to_go(using) {
        info!(pod = pod.name(), uid = %pod.uid(), "the machine is short of memory, and a pod goes");
        workers.evict(pod.uid(), &message(&pod, &usage, shortage));
    }
}

fn first_to_go(pods: impl Iterator<Item = (Usage, Arc<Pod>)>) -> Option<(Usage, Arc<Pod>)> {
    pods.min_by_key(|(usage, pod)| {
        let used: u64 = usage.values().fold(0, |sum, used| sum.saturating_add(*used));
        let above = i128::from(used) - i128::from(memory_requests(pod));
        (Reverse(above > 0), pod.spec().priority.unwrap_or(0), Reverse(above))
    })
}

/// A kubelet's words, down to the blank at the end.
fn message(pod: &Pod, usage: &Usage, shortage: Shortage) -> String {
    let Shortage { least, available } = shortage;
    let mut text = format!(
        "The node was low on resource: memory. Threshold quantity: {}, available: {}. ",
        shown(least),
        shown(available)
    );
    for container in pod.containers() {
        let Some(used) = usage.get(container.name()) else { continue };
        let asked = u64::try_from(memory_request(&container.to_container())).unwrap_or(0);
        if *used > asked {
            let (name, used, asked) = (container.name(), shown(*used), shown(asked));
            text.push_str(&format!(
                "Container {name} was using {used}, request is {asked}, has larger consumption of memory. "
            ));
        }
    }
    text
}

/// As quantities of memory are written.
fn shown(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}Mi", bytes >> 20),
        bytes => format!("{}Ki", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::PodOrigin;

    fn pod(name: &str, priority: i32, request: &str, used: u64) -> (Usage, Arc<Pod>) {
        let resources = json!({ "requests": { "memory": request } });
        let object = json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name },
            "spec": {
                "priority": priority,
                "containers": [{ "name": "a", "image": "i", "resources": resources }],
            },
        });
        let pod = Pod::from_value(object, PodOrigin::ApiServer).unwrap();
        (Usage::from([("a".to_owned(), used << 20)]), Arc::new(pod))
    }

    #[track_caller]
    fn check(pods: Vec<(Usage, Arc<Pod>)>, expected: Option<&str>) {
        let first = first_to_go(pods.into_iter());
        assert_eq!(first.as_ref().map(|(_, pod)| pod.name()), expected);
    }

    #[test]
    fn who_uses_more_than_it_asked_for_goes_first() {
        check(vec![], None);
        check(vec![pod("large", 0, "2Gi", 1000), pod("greedy", 0, "1Mi", 2)], Some("greedy"));
        check(vec![pod("large", 0, "1Mi", 1000), pod("small", -1, "1Mi", 2)], Some("small"));
        check(vec![pod("some", 0, "1Mi", 10), pod("more", 0, "20Mi", 40)], Some("more"));
        check(vec![pod("vital", 9, "1Gi", 1), pod("modest", 1, "1Gi", 1)], Some("modest"));
    }

    #[test]
    fn the_words_are_those_that_people_search_for() {
        let (usage, pod) = pod("p", 0, "1Mi", 2);
        let shortage = Shortage { least: 100 << 20, available: 5 << 10 };
        assert_eq!(
            message(&pod, &usage, shortage),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 5Ki. \
             Container a was using 2Mi, request is 1Mi, has larger consumption of memory. "
        );
    }
}
