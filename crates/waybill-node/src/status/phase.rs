//! The phase of a pod: the sum of its containers.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodStatus};
use waybill_api::pod::ContainerKind;

use super::{Facts, container::runs_any};
use crate::{
    observed::Observed,
    pod::{Pod, PodOrigin},
};

pub(super) const FAILED: &str = "Failed";
pub(super) const SUCCEEDED: &str = "Succeeded";
const PENDING: &str = "Pending";
const RUNNING: &str = "Running";

/// Sets the phase, its reason and its message. The statuses of containers stand.
pub(super) fn fill(
    status: &mut PodStatus,
    old: &PodStatus,
    pod: &Pod,
    observed: &Observed,
    facts: &Facts,
) {
    let ended = old.phase.as_deref().filter(|phase| is_terminal(phase));
    if let Some(phase) = ended {
        // What has ended stays as it ended.
        status.phase = Some(phase.to_owned());
        status.reason.clone_from(&old.reason);
        status.message.clone_from(&old.message);
        return;
    }
    let nothing_runs = !runs_any(observed);
    if let Some(failed) = facts.failed.as_ref().filter(|_| nothing_runs) {
        status.phase = Some(FAILED.to_owned());
        status.reason = Some(failed.reason.clone());
        status.message = Some(failed.message.clone()).filter(|message| !message.is_empty());
        return;
    }
    let mut phase = phase(pod, status, facts.terminating && nothing_runs);
    // Files have no status that could end; they run as long as they are there.
    let may_end = pod.origin() == PodOrigin::ApiServer;
    if facts.terminating && nothing_runs && may_end && !is_terminal(phase) {
        phase = FAILED;
    }
    status.phase = Some(phase.to_owned());
}

/// Whether nothing follows.
pub(super) fn is_terminal(phase: &str) -> bool {
    [FAILED, SUCCEEDED].contains(&phase)
}

/// What containers do, counted.
#[derive(Default)]
struct Tally {
    waiting: u32,
    running: u32,
    stopped: u32,
    succeeded: u32,
    /// Of those that stopped, the ones that start again.
    restarting: u32,
    init_pending: u32,
    /// For good.
    init_failed: u32,
}

fn phase(pod: &Pod, status: &PodStatus, is_final: bool) -> &'static str {
    let tally = tally(pod, status);
    if tally.init_failed > 0 {
        return FAILED;
    }
    if tally.init_pending > 0 || tally.waiting > 0 {
        return PENDING;
    }
    if tally.running > 0 {
        return RUNNING;
    }
    if tally.stopped == 0 {
        return PENDING;
    }
    let is_final = is_final && pod.origin() == PodOrigin::ApiServer;
    if tally.restarting > 0 && !is_final {
        return RUNNING;
    }
    if tally.stopped == tally.succeeded { SUCCEEDED } else { FAILED }
}

fn tally(pod: &Pod, status: &PodStatus) -> Tally {
    let mut tally = Tally::default();
    let nothing = ContainerState::default();
    for container in pod.containers() {
        let list = match container.kind {
            ContainerKind::Ephemeral => continue,
            ContainerKind::Init => &status.init_container_statuses,
            ContainerKind::Regular => &status.container_statuses,
        };
        let found = list.iter().flatten().find(|status| status.name == container.name());
        let (state, last) = states(found, &nothing);
        let restarts = |code| container.restarts_after(pod, code);
        if container.kind == ContainerKind::Regular {
            tally.add_regular(state, last, restarts);
        } else if container.is_sidecar() {
            tally.running += u32::from(state.running.is_some());
        } else {
            tally.add_init(state, last, restarts);
        }
    }
    tally
}

fn states<'a>(
    status: Option<&'a ContainerStatus>,
    nothing: &'a ContainerState,
) -> (&'a ContainerState, &'a ContainerState) {
    let state = status.and_then(|status| status.state.as_ref()).unwrap_or(nothing);
    let last = status.and_then(|status| status.last_state.as_ref()).unwrap_or(nothing);
    (state, last)
}

impl Tally {
    fn add_regular(
        &mut self,
        state: &ContainerState,
        last: &ContainerState,
        restarts: impl Fn(i32) -> bool,
    ) {
        if state.running.is_some() {
            self.running += 1;
        } else if let Some(end) = &state.terminated {
            self.stopped += 1;
            self.succeeded += u32::from(end.exit_code == 0);
            self.restarting += u32::from(restarts(end.exit_code));
        } else if let Some(end) = &last.terminated {
            self.stopped += 1;
            self.restarting += u32::from(restarts(end.exit_code));
        } else {
            self.waiting += 1;
        }
    }

    fn add_init(
        &mut self,
        state: &ContainerState,
        last: &ContainerState,
        restarts: impl Fn(i32) -> bool,
    ) {
        let end = state.terminated.as_ref();
        let end = end.or(last.terminated.as_ref().filter(|_| state.running.is_none()));
        match end {
            Some(end) if end.exit_code == 0 && state.terminated.is_some() => {}
            Some(end) if end.exit_code != 0 => {
                self.init_failed += u32::from(!restarts(end.exit_code));
                self.init_pending += 1;
            }
            _ => self.init_pending += 1,
        }
    }
}
