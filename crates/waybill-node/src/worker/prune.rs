//! Clearing away what ended before: of each container the newest dead one is kept, for its log and its end.

use std::{collections::BTreeSet, fs, path::Path};

use tonic::Status;
use tracing::debug;

use super::surroundings::Surroundings;
use crate::{
    observed::{ContainerState, Observed, ObservedContainer},
    pod::Pod,
    rotation,
};

/// Removes old containers and old sandboxes. What cannot be removed now is tried again later. True if
/// there was nothing to remove.
pub(super) async fn prune(around: &Surroundings, pod: &Pod, observed: &Observed) -> bool {
    remove(around, pod, observed).await.unwrap_or_else(|status| {
        debug!(code = ?status.code(), reason = status.message(), "old containers are left");
        false
    })
}

async fn remove(around: &Surroundings, pod: &Pod, observed: &Observed) -> Result<bool, Status> {
    let old = old_containers(observed);
    for container in &old {
        around.runtime.remove(&container.id).await?;
        let message =
            around.directories.termination_message(pod.uid(), &container.name, container.attempt);
        // A file that is gone already is as good.
        let _ = fs::remove_file(message);
        rotation::remove_all(Path::new(&container.log_path));
    }
    let mut is_clean = old.is_empty();
    let removed: BTreeSet<_> = old.iter().map(|container| &container.id).collect();
    for sandbox in observed.sandboxes.iter().skip(1).filter(|sandbox| !sandbox.ready) {
        let mut inside = observed.containers.iter().filter(|it| it.sandbox == sandbox.id);
        if inside.all(|container| removed.contains(&container.id)) {
            around.runtime.remove_sandbox(&sandbox.id).await?;
            is_clean = false;
        }
    }
    Ok(is_clean)
}

/// Dead containers with a newer dead one of the same name. The list is newest first.
fn old_containers(observed: &Observed) -> Vec<&ObservedContainer> {
    let mut kept = BTreeSet::new();
    let dead = observed
        .containers
        .iter()
        .filter(|container| matches!(container.state, ContainerState::Exited { .. }));
    dead.filter(|container| !kept.insert(&container.name)).collect()
}
