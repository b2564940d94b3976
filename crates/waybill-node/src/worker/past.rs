//! What the API server remembers of containers that the runtime has forgotten.
//!
//! A node that is drained removes its containers, and a machine that is started again has none. What had
//! ended before must not run again all the same, and no count of restarts may fall.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};
use waybill_api::pod::ContainerKind;

use crate::{
    observed::{ContainerState, Observed, ObservedContainer},
    pod::{ContainerRef, Pod, RestartPolicy},
};

/// The code of an end that nobody saw.
const KILLED: i32 = 137;

/// What the runtime has, and the ends of containers that it does not have any more. They belong to no
/// sandbox.
pub(super) fn with_past(pod: &Pod, observed: &Observed) -> Observed {
    let mut all = observed.clone();
    let forgotten = pod.containers().filter(|it| observed.latest(it.name()).is_none());
    all.containers.extend(forgotten.filter_map(|container| ended(pod, container)));
    all
}

/// The number of the next instance of a container, whatever the runtime knows of earlier ones.
pub(super) fn next_attempt(
    pod: &Pod,
    container: ContainerRef<'_>,
    latest: Option<&ObservedContainer>,
) -> u32 {
    let status = pod.container_status(container);
    let told = status.map_or(0, count);
    match latest {
        Some(latest) if latest.state == ContainerState::Created => latest.attempt.max(told),
        Some(latest) => latest.attempt.saturating_add(1).max(told),
        // A status that names no container counts the coming one already.
        None if status.is_some_and(|it| it.container_id.is_some() && has_run(it)) => {
            told.saturating_add(1)
        }
        None => told,
    }
}

fn ended(pod: &Pod, container: ContainerRef<'_>) -> Option<ObservedContainer> {
    let status = pod.container_status(container)?;
    let end = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let state = match end {
        Some(end) => exited(end),
        // It runs once, and has: the machine was started anew under it. The others are started again.
        None if runs_once(pod, container) && has_run(status) => {
            exited(&ContainerStateTerminated { exit_code: KILLED, ..Default::default() })
        }
        None => return None,
    };
    Some(ObservedContainer {
        id: status.container_id.clone().unwrap_or_default(),
        sandbox: String::new(),
        name: status.name.clone(),
        attempt: count(status),
        spec_hash: None,
        limits: None,
        image: status.image.clone(),
        image_id: status.image_id.clone(),
        log_path: String::new(),
        created: Timestamp::UNIX_EPOCH,
        state,
    })
}

fn runs_once(pod: &Pod, container: ContainerRef<'_>) -> bool {
    container.kind == ContainerKind::Ephemeral
        || container.restart_policy(pod) == RestartPolicy::Never
}

fn exited(end: &ContainerStateTerminated) -> ContainerState {
    ContainerState::Exited {
        started: end.started_at.as_ref().map(|time| time.0),
        finished: end.finished_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        code: end.exit_code,
        signal: end.signal,
        reason: end.reason.clone().unwrap_or_default(),
        message: end.message.clone().unwrap_or_default(),
    }
}

fn count(status: &ContainerStatus) -> u32 {
    u32::try_from(status.restart_count).unwrap_or(0)
}

fn has_run(status: &ContainerStatus) -> bool {
    let states = [&status.state, &status.last_state].into_iter().flatten();
    states.into_iter().any(|state| state.running.is_some() || state.terminated.is_some())
}
