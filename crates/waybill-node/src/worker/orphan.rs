//! Pods that nobody wants: they ended while the node was away, or their end was cut short.

use tonic::Status;
use tracing::{info, warn};
use waybill_core::id::PodUid;

use super::{failure::shown, surroundings::Surroundings};
use crate::cri::labels;

/// What a pod gets at most whose object is gone, in seconds: nobody is left who could shorten it.
pub(super) const LONGEST_GRACE: i64 = 30;

/// Removes all that there is of a pod. What fails is tried again when the pod is seen again.
pub(super) async fn remove(around: &Surroundings, uid: &PodUid) {
    info!(%uid, "removing a pod that nobody wants");
    if let Err(status) = remove_from_runtime(around, uid).await {
        warn!(%uid, reason = shown(&status), "a pod that nobody wants is left in the runtime");
        return;
    }
    if let Err(reason) = around.remove_volumes(uid).await {
        warn!(%uid, reason, "files of a pod that nobody wants are left");
    }
    around.cgroups.remove_pod(uid).await;
    around.forget(uid);
}

async fn remove_from_runtime(around: &Surroundings, uid: &PodUid) -> Result<(), Status> {
    let runtime = &around.runtime;
    let sandboxes = runtime.sandboxes(Some(uid.as_str())).await?;
    let containers = runtime.list(Some(uid.as_str())).await?;
    let grace = sandboxes
        .iter()
        .find_map(|sandbox| sandbox.annotations.get(labels::GRACE)?.parse().ok())
        .unwrap_or(LONGEST_GRACE)
        .clamp(1, LONGEST_GRACE);
    let stops = containers.iter().map(|container| runtime.stop(&container.id, grace));
    futures_util::future::try_join_all(stops).await?;
    for sandbox in &sandboxes {
        runtime.stop_sandbox(&sandbox.id).await?;
    }
    for container in &containers {
        runtime.remove(&container.id).await?;
    }
    for sandbox in &sandboxes {
        runtime.remove_sandbox(&sandbox.id).await?;
        if let Some(metadata) = &sandbox.metadata {
            around.remove_logs(&metadata.namespace, &metadata.name, uid);
        }
    }
    Ok(())
}
