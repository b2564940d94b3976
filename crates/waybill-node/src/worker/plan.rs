//! What to do next for a pod: a pure function of what is wanted and what there is.
//!
//! The rules are those of kubelets. Containers count by their newest instance; init containers count in
//! the current sandbox only, since a new sandbox begins from the start. What the runtime has forgotten is
//! taken from the status of the pod.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::{SignedDuration, Timestamp};
use waybill_api::pod::ContainerKind;

use super::{
    back_off::BackOff,
    memory::{self, Memory},
    past, resize,
};
use crate::{
    cri::resources::ContainerLimits,
    observed::{ContainerState, Observed, ObservedContainer, ObservedSandbox},
    pod::{ContainerRef, Pod, RestartPolicy},
    status::{EVICTED, Waiting},
};

#[cfg(test)]
mod tests;

/// What shall happen in one turn. Kills come first, then the sandbox, then starts in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kills: Vec<Kill>,
    /// Containers that were made and never started, or that the runtime lost: they go.
    pub(crate) removals: Vec<String>,
    pub(crate) sandbox: SandboxPlan,
    pub(crate) starts: Vec<Start>,
    /// Containers that may use more, or less, from now on.
    pub(crate) resizes: Vec<Resize>,
    /// Names of containers that may not use yet what their spec says.
    pub(crate) resizing: BTreeSet<String>,
    /// Why containers that should run do not yet.
    pub(crate) waiting: BTreeMap<String, Waiting>,
    /// When the plan changes by itself.
    pub(crate) wake_at: Option<Timestamp>,
}

/// What becomes of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SandboxPlan {
    /// It is good.
    Keep { id: String },
    /// There is none that is ready. Those that there are get stopped first.
    Make { attempt: u32 },
    /// Nothing will run any more: everything is stopped, and kept for those who ask how it ended.
    Finish { failed: Option<Failed> },
}

/// Why a pod failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// A container that must stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) cause: KillCause,
}

/// A container that may use other resources while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resize {
    pub(crate) id: String,
    pub(crate) name: String,
    /// As the runtime has it, if it tells.
    pub(crate) told: Option<ContainerLimits>,
    pub(crate) wanted: ContainerLimits,
}

impl Resize {
    /// Whether it gets less memory than it may use now.
    pub(crate) fn lowers_memory(&self) -> bool {
        let told = self.told.map_or(0, |told| told.memory);
        self.wanted.memory > 0 && (told == 0 || self.wanted.memory < told)
    }
}

/// Why a running container must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillCause {
    LivenessFailed,
    /// It shall have other resources, and wants to be started anew with them.
    Resized,
    /// A driver has other values by now, and the pod wants them.
    Rotated,
    SpecChanged,
    StartupFailed,
    /// The runtime cannot tell whether it runs. A second one beside it would be worse than none.
    Unknown,
}

/// A container that shall start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) kind: ContainerKind,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    /// What holds from this start on, if it is not the first one.
    pub(crate) back_off: Option<BackOff>,
}

/// Decides what to do.
pub(crate) fn plan(pod: &Pod, observed: &Observed, memory: &Memory, now: Timestamp) -> Plan {
    let observed = &past::with_past(pod, observed);
    let mut planner = Planner {
        pod,
        observed,
        memory,
        now,
        sandbox: current_sandbox(observed),
        plan: Plan {
            kills: Vec::new(),
            removals: Vec::new(),
            sandbox: SandboxPlan::Finish { failed: None },
            starts: Vec::new(),
            resizes: Vec::new(),
            resizing: BTreeSet::new(),
            waiting: BTreeMap::new(),
            wake_at: None,
        },
    };
    planner.decide();
    planner.plan
}

/// The newest sandbox, if it is ready.
fn current_sandbox(observed: &Observed) -> Option<&ObservedSandbox> {
    observed.sandboxes.first().filter(|sandbox| sandbox.ready)
}

struct Planner<'a> {
    pod: &'a Pod,
    observed: &'a Observed,
    memory: &'a Memory,
    now: Timestamp,
    sandbox: Option<&'a ObservedSandbox>,
    plan: Plan,
}

/// How far the init containers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Init {
    Done,
    Failed,
    Pending,
}

impl<'a> Planner<'a> {
    fn decide(&mut self) {
        if self.pod.has_ended() {
            return;
        }
        if let Some(message) = &self.memory.evicted {
            self.fail(EVICTED, message);
            return;
        }
        if let Some((reason, message)) = &self.memory.refused {
            self.fail(reason, &format!("Pod was rejected: {message}"));
            return;
        }
        if let Some(deadline) = self.deadline() {
            if self.now >= deadline {
                let message = "Pod was active on the node longer than the specified deadline";
                self.fail("DeadlineExceeded", message);
                return;
            }
            self.wake_at(deadline);
        }
        match self.sandbox {
            Some(sandbox) => self.with_sandbox(&sandbox.id),
            None => self.without_sandbox(),
        }
    }

    fn fail(&mut self, reason: &'static str, message: &str) {
        let message = message.to_owned();
        self.plan.sandbox = SandboxPlan::Finish { failed: Some(Failed { reason, message }) };
    }

    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec().active_deadline_seconds?;
        let start = self.pod.start_time().or(self.memory.started)?;
        start.checked_add(SignedDuration::from_secs(seconds)).ok()
    }

    fn without_sandbox(&mut self) {
        let ran = self.pod.regular().any(|container| self.latest(container).is_some());
        let init_failed =
            self.pod.init().filter(|container| !container.is_sidecar()).any(|container| {
                self.latest(container).is_some_and(|latest| {
                    let succeeded = matches!(latest.state, ContainerState::Exited { code: 0, .. });
                    !succeeded && !self.may_restart(container, latest)
                })
            });
        let never_again =
            init_failed || (ran && !self.pod.regular().any(|it| self.wants_to_run(it)));
        if never_again {
            return;
        }
        let attempt =
            self.observed.sandboxes.first().map_or(0, |sandbox| sandbox.attempt.saturating_add(1));
        self.plan.sandbox = SandboxPlan::Make { attempt };
        match self.pod.init().next() {
            Some(first) => self.start_when_due(first),
            None => self.start_regular(),
        }
        // The names of containers that were never started are wanted again.
        self.remove_unstarted();
    }

    fn with_sandbox(&mut self, id: &str) {
        let mut finished = false;
        match self.init() {
            Init::Failed => finished = true,
            Init::Pending => {}
            Init::Done => {
                self.start_regular();
                let busy = self.pod.regular().any(|container| {
                    self.wants_to_run(container)
                        || self.latest(container).is_some_and(ObservedContainer::is_running)
                });
                finished = !busy;
            }
        }
        if finished {
            self.plan.starts.clear();
            self.plan.waiting.clear();
            self.plan.kills.clear();
            self.plan.resizes.clear();
            self.plan.resizing.clear();
            return;
        }
        self.plan.sandbox = SandboxPlan::Keep { id: id.to_owned() };
        for container in self.pod.ephemeral() {
            if self.latest(container).is_none_or(|it| it.state == ContainerState::Created) {
                self.start_when_due(container);
            }
        }
        self.remove_unstarted();
    }

    /// Judges the init containers in their order. Each waits for the end of the one before it, or for
    /// the start of it if that is a sidecar.
    fn init(&mut self) -> Init {
        let all: Vec<_> = self.pod.init().collect();
        let regular_ran = self.pod.regular().any(|container| self.in_sandbox(container).is_some());
        // Runtimes may forget what ended; what came later proves that it did.
        let furthest = all.iter().rposition(|container| self.in_sandbox(*container).is_some());
        for (at, container) in all.into_iter().enumerate() {
            let passed = regular_ran || furthest.is_some_and(|furthest| at < furthest);
            if container.is_sidecar() {
                if !self.sidecar(container) && !passed {
                    return Init::Pending;
                }
                continue;
            }
            if regular_ran {
                continue;
            }
            match self.in_sandbox(container) {
                None if passed => {}
                None => {
                    self.start_when_due(container);
                    return Init::Pending;
                }
                Some(latest) => match &latest.state {
                    ContainerState::Exited { code: 0, .. } => {}
                    ContainerState::Exited { .. } if !self.may_restart(container, latest) => {
                        return Init::Failed;
                    }
                    ContainerState::Running { .. } => {
                        self.kill_if_changed(container, latest);
                        return Init::Pending;
                    }
                    _ => {
                        self.start_when_due(container);
                        return Init::Pending;
                    }
                },
            }
        }
        Init::Done
    }

    /// Sees that a sidecar runs. True if it has started, so that the next may.
    fn sidecar(&mut self, container: ContainerRef<'a>) -> bool {
        match self.in_sandbox(container) {
            Some(latest) if latest.is_running() => {
                if self.kill_if_unwanted(container, latest) {
                    return false;
                }
                self.memory.health(&latest.id).started
            }
            _ => {
                self.start_when_due(container);
                false
            }
        }
    }

    fn start_regular(&mut self) {
        let regular: Vec<_> = self.pod.regular().collect();
        for container in regular {
            match self.latest(container) {
                Some(latest) if latest.is_running() && self.is_in_sandbox(latest) => {
                    self.kill_if_unwanted(container, latest);
                }
                _ if self.wants_to_run(container) => self.start_when_due(container),
                _ => {}
            }
        }
    }

    fn kill_if_unwanted(
        &mut self,
        container: ContainerRef<'_>,
        latest: &ObservedContainer,
    ) -> bool {
        let health = self.memory.health(&latest.id);
        let cause = if health.startup_failed {
            KillCause::StartupFailed
        } else if health.liveness_failed {
            KillCause::LivenessFailed
        } else if self.memory.stale.contains(container.name())
            && container.restart_policy(self.pod) != RestartPolicy::Never
        {
            KillCause::Rotated
        } else {
            return self.kill_if_changed(container, latest) || self.resize(container, latest);
        };
        self.kill(latest, cause);
        true
    }

    fn kill_if_changed(&mut self, container: ContainerRef<'_>, latest: &ObservedContainer) -> bool {
        let changed = latest.spec_hash.as_ref().is_some_and(|hash| *hash != container.spec_hash());
        if changed {
            self.kill(latest, KillCause::SpecChanged);
        }
        changed
    }

    /// Sees that a container that runs may use what its spec says. True if it has to be started anew for that.
    fn resize(&mut self, container: ContainerRef<'_>, latest: &ObservedContainer) -> bool {
        let status = self.pod.container_status(container);
        let Some(given) = status.and_then(|status| status.resources.as_ref()) else { return false };
        if !resize::differs(container, given) {
            return false;
        }
        let (spec, told) = (container.to_container(), latest.limits);
        let wanted = ContainerLimits::wanted(&spec);
        let cpu = told.is_none_or(|told| told.differs_in_cpu(wanted));
        let memory = told.is_none_or(|told| told.differs_in_memory(wanted));
        if !(cpu || memory) || self.memory.was_resized(&latest.id, wanted) {
            return false;
        }
        self.plan.resizing.insert(latest.name.clone());
        if let Some(retry) = self.memory.resize_retry(&latest.id, self.now) {
            self.wake_at(retry);
            return false;
        }
        let restarts = |name: &str| {
            spec.resize_policy.iter().flatten().any(|policy| {
                policy.resource_name == name && policy.restart_policy == "RestartContainer"
            })
        };
        // Of a runtime that tells nothing nobody knows whether the restart has been.
        if told.is_some() && ((cpu && restarts("cpu")) || (memory && restarts("memory"))) {
            self.kill(latest, KillCause::Resized);
            return true;
        }
        let (id, name) = (latest.id.clone(), latest.name.clone());
        self.plan.resizes.push(Resize { id, name, told, wanted });
        false
    }

    fn kill(&mut self, container: &ObservedContainer, cause: KillCause) {
        self.plan.kills.push(Kill {
            id: container.id.clone(),
            name: container.name.clone(),
            cause,
        });
    }

    /// Starts a container, unless it has to wait: for its back-off, or because the last try failed.
    fn start_when_due(&mut self, container: ContainerRef<'_>) {
        let name = container.name();
        let latest = self.latest(container);
        if let Some(unknown) = latest.filter(|it| it.state == ContainerState::Unknown)
            && self.is_in_sandbox(unknown)
        {
            self.kill(unknown, KillCause::Unknown);
            let waiting = Waiting {
                reason: "ContainerStatusUnknown",
                message: "the runtime does not know whether the container runs".to_owned(),
            };
            self.plan.waiting.insert(name.to_owned(), waiting);
            return;
        }
        let attempt = past::next_attempt(self.pod, container, latest);
        if let Some((until, waiting)) = self.memory.not_before(name, self.now) {
            self.wake_at(until);
            self.plan.waiting.insert(name.to_owned(), waiting);
            return;
        }
        let mut back_off = None;
        if let Some(ContainerState::Exited { finished, .. }) = latest.map(|latest| &latest.state)
            && latest
                .is_some_and(|latest| latest.spec_hash.as_deref() == Some(&container.spec_hash()))
        {
            let before = self.memory.back_off(name);
            match BackOff::after(before, *finished, self.now) {
                Ok(next) => back_off = Some(next),
                Err(until) => {
                    self.wake_at(until);
                    let delay = before.map(|before| before.delay).unwrap_or_default();
                    let waiting = memory::crash_loop(delay, name, self.pod);
                    self.plan.waiting.insert(name.to_owned(), waiting);
                    return;
                }
            }
        }
        if let Some(failure) = self.memory.last_failure(name) {
            self.plan.waiting.insert(name.to_owned(), failure.clone());
        }
        self.plan.starts.push(Start {
            kind: container.kind,
            name: name.to_owned(),
            attempt,
            back_off,
        });
    }

    /// Containers that exist and were never started are made again under the same number.
    fn remove_unstarted(&mut self) {
        let starts: HashSet<&str> = self.plan.starts.iter().map(|start| &*start.name).collect();
        let unstarted = self.observed.containers.iter().filter(|container| {
            matches!(container.state, ContainerState::Created) && starts.contains(&*container.name)
        });
        self.plan.removals = unstarted.map(|container| container.id.clone()).collect();
    }

    /// Whether a regular container should be running.
    fn wants_to_run(&self, container: ContainerRef<'_>) -> bool {
        match self.latest(container) {
            None => true,
            Some(latest) => match latest.state {
                // It dies with its old sandbox, and not by itself.
                ContainerState::Running { .. } => {
                    self.is_in_sandbox(latest)
                        || container.restart_policy(self.pod) != RestartPolicy::Never
                }
                _ => self.may_restart(container, latest),
            },
        }
    }

    fn may_restart(&self, container: ContainerRef<'_>, latest: &ObservedContainer) -> bool {
        let ContainerState::Exited { code, .. } = latest.state else { return true };
        if self.memory.replaces(container.name()) {
            return true;
        }
        container.restarts_after(self.pod, code)
    }

    fn latest(&self, container: ContainerRef<'_>) -> Option<&'a ObservedContainer> {
        self.observed.latest(container.name())
    }

    /// The newest instance of a container, if it belongs to the current sandbox.
    fn in_sandbox(&self, container: ContainerRef<'_>) -> Option<&'a ObservedContainer> {
        self.latest(container).filter(|latest| self.is_in_sandbox(latest))
    }

    fn is_in_sandbox(&self, container: &ObservedContainer) -> bool {
        self.sandbox.is_some_and(|sandbox| sandbox.id == container.sandbox)
    }

    fn wake_at(&mut self, time: Timestamp) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(time, |other| other.min(time)));
    }
}
