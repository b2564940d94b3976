//! The statuses of the containers of a pod.

use k8s_openapi::{
    api::core::v1::{
        ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use waybill_api::pod::ContainerKind;

use super::{Facts, to_the_second};
use crate::{
    observed::{ContainerState, Observed, ObservedContainer},
    pod::{ContainerRef, ContainerSpec, Pod},
};

/// The reason of an end that nobody saw, and its exit code: as after a kill.
const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
const KILLED: i32 = 137;

/// Sets the statuses of all containers of `pod`, in the orders that kubelets use: init containers as in
/// the spec, others by name.
pub(super) fn fill(
    status: &mut PodStatus,
    old: &PodStatus,
    pod: &Pod,
    observed: &Observed,
    facts: &Facts,
) {
    if facts.failed.is_some() && never_ran(old, observed) {
        // As when a node refuses a pod: the reason of the pod is all there is to say.
        return;
    }
    let has_init = pod.spec().init_containers.iter().flatten().next().is_some();
    let view = View { pod, observed, facts, has_init };
    let of_kind = |kind, old: &Option<Vec<ContainerStatus>>| {
        let containers = pod.containers().filter(|container| container.kind == kind);
        let statuses: Vec<_> = containers
            .map(|container| {
                let mut old = old.iter().flatten();
                view.status(container, old.find(|status| status.name == container.name()))
            })
            .collect();
        (!statuses.is_empty()).then_some(statuses)
    };
    status.init_container_statuses = of_kind(ContainerKind::Init, &old.init_container_statuses);
    status.container_statuses = of_kind(ContainerKind::Regular, &old.container_statuses);
    status.ephemeral_container_statuses =
        of_kind(ContainerKind::Ephemeral, &old.ephemeral_container_statuses);
    for list in [&mut status.container_statuses, &mut status.ephemeral_container_statuses] {
        list.iter_mut().for_each(|list| list.sort_by(|a, b| a.name.cmp(&b.name)));
    }
    if facts.terminating && !runs_any(observed) {
        end_all(status);
    }
}

fn never_ran(old: &PodStatus, observed: &Observed) -> bool {
    let lists = [&old.init_container_statuses, &old.container_statuses];
    let mut old = lists.into_iter().flatten().flatten();
    observed.containers.is_empty() && !old.any(has_started)
}

/// Whether any container runs.
pub(super) fn runs_any(observed: &Observed) -> bool {
    observed.containers.iter().any(ObservedContainer::is_running)
}

/// Whether there is any trace of a container that ran.
fn has_started(status: &ContainerStatus) -> bool {
    let is_trace = |state: &ApiState| state.running.is_some() || state.terminated.is_some();
    [&status.state, &status.last_state].into_iter().flatten().any(is_trace)
}

/// Everything that the status of one container is made of.
struct View<'a> {
    pod: &'a Pod,
    observed: &'a Observed,
    facts: &'a Facts,
    has_init: bool,
}

impl View<'_> {
    fn status(
        &self,
        container: ContainerRef<'_>,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let mut status = match self.observed.latest(container.name()) {
            Some(latest) => self.observed_status(latest, old),
            None => self.unobserved_status(container, old),
        };
        self.set_resources(&mut status, container, old);
        self.show_waiting(&mut status, container);
        self.set_health(&mut status, container);
        status
    }

    /// What a container has, and what the node has set aside for it. One that does not have its new resources yet has its old ones.
    fn set_resources(
        &self,
        status: &mut ContainerStatus,
        container: ContainerRef<'_>,
        old: Option<&ContainerStatus>,
    ) {
        if container.kind == ContainerKind::Ephemeral || status.container_id.is_none() {
            return;
        }
        // Also of one that asked for nothing: by this, API servers know that a node can do it.
        let resources = container.to_container().resources.unwrap_or_default();
        status.allocated_resources.clone_from(&resources.requests);
        let waits = self.facts.resize.under_way.contains(container.name());
        status.resources =
            if waits { old.and_then(|old| old.resources.clone()) } else { Some(resources) };
    }

    fn observed_status(
        &self,
        latest: &ObservedContainer,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let id = self.id(latest);
        let state = match self.state(latest) {
            Some(state) => state,
            // The runtime lost it. If it ran, it has ended.
            None if old
                .is_some_and(|old| old.container_id.as_ref() == Some(&id) && is_running(old)) =>
            {
                ended(&unseen_end("The container could not be located when the pod was terminated"))
            }
            None => self.default_state(),
        };
        let previous = self.observed.previous(&latest.name);
        let last_state = previous
            .and_then(|previous| self.state(previous))
            .filter(|state| state.terminated.is_some())
            .or_else(|| last_state_of(old?, &id));
        ContainerStatus {
            name: latest.name.clone(),
            container_id: Some(id),
            image: latest.image.clone(),
            image_id: latest.image_id.clone(),
            // Others may have removed containers of the runtime; what was counted stays counted.
            restart_count: i32::try_from(latest.attempt)
                .unwrap_or(i32::MAX)
                .max(old.map_or(0, |old| old.restart_count)),
            state: Some(state),
            last_state: Some(last_state.unwrap_or_default()),
            volume_mounts: old.and_then(|old| old.volume_mounts.clone()),
            ..ContainerStatus::default()
        }
    }

    /// The runtime has nothing of this name: it never did, or has forgotten it.
    fn unobserved_status(
        &self,
        container: ContainerRef<'_>,
        old: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let fresh = ContainerStatus {
            name: container.name().to_owned(),
            image: image(container).to_owned(),
            state: Some(self.default_state()),
            last_state: Some(ApiState::default()),
            ..ContainerStatus::default()
        };
        let Some(old) = old else { return fresh };
        if old.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
            return old.clone();
        }
        if container.kind == ContainerKind::Ephemeral && has_started(old) {
            let message = "The container could not be located, and ephemeral containers run once";
            return ContainerStatus { state: Some(ended(&unseen_end(message))), ..old.clone() };
        }
        let mut status = ContainerStatus {
            restart_count: old.restart_count,
            last_state: Some(old.last_state.clone().unwrap_or_default()),
            ..fresh
        };
        if is_running(old) {
            let end = unseen_end(
                "The container could not be located when the pod was deleted.  The container used to be Running",
            );
            status.last_state = Some(ended(&end));
            if !self.pod.is_deleted() {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
        status
    }

    /// A container that should run and does not is waiting, and what ended is its past.
    fn show_waiting(&self, status: &mut ContainerStatus, container: ContainerRef<'_>) {
        let Some(waiting) = self.facts.waiting.get(container.name()) else { return };
        let state = status.state.take().unwrap_or_default();
        if state.running.is_some() {
            status.state = Some(state);
            return;
        }
        if state.terminated.is_some() {
            status.last_state = Some(state);
        }
        status.state = Some(ApiState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(waiting.reason.to_owned()),
                message: Some(waiting.message.clone()).filter(|message| !message.is_empty()),
            }),
            ..ApiState::default()
        });
    }

    fn set_health(&self, status: &mut ContainerStatus, container: ContainerRef<'_>) {
        let ContainerSpec::Usual(spec) = container.container else { return };
        let runs = is_running(status);
        let id = self.observed.latest(container.name()).map_or("", |latest| &latest.id);
        let started = runs && self.facts.probes.is_started(spec, id);
        status.started = Some(started);
        status.ready = if container.kind == ContainerKind::Init && !container.is_sidecar() {
            let end = status.state.as_ref().and_then(|state| state.terminated.as_ref());
            end.is_some_and(|end| end.exit_code == 0)
        } else {
            started && self.facts.probes.is_ready(spec, id)
        };
    }

    /// `None` if the runtime does not know.
    fn state(&self, container: &ObservedContainer) -> Option<ApiState> {
        match &container.state {
            ContainerState::Created => Some(self.default_state()),
            ContainerState::Running { started } => Some(ApiState {
                running: Some(ContainerStateRunning {
                    started_at: Some(Time(to_the_second(*started))),
                }),
                ..ApiState::default()
            }),
            ContainerState::Exited { started, finished, code, signal, reason, message } => {
                // One that could not be started, or was stopped before, has both at that moment: clients subtract.
                let started = started.unwrap_or(*finished);
                Some(ended(&ContainerStateTerminated {
                    container_id: Some(self.id(container)),
                    exit_code: *code,
                    finished_at: Some(Time(to_the_second(*finished))),
                    message: Some(message.clone()).filter(|message| !message.is_empty()),
                    reason: Some(end_reason(reason, *code)),
                    signal: *signal,
                    started_at: Some(Time(to_the_second(started))),
                }))
            }
            ContainerState::Unknown => None,
        }
    }

    fn default_state(&self) -> ApiState {
        let reason = if self.has_init { "PodInitializing" } else { "ContainerCreating" };
        let reason = Some(reason.to_owned());
        ApiState {
            waiting: Some(ContainerStateWaiting { reason, message: None }),
            ..ApiState::default()
        }
    }

    fn id(&self, container: &ObservedContainer) -> String {
        format!("{}://{}", self.facts.runtime_name, container.id)
    }
}

/// Runtimes that give no reason leave it to the exit code.
fn end_reason(reason: &str, code: i32) -> String {
    match (reason, code) {
        ("", 0) => "Completed".to_owned(),
        ("", _) => "Error".to_owned(),
        (reason, _) => reason.to_owned(),
    }
}

fn image(container: ContainerRef<'_>) -> &str {
    let image = match container.container {
        ContainerSpec::Ephemeral(container) => &container.image,
        ContainerSpec::Usual(container) => &container.image,
    };
    image.as_deref().unwrap_or_default()
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// How the container before `id` ended, as far as the old status tells: it is about that one, or about
/// `id` itself and knows what came before.
fn last_state_of(old: &ContainerStatus, id: &str) -> Option<ApiState> {
    if old.container_id.as_deref() == Some(id) {
        return old.last_state.clone();
    }
    let state = old.state.as_ref().filter(|state| state.terminated.is_some());
    state.or(old.last_state.as_ref()).cloned()
}

fn ended(end: &ContainerStateTerminated) -> ApiState {
    ApiState { terminated: Some(end.clone()), ..ApiState::default() }
}

fn unseen_end(message: &str) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: KILLED,
        message: Some(message.to_owned()),
        reason: Some(STATUS_UNKNOWN.to_owned()),
        ..ContainerStateTerminated::default()
    }
}

/// Nothing starts any more. Containers of which nobody saw the end have ended all the same, except
/// those whose turn never came.
fn end_all(status: &mut PodStatus) {
    let started = |list: &Option<Vec<ContainerStatus>>| list.iter().flatten().any(has_started);
    let is_initialized = started(&status.container_statuses);
    let end = || {
        Some(ended(&unseen_end("The container could not be located when the pod was terminated")))
    };
    let is_open =
        |status: &ContainerStatus| status.state.as_ref().is_none_or(|s| s.terminated.is_none());
    let init = status.init_container_statuses.iter_mut().flatten();
    let init: Vec<_> = init.collect();
    // After the last init container that began, none has had its turn.
    let begun = init.iter().rposition(|status| has_started(status)).map_or(0, |at| at + 1);
    let begun = if is_initialized { init.len() } else { begun };
    for status in init.into_iter().take(begun).filter(|status| is_open(status)) {
        status.state = end();
    }
    if is_initialized {
        let regular = status.container_statuses.iter_mut().flatten();
        for status in regular.filter(|status| is_open(status)) {
            status.state = end();
        }
    }
    for status in status.container_statuses.iter_mut().flatten() {
        status.ready = false;
        status.started = Some(false);
    }
}
