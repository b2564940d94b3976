//! Pods that take more of the disk than they may are evicted, and others when the machine is short of something, as kubelets do it.

mod pressure;
mod rank;
pub(super) mod reclaim;
mod storage;

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::info;

use super::{Workers, admission::is_critical};
use crate::{pod::Pod, volume::Oversized};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);
/// Measuring takes no more than one part in this many of the time.
const LEISURE: u32 = 20;

/// Looks after all pods, for ever.
pub(super) async fn run(workers: Workers) {
    tokio::join!(hold_limits(&workers), relieve(&workers));
}

async fn hold_limits(workers: &Workers) {
    let mut pause = LOOK;
    loop {
        sleep(pause).await;
        let begun = Instant::now();
        look(workers).await;
        pause = LOOK.max(begun.elapsed() * LEISURE);
    }
}

/// A machine that is short of something is looked at however long that takes, but not all the time.
async fn relieve(workers: &Workers) {
    loop {
        let begun = Instant::now();
        let evicted = pressure::relieve(workers).await;
        let pause = LOOK.max(begun.elapsed());
        if let Some(uid) = evicted {
            pressure::wait_until_gone(workers, &uid).await;
        }
        sleep(pause).await;
    }
}

async fn look(workers: &Workers) {
    for pod in workers.all() {
        if !may_be_evicted(&pod) {
            continue;
        }
        if let Some(reason) = excess(workers, &pod).await {
            info!(pod = pod.name(), uid = %pod.uid(), reason, "a pod takes more of the disk than it may");
            workers.evict(pod.uid(), &reason);
        }
    }
}

/// What the pod takes too much of, in a kubelet's words and order.
async fn excess(workers: &Workers, pod: &Pod) -> Option<String> {
    let around = &workers.0.around;
    match around.volumes.oversized(pod).await {
        Some(oversized) => Some(message(&oversized)),
        None => around.exceeded_storage(pod).await,
    }
}

/// What runs from a file would only start again, and the system's own pods stay whatever they do.
fn may_be_evicted(pod: &Pod) -> bool {
    !is_critical(pod) && !pod.has_ended() && !pod.is_deleted()
}

/// A kubelet's words, down to the blank at the end.
fn message(oversized: &Oversized) -> String {
    let Oversized { volume, limit } = oversized;
    format!("Usage of EmptyDir volume {volume:?} exceeds the limit {limit:?}. ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodOrigin;

    #[track_caller]
    fn check(field: (&str, Value), phase: &str, origin: PodOrigin, expected: bool) {
        let mut object = json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "uid-1" },
            "spec": { "containers": [{ "name": "a", "image": "i" }] },
            "status": { "phase": phase },
        });
        object["spec"][field.0] = field.1;
        assert_eq!(may_be_evicted(&Pod::from_value(object, origin).unwrap()), expected);
    }

    #[test]
    fn only_pods_that_run_and_may_go_are_evicted() {
        let usual = || ("priority", json!(0));
        check(usual(), "Running", PodOrigin::ApiServer, true);
        check(usual(), "Failed", PodOrigin::ApiServer, false);
        check(usual(), "Running", PodOrigin::File, false);
        check(("priority", json!(2_000_000_000)), "Running", PodOrigin::ApiServer, false);
    }

    #[test]
    fn the_words_are_those_that_people_search_for() {
        let oversized = Oversized { volume: "v".to_owned(), limit: "1Mi".to_owned() };
        let expected = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
        assert_eq!(message(&oversized), expected);
    }
}
