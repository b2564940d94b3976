//! The conditions of a pod.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use waybill_api::pod::ContainerKind;

use super::{
    EVICTED, Facts, PendingResize, ResizeState,
    phase::{FAILED, SUCCEEDED},
};
use crate::{
    observed::Observed,
    pod::{ContainerRef, Pod},
};

const CONTAINERS_READY: &str = "ContainersReady";
/// Others may say so too; theirs stays as it is, since only what is named is written.
const DISRUPTED: &str = "DisruptionTarget";
/// These two are there only while they hold.
const RESIZE_PENDING: &str = "PodResizePending";
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const SANDBOX_READY: &str = "PodReadyToStartContainers";
const SCHEDULED: &str = "PodScheduled";

/// The conditions that are ours to write; others belong to whoever set them.
pub(super) const OURS: [&str; 8] = [
    SANDBOX_READY,
    INITIALIZED,
    READY,
    CONTAINERS_READY,
    SCHEDULED,
    DISRUPTED,
    RESIZE_PENDING,
    RESIZE_IN_PROGRESS,
];

/// Those that go when they do not hold any more.
pub(super) const PASSING: [&str; 2] = [RESIZE_PENDING, RESIZE_IN_PROGRESS];

/// Sets the conditions: ours as they are now, others as they were. Phase and containers stand.
pub(super) fn fill(
    status: &mut PodStatus,
    old: &PodStatus,
    pod: &Pod,
    observed: &Observed,
    facts: &Facts,
    now: Timestamp,
) {
    let sandbox_ready = observed.sandboxes.first().is_some_and(|sandbox| sandbox.ready);
    let containers_ready = containers_ready(status, pod);
    let verdicts = [
        (SANDBOX_READY, Verdict::plain(sandbox_ready)),
        (INITIALIZED, initialized(status, pod)),
        (READY, ready(&containers_ready, old, pod)),
        (CONTAINERS_READY, containers_ready),
        (SCHEDULED, Verdict::plain(true)),
    ];
    let generation = pod.object().metadata.generation;
    let ours = verdicts.map(|(kind, verdict)| verdict.condition(kind, old, generation, now));
    let evicted = facts.failed.as_ref().filter(|failed| failed.reason == EVICTED);
    let evicted = evicted.map(|failed| {
        let message = Some(failed.message.clone());
        let verdict = Verdict { holds: true, reason: Some("TerminationByKubelet"), message };
        verdict.condition(DISRUPTED, old, generation, now)
    });
    let resize =
        resize(&facts.resize).map(|(kind, verdict)| verdict.condition(kind, old, generation, now));
    let others = old.conditions.iter().flatten();
    let others = others.filter(|condition| !OURS.contains(&condition.type_.as_str())).cloned();
    status.conditions = Some(ours.into_iter().chain(evicted).chain(resize).chain(others).collect());
}

/// Whether something holds, and why not.
#[derive(Clone, Debug)]
struct Verdict {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn plain(holds: bool) -> Self {
        Self { holds, reason: None, message: None }
    }

    fn with(holds: bool, reason: &'static str) -> Self {
        Self { holds, reason: Some(reason), message: None }
    }

    fn condition(
        self,
        kind: &str,
        old: &PodStatus,
        generation: Option<i64>,
        now: Timestamp,
    ) -> PodCondition {
        let status = if self.holds { "True" } else { "False" };
        let old = old.conditions.iter().flatten().find(|condition| condition.type_ == kind);
        let unchanged = old.filter(|old| old.status == status);
        if let Some(kept) = unchanged.filter(|_| kind == SCHEDULED) {
            // The scheduler's words; which generation of the pod they are about, the node says.
            return PodCondition { observed_generation: generation, ..kept.clone() };
        }
        let since = unchanged.and_then(|old| old.last_transition_time.clone());
        PodCondition {
            last_transition_time: Some(since.unwrap_or(Time(now))),
            message: self.message,
            observed_generation: generation,
            reason: self.reason.map(str::to_owned),
            status: status.to_owned(),
            type_: kind.to_owned(),
            ..PodCondition::default()
        }
    }
}

/// At most one: what is not given is not under way.
fn resize(state: &ResizeState) -> Option<(&'static str, Verdict)> {
    if let Some(PendingResize { reason, message }) = &state.pending {
        let message = Some(message.clone());
        return Some((RESIZE_PENDING, Verdict { holds: true, reason: Some(reason), message }));
    }
    (!state.under_way.is_empty()).then(|| {
        let (reason, message) = (state.error.is_some().then_some("Error"), state.error.clone());
        (RESIZE_IN_PROGRESS, Verdict { holds: true, reason, message })
    })
}

fn initialized(status: &PodStatus, pod: &Pod) -> Verdict {
    let init = pod.containers().filter(|container| container.kind == ContainerKind::Init);
    let names = sort(init, status, |container, status| {
        if container.is_sidecar() { status.started == Some(true) } else { status.ready }
    });
    if status.phase.as_deref() == Some(SUCCEEDED) && names.unknown.is_empty() {
        return Verdict::with(true, "PodCompleted");
    }
    // Once a regular container ran, all before it was done; sidecars may come and go.
    let regular = status.container_statuses.iter().flatten();
    if regular.into_iter().any(ran) {
        return Verdict::plain(true);
    }
    names.verdict("ContainersNotInitialized", "incomplete")
}

fn ran(status: &ContainerStatus) -> bool {
    [&status.state, &status.last_state]
        .into_iter()
        .flatten()
        .any(|state| state.running.is_some() || state.terminated.is_some())
}

fn containers_ready(status: &PodStatus, pod: &Pod) -> Verdict {
    let wanted = pod
        .containers()
        .filter(|container| container.kind == ContainerKind::Regular || container.is_sidecar());
    let names = sort(wanted, status, |_, status| status.ready);
    match status.phase.as_deref() {
        Some(SUCCEEDED) if names.unknown.is_empty() => Verdict::with(false, "PodCompleted"),
        Some(FAILED) if names.unknown.is_empty() => Verdict::with(false, "PodFailed"),
        _ => names.verdict("ContainersNotReady", "unready"),
    }
}

fn ready(containers_ready: &Verdict, old: &PodStatus, pod: &Pod) -> Verdict {
    if !containers_ready.holds {
        return containers_ready.clone();
    }
    let messages: Vec<_> = pod
        .spec()
        .readiness_gates
        .iter()
        .flatten()
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            let mut conditions = old.conditions.iter().flatten();
            match conditions.find(|condition| condition.type_ == *kind) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {kind:?} does not exist."
                )),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if messages.is_empty() {
        return Verdict::plain(true);
    }
    Verdict { message: Some(messages.join(", ")), ..Verdict::with(false, "ReadinessGatesNotReady") }
}

/// Containers that stand in the way of a condition.
struct Names {
    unknown: Vec<String>,
    lacking: Vec<String>,
}

fn sort<'p>(
    containers: impl Iterator<Item = ContainerRef<'p>>,
    status: &PodStatus,
    is_fine: impl Fn(ContainerRef<'_>, &ContainerStatus) -> bool,
) -> Names {
    let mut names = Names { unknown: Vec::new(), lacking: Vec::new() };
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let known = lists.into_iter().flatten().flatten().map(|status| (&*status.name, status));
    let known: HashMap<_, _> = known.collect();
    for container in containers {
        match known.get(container.name()).copied() {
            None => names.unknown.push(container.name().to_owned()),
            Some(status) if !is_fine(container, status) => {
                names.lacking.push(container.name().to_owned());
            }
            Some(_) => {}
        }
    }
    names
}

impl Names {
    fn verdict(&self, reason: &'static str, lack: &str) -> Verdict {
        let part = |names: &[String], lack: &str| {
            (!names.is_empty())
                .then(|| format!("containers with {lack} status: [{}]", names.join(" ")))
        };
        let parts = [part(&self.unknown, "unknown"), part(&self.lacking, lack)];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            return Verdict::plain(true);
        }
        Verdict { message: Some(parts.join(", ")), ..Verdict::with(false, reason) }
    }
}
