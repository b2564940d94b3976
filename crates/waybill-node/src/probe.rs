//! Probes: asking containers whether they have started, are alive and are ready.
//!
//! Each probe of each running container has a task of its own, bound to the runtime's id of the
//! container: one that starts again is asked anew. As long as the startup probe has not passed, the
//! others wait. Pods are asked at their address; a pod whose sandbox has none is reached through the
//! runtime's port-forward.

mod ask;
pub(crate) mod dial;
mod grpc;
pub(crate) mod http;
mod results;
mod run;
mod tally;
mod tls;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::pod::ContainerKind;
use waybill_core::id::PodUid;

pub(crate) use self::results::{ProbeFailure, Purpose, Results};
use self::{
    ask::Subject,
    dial::Place,
    results::ContainerResults,
    run::{Run, Schedule},
};
use crate::{
    Clock,
    cri::Runtime,
    event::Recorder,
    observed::{ContainerState, Observed, ObservedContainer},
    pod::{ContainerSpec, Pod},
};

/// Is called when a result of a pod changes.
pub(crate) type Wake = Arc<dyn Fn(&PodUid) + Send + Sync>;

/// Asks the containers of all pods. Clones share all.
#[derive(Clone)]
pub(crate) struct Prober {
    shared: Arc<Shared>,
}

struct Shared {
    runtime: Runtime,
    recorder: Recorder,
    /// Where pods on the host's network are asked.
    host_ip: String,
    clock: Clock,
    wake: Wake,
    pods: Mutex<HashMap<PodUid, PodProbes>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The containers of a pod, by the runtime's ids.
type PodProbes = BTreeMap<String, Watched>;

/// A container that is asked.
struct Watched {
    results: ContainerResults,
    /// Ends all its tasks.
    stop: CancellationToken,
    /// Ends those that could have it killed.
    spare: CancellationToken,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Prober {
    /// Prepares a prober; `wake` must not wait.
    pub(crate) fn new(
        runtime: Runtime,
        recorder: Recorder,
        host_ip: &str,
        clock: Clock,
        wake: Wake,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let shared = Shared {
            runtime,
            recorder,
            host_ip: host_ip.to_owned(),
            clock,
            wake,
            pods: Mutex::default(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sees to it that what runs is asked, and nothing else. Must be called inside a tokio runtime.
    pub(crate) fn watch(&self, pod: &Arc<Pod>, observed: &Observed) {
        let mut pods = self.shared.lock();
        let mut known = pods.remove(pod.uid()).unwrap_or_default();
        known.retain(|id, _| observed.containers.iter().any(|c| c.id == *id && c.is_running()));
        for (spec, container, started) in probed(pod, observed) {
            let watched = known
                .entry(container.id.clone())
                .or_insert_with(|| self.shared.begin(pod, spec, container, started, observed));
            if pod.is_deleted() {
                // It ends anyway, and in its own time.
                watched.spare.cancel();
            }
        }
        if !known.is_empty() {
            pods.insert(pod.uid().clone(), known);
        }
    }

    /// What is known now.
    pub(crate) fn results(&self, uid: &PodUid) -> Results {
        let pods = self.shared.lock();
        let containers = pods.get(uid).into_iter().flatten();
        let containers = containers.map(|(id, watched)| (id.clone(), watched.results.clone()));
        Results { containers: containers.collect() }
    }

    /// The pod is gone.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.shared.lock().remove(uid);
    }
}

/// Containers that run and have probes.
fn probed<'a>(
    pod: &'a Pod,
    observed: &'a Observed,
) -> impl Iterator<Item = (&'a Container, &'a ObservedContainer, Timestamp)> {
    pod.containers().filter_map(|container| {
        let ContainerSpec::Usual(spec) = container.container else { return None };
        if container.kind == ContainerKind::Init && !container.is_sidecar() {
            return None;
        }
        let has_any = Purpose::ALL.iter().any(|purpose| probe_of(spec, *purpose).is_some());
        let found = observed.latest(&spec.name).filter(|_| has_any)?;
        match found.state {
            ContainerState::Running { started } => Some((spec, found, started)),
            ContainerState::Created | ContainerState::Exited { .. } | ContainerState::Unknown => {
                None
            }
        }
    })
}

fn probe_of(spec: &Container, purpose: Purpose) -> Option<&Probe> {
    match purpose {
        Purpose::Liveness => spec.liveness_probe.as_ref(),
        Purpose::Readiness => spec.readiness_probe.as_ref(),
        Purpose::Startup => spec.startup_probe.as_ref(),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, PodProbes>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the tasks of one container.
    fn begin(
        self: &Arc<Self>,
        pod: &Arc<Pod>,
        spec: &Container,
        container: &ObservedContainer,
        started: Timestamp,
        observed: &Observed,
    ) -> Watched {
        let stop = self.stop.child_token();
        let spare = stop.child_token();
        let (passed, has_started) = watch::channel(spec.startup_probe.is_none());
        let passed = Arc::new(passed);
        let age = (self.clock)().duration_since(started);
        let subject = Arc::new(Subject {
            pod: Arc::clone(pod),
            container: spec.clone(),
            id: container.id.clone(),
            place: self.place(pod, container, observed),
            runtime: self.runtime.clone(),
        });
        for purpose in Purpose::ALL {
            let Some(probe) = probe_of(spec, purpose) else { continue };
            let run = Run {
                shared: Arc::clone(self),
                subject: Arc::clone(&subject),
                purpose,
                schedule: Schedule::of(probe, age),
                probe: probe.clone(),
                started: Arc::clone(&passed),
                has_started: has_started.clone(),
            };
            let token = if purpose == Purpose::Readiness { &stop } else { &spare };
            self.tasks.spawn(token.clone().run_until_cancelled_owned(run.run()));
        }
        Watched { results: ContainerResults::default(), stop, spare }
    }

    fn place(&self, pod: &Pod, container: &ObservedContainer, observed: &Observed) -> Place {
        if pod.spec().host_network == Some(true) {
            return Place::Host(self.host_ip.clone());
        }
        let mut sandboxes = observed.sandboxes.iter();
        let sandbox = sandboxes.find(|sandbox| sandbox.id == container.sandbox);
        match sandbox.and_then(|sandbox| sandbox.ips.first()) {
            Some(ip) => Place::Host(ip.clone()),
            None => Place::Sandbox(container.sandbox.clone()),
        }
    }

    /// Remembers a result; whoever waits for the pod is woken if it is new.
    fn record(&self, subject: &Subject, change: impl FnOnce(&mut ContainerResults)) {
        let uid = subject.pod.uid();
        {
            let mut pods = self.lock();
            let found = pods.get_mut(uid).and_then(|pod| pod.get_mut(&subject.id));
            let Some(watched) = found else { return };
            let before = watched.results.clone();
            change(&mut watched.results);
            if watched.results == before {
                return;
            }
        }
        (self.wake)(uid);
    }
}

#[cfg(test)]
mod tests;
