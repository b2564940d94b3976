//! What nobody needs goes before any pod does: containers of pods that have ended, with their logs, and images without a user.

use tonic::Status;
use tracing::{info, warn};
use waybill_proto::cri::ContainerState;

use super::super::{Workers, surroundings::Surroundings};
use crate::pod::Pod;

/// Removes all of it. What cannot be removed stays.
pub(in crate::worker) async fn reclaim(workers: &Workers) {
    let around = &workers.0.around;
    for pod in workers.all() {
        if !pod.has_ended() || pod.is_deleted() {
            continue;
        }
        if let Err(status) = remove_containers(around, &pod).await {
            warn!(
                pod = pod.name(),
                reason = status.message(),
                "containers of a pod that ended stay"
            );
        }
    }
    if let Err(status) = around.collector.remove_unused().await {
        warn!(reason = status.message(), "images that nobody uses stay");
    }
}

/// How they ended is in the status of the pod, which stays.
async fn remove_containers(around: &Surroundings, pod: &Pod) -> Result<(), Status> {
    let uid = Some(pod.uid().as_str());
    let containers = around.runtime.list(uid).await?;
    let exited = i32::from(ContainerState::ContainerExited);
    if containers.iter().any(|container| container.state != exited) {
        return Ok(());
    }
    let sandboxes = around.runtime.sandboxes(uid).await?;
    if containers.is_empty() && sandboxes.is_empty() {
        return Ok(());
    }
    info!(pod = pod.name(), uid = %pod.uid(), "containers of a pod that ended go, for their room");
    for container in &containers {
        around.runtime.remove(&container.id).await?;
    }
    for sandbox in &sandboxes {
        around.runtime.stop_sandbox(&sandbox.id).await?;
        around.runtime.remove_sandbox(&sandbox.id).await?;
    }
    around.remove_logs(pod.namespace(), pod.name(), pod.uid());
    Ok(())
}
