//! When the machine is short of something, room is made: by what nobody needs if that is enough, else one pod goes at each look, before
//! the kernel's killer comes or the disk is full.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};
use waybill_core::id::PodUid;
use waybill_proto::cri::PodSandboxState;

use super::{
    super::{Workers, surroundings::Surroundings},
    may_be_evicted,
    rank::{self, Candidate},
    reclaim,
};
use crate::{event::Kind, pod::Pod, pressure::Signal};

/// How long a pod that was evicted may take to end before the next one goes.
const CLEAN_UP: Duration = Duration::from_secs(30);
const CLEAN_UP_LOOK: Duration = Duration::from_millis(500);

/// Makes room, if some is needed. The pod that was evicted for it, if one was.
pub(super) async fn relieve(workers: &Workers) -> Option<PodUid> {
    let around = &workers.0.around;
    if let Err(status) = around.pressure.find_images(&around.runtime).await {
        debug!(reason = status.message(), "the runtime does not tell where its images lie");
    }
    let shortage = around.pressure.look().into_iter().next()?;
    let resource = shortage.signal.resource();
    let message = format!("Attempting to reclaim {resource}");
    around.recorder.node(Kind::Warning, "EvictionThresholdMet", &message);
    if frees_without_eviction(around, shortage.signal) {
        reclaim::reclaim(workers).await;
        if around.pressure.look().is_empty() {
            info!(resource, "there is room again without what nobody needed");
            return None;
        }
    }
    let candidates = candidates(workers, shortage.signal).await;
    let Some(first) = rank::first_to_go(shortage.signal, candidates.into_iter()) else {
        warn!(resource, "the machine is short of it, and no pod may go");
        return None;
    };
    let pod = &first.pod;
    info!(pod = pod.name(), uid = %pod.uid(), resource, "the machine is short of it, and a pod goes");
    workers.evict(pod.uid(), &rank::message(&first, shortage));
    Some(pod.uid().clone())
}

/// Returns when nothing of the pod runs any more, or when that takes too long.
pub(super) async fn wait_until_gone(workers: &Workers, uid: &PodUid) {
    let begun = Instant::now();
    while begun.elapsed() < CLEAN_UP {
        let sandboxes = workers.0.around.runtime.sandboxes(Some(uid.as_str())).await;
        let ready = i32::from(PodSandboxState::SandboxReady);
        if sandboxes.is_ok_and(|sandboxes| sandboxes.iter().all(|sandbox| sandbox.state != ready)) {
            return;
        }
        sleep(CLEAN_UP_LOOK).await;
    }
}

/// Whether images and containers that nobody needs take what is short.
fn frees_without_eviction(around: &Surroundings, signal: Signal) -> bool {
    match signal {
        Signal::ImagefsAvailable | Signal::ImagefsInodesFree => true,
        Signal::NodefsAvailable | Signal::NodefsInodesFree => !around.pressure.images_are_apart(),
        Signal::MemoryAvailable | Signal::PidAvailable => false,
    }
}

/// The pods that may go, with what they use.
async fn candidates(workers: &Workers, signal: Signal) -> Vec<Candidate> {
    let around = &workers.0.around;
    let pods = workers.all().into_iter().filter(|pod| may_be_evicted(pod));
    if signal == Signal::MemoryAvailable {
        let used = around.runtime.memory_of_pods().await.unwrap_or_else(|status| {
            debug!(reason = status.message(), "the runtime does not tell what containers use");
            BTreeMap::new()
        });
        let using = pods.filter_map(|pod| {
            let containers = used.get(pod.uid().as_str())?.clone();
            let used = containers.values().fold(0, |sum: u64, used| sum.saturating_add(*used));
            Some(Candidate { pod, used, containers })
        });
        return using.collect();
    }
    let mut candidates = Vec::new();
    for pod in pods {
        let (used, containers) = match signal {
            Signal::PidAvailable => (around.cgroups.processes(&pod), BTreeMap::new()),
            _ => disk_usage(around, signal, &pod).await,
        };
        candidates.push(Candidate { pod, used, containers });
    }
    candidates
}

/// Of the disk that is short: containers lie with the images, volumes and logs with the node's own files.
async fn disk_usage(
    around: &Surroundings,
    signal: Signal,
    pod: &Pod,
) -> (u64, BTreeMap<String, u64>) {
    let usage = around.storage_of(pod).await;
    let taken = match signal {
        _ if !around.pressure.images_are_apart() => usage.pod(),
        Signal::ImagefsAvailable | Signal::ImagefsInodesFree => usage.layers,
        _ => usage.files,
    };
    if signal.is_in_bytes() {
        (taken.bytes, usage.containers)
    } else {
        (taken.files, BTreeMap::new())
    }
}
