//! The loop of one worker.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};
use tonic::Status;
use tracing::{Instrument, info_span, warn};

use super::{
    End, Wanted, Workers, admission,
    end::Ending,
    failure::{Failure, PodFailure},
    memory::Memory,
    plan::{self, Failed, KillCause, Plan, SandboxPlan},
    prune,
    resize::{self, Allocated, Requests},
    start::Started,
    surroundings::Surroundings,
    sysctl,
};
use crate::{
    cri::observe::observe,
    deadline,
    event::Kind,
    observed::{Observed, ObservedContainer},
    pod::Pod,
    status::{EVICTED, Facts, ResizeState, Waiting},
};

/// After the runtime did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Turns that take longer are told of while they last.
const QUICK: Duration = Duration::from_millis(100);
/// Between two looks whether a node has the resources that a pod waits for.
const DEFERRED: Duration = Duration::from_secs(30);
/// Between two looks at what volumes were made from.
const REFRESH: Duration = Duration::from_secs(60);
/// What stands for the pod as a whole among the failures of its containers.
const WHOLE_POD: &str = "";

/// The worker of one pod.
pub(super) struct Worker {
    workers: Workers,
    around: Arc<Surroundings>,
    wanted: watch::Receiver<Wanted>,
    wake: Arc<Notify>,
    memory: Memory,
    /// Reasons that events have told of, so that each is told once.
    told: BTreeMap<String, &'static str>,
    /// What the runtime had, if nothing is known to have happened since.
    seen: Option<Observed>,
    /// When volumes are looked at again.
    refresh: Instant,
    /// Since when the pod is about to start, until it has.
    starting: Option<Instant>,
    /// How far other resources for the pod are.
    resize: ResizeState,
}

/// When the next turn is.
enum Next {
    Now,
    After(Duration),
    /// When somebody wakes the worker.
    Woken,
}

impl Worker {
    pub(super) fn new(
        workers: Workers,
        wanted: watch::Receiver<Wanted>,
        wake: Arc<Notify>,
    ) -> Self {
        let around = Arc::clone(&workers.0.around);
        Self {
            workers,
            around,
            wanted,
            wake,
            memory: Memory::default(),
            told: BTreeMap::new(),
            seen: None,
            refresh: Instant::now() + REFRESH,
            starting: None,
            resize: ResizeState::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let pod = Arc::clone(&self.wanted.borrow().pod);
        let span =
            info_span!("pod", namespace = pod.namespace(), name = pod.name(), uid = %pod.uid());
        self.live().instrument(span).await;
    }

    async fn live(&mut self) {
        self.memory.started = Some(self.around.now());
        let mut generation = None;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            if wanted.is_ending() {
                if self.end(&wanted).await {
                    return;
                }
                continue;
            }
            self.memory.evicted.clone_from(&wanted.evicted);
            self.admit(&wanted.pod);
            let metadata = &wanted.pod.object().metadata;
            if generation != Some(metadata.generation) {
                generation = Some(metadata.generation);
                self.memory.forgive();
            }
            let mut ending = self.wanted.clone();
            let pod = self.allocate(&wanted.pod);
            let next = tokio::select! {
                next = self.turn(&pod) => next,
                // What was under way is found in the runtime.
                _ = ending.wait_for(Wanted::is_ending) => continue,
            };
            let next = if self.resize.pending.is_some() { next.at_most(DEFERRED) } else { next };
            self.wait(next, &wanted.pod).await;
        }
    }

    /// The pod with the resources that the node gives it.
    fn allocate(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        let others = || {
            let pods = self.workers.all().into_iter();
            let others = pods.filter(|other| other.uid() != pod.uid() && !other.has_ended());
            others
                .fold(Requests::default(), |sum, other| sum.saturating_add(Requests::held(&other)))
        };
        let allocatable = &self.around.resolver.node.allocatable;
        let Allocated { pod: allocated, pending } = resize::allocate(pod, allocatable, others);
        if let Some(pending) = &pending
            && self.resize.pending.as_ref() != Some(pending)
        {
            let reason = format!("Resize{}", pending.reason);
            self.around.recorder.pod(pod, Kind::Warning, &reason, &pending.message);
        }
        self.resize.pending = pending;
        allocated
    }

    /// Decides whether the node takes the pod. If not, there is one event about it, as of kubelets.
    fn admit(&mut self, pod: &Pod) {
        let (around, spec) = (&self.around, pod.spec());
        let sysctl = around.sysctls.refusal(spec).map(|why| (sysctl::FORBIDDEN, why));
        let refused = sysctl.or_else(|| admission::refusal(spec, &around.resolver.node));
        // One that the node has taken before has a start. One that it refuses anyway takes no room.
        let is_new = !self.memory.was_judged && pod.start_time().is_none() && !pod.has_ended();
        if is_new && refused.is_none() {
            let conditions = around.pressure.conditions();
            let pressed = admission::refusal_under(conditions, pod).map(|why| (EVICTED, why));
            self.memory.turned_away = pressed.or_else(|| self.workers.take(pod).err());
        }
        self.memory.was_judged = true;
        let refused = refused.or_else(|| self.memory.turned_away.clone());
        if let Some((reason, message)) = &refused
            && self.memory.refused.is_none()
            && !pod.has_ended()
        {
            around.recorder.pod(pod, Kind::Warning, reason, message);
        }
        self.memory.refused = refused;
    }

    async fn wait(&mut self, next: Next, pod: &Pod) {
        let until = match next {
            Next::Now => return,
            Next::After(pause) => Some(deadline::after(pause)),
            Next::Woken => None,
        };
        loop {
            let sooner = until.map_or(self.refresh, |until| until.min(self.refresh));
            tokio::select! {
                () = sleep_until(sooner) => {
                    if until == Some(sooner) {
                        self.seen = None;
                        return;
                    }
                    self.around.refresh_volumes(pod).await;
                    self.refresh = Instant::now() + REFRESH;
                }
                () = self.wake.notified() => {
                    self.seen = None;
                    return;
                }
                // The sender lives as long as the entry, which only this worker removes.
                _ = self.wanted.changed() => return,
            }
        }
    }

    /// Ends the pod. True if the worker is done for good.
    async fn end(&mut self, wanted: &Wanted) -> bool {
        Ending::new(&self.around, self.wanted.clone()).run().await;
        let uid = wanted.pod.uid();
        loop {
            let end = self.wanted.borrow_and_update().end;
            match end {
                Some(End::Drain { .. }) => return true,
                Some(End::Gone) => {
                    self.around.forget(uid);
                    if self.workers.leave(uid) {
                        return true;
                    }
                    self.memory = Memory::default();
                    return false;
                }
                // Deleted: its object goes as soon as the API server has heard of the end.
                None if self.wanted.borrow().is_ending() => {
                    if self.wanted.changed().await.is_err() {
                        return true;
                    }
                }
                None => return false,
            }
        }
    }

    async fn turn(&mut self, pod: &Arc<Pod>) -> Next {
        let observed = match self.observe(pod).await {
            Ok(observed) => observed,
            Err(status) => {
                warn!(code = ?status.code(), reason = status.message(), "the runtime does not answer");
                return Next::After(ASK_AGAIN);
            }
        };
        self.memory.set_health(self.around.watch_health(pod, &observed));
        self.around.resume_rotations(pod, &observed).await;
        self.memory.stale = self.around.resolver.csi.rotations.stale(pod.uid());
        let now = self.around.now();
        let plan = plan::plan(pod, &observed, &self.memory, now);
        self.tell_pauses(pod, &plan);
        self.resize.under_way.clone_from(&plan.resizing);
        self.resize.error = self.memory.resize_error().cloned();
        if let SandboxPlan::Finish { failed } = &plan.sandbox {
            return self.finish(pod, &observed, failed.as_ref()).await;
        }
        let paused = self.memory.not_before(WHOLE_POD, now).map(|(until, _)| until);
        let idle = plan.kills.is_empty() && plan.starts.is_empty() && plan.resizes.is_empty();
        if idle || paused.is_some() {
            self.publish(pod, &observed, &plan.waiting, None);
            self.measure(pod, &observed);
            let is_clean = prune::prune(&self.around, pod, &observed).await;
            self.seen = is_clean.then_some(observed);
            return next(plan.wake_at.into_iter().chain(paused).min(), now);
        }
        if matches!(plan.sandbox, SandboxPlan::Make { .. }) {
            self.starting.get_or_insert_with(Instant::now);
        }
        let outcome = self.act_and_tell(pod, &observed, &plan).await;
        self.remember(pod, &plan, outcome);
        Next::Now
    }

    async fn observe(&mut self, pod: &Pod) -> Result<Observed, Status> {
        if let Some(seen) = self.seen.take() {
            return Ok(seen);
        }
        // News that came before the look are part of it.
        let _ = self.wake.notified().now_or_never();
        observe(&self.around.runtime, &self.around.directories, pod.uid()).await
    }

    /// Carries the plan out. If that takes long, the status is told meanwhile.
    async fn act_and_tell(&self, pod: &Arc<Pod>, observed: &Observed, plan: &Plan) -> Started {
        let acting = self.around.act(pod, observed, plan);
        tokio::pin!(acting);
        tokio::select! {
            outcome = &mut acting => return outcome,
            () = sleep(QUICK) => self.publish(pod, observed, &plan.waiting, None),
        }
        loop {
            tokio::select! {
                outcome = &mut acting => return outcome,
                () = self.wake.notified() => {
                    let found = observe(&self.around.runtime, &self.around.directories, pod.uid());
                    if let Ok(observed) = found.await {
                        self.around.watch_health(pod, &observed);
                        self.publish(pod, &observed, &plan.waiting, None);
                    }
                }
            }
        }
    }

    /// Tells the metrics how long the start of the pod took, once.
    fn measure(&mut self, pod: &Pod, observed: &Observed) {
        let runs = |name| observed.latest(name).is_some_and(ObservedContainer::is_running);
        if pod.regular().all(|container| runs(container.name()))
            && let Some(starting) = self.starting.take()
        {
            self.around.metrics.pod_started(starting.elapsed());
        }
    }

    fn publish(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
        waiting: &BTreeMap<String, Waiting>,
        failed: Option<&Failed>,
    ) {
        let facts = Facts {
            waiting: waiting.clone(),
            started: self.memory.started,
            resize: self.resize.clone(),
            ..Facts::default()
        };
        self.around.publish(pod, observed, facts, failed);
    }

    fn remember(&mut self, pod: &Pod, plan: &Plan, outcome: Started) {
        let now = self.around.now();
        for kill in &plan.kills {
            let again = [KillCause::Resized, KillCause::Rotated, KillCause::SpecChanged];
            if again.contains(&kill.cause) {
                self.memory.replace(&kill.name);
            }
        }
        for (resize, done) in outcome.resized {
            self.memory.set_resized(&resize.id, resize.wanted, done, now);
        }
        if outcome.failure.is_none() {
            self.memory.succeeded(WHOLE_POD);
        }
        let back_off = |name: &str| {
            plan.starts.iter().find(|start| start.name == name).and_then(|start| start.back_off)
        };
        for name in &outcome.started {
            self.memory.succeeded(name);
            self.told.remove(name);
            self.memory.set_back_off(name, back_off(name));
        }
        for (name, failure) in outcome.failed {
            // What does not get done by itself is told.
            if matches!(failure, Failure::UnderWay(_)) && self.memory.has_failed(&name) {
                self.around.tell_failure(pod, &name, &failure);
            }
            match failure {
                Failure::Run(waiting) => {
                    self.memory.set_back_off(&name, back_off(&name));
                    self.memory.failed(&name, waiting, now);
                }
                Failure::Pull { waiting, image } => {
                    self.memory.pull_failed(&name, waiting, &image, now);
                }
                Failure::Other(waiting) | Failure::UnderWay(waiting) => {
                    self.memory.failed(&name, waiting, now);
                }
            }
        }
        if let Some(PodFailure { reason, message, under_way }) = outcome.failure {
            if !under_way || self.memory.has_failed(WHOLE_POD) {
                self.around.recorder.pod(pod, Kind::Warning, reason, &message);
            }
            self.memory.failed(WHOLE_POD, Waiting { reason, message }, now);
        }
    }

    /// Events for containers that have to wait, one for each time that they begin to.
    fn tell_pauses(&mut self, pod: &Pod, plan: &Plan) {
        for (name, waiting) in &plan.waiting {
            if self.told.insert(name.clone(), waiting.reason) == Some(waiting.reason) {
                continue;
            }
            let tell = |reason, message: &str| {
                self.around.recorder.container(pod, name, Kind::Warning, reason, message);
            };
            match waiting.reason {
                "CrashLoopBackOff" => tell(
                    "BackOff",
                    &format!("Back-off restarting failed container {name} in pod {}", pod.shown()),
                ),
                "ImagePullBackOff" => {
                    tell("BackOff", &waiting.message);
                    tell("Failed", "Error: ImagePullBackOff");
                }
                _ => {}
            }
        }
    }

    /// Nothing of the pod will run again: what still does is stopped, and all is kept.
    async fn finish(
        &mut self,
        pod: &Arc<Pod>,
        observed: &Observed,
        failed: Option<&Failed>,
    ) -> Next {
        let runs = observed.sandboxes.iter().any(|sandbox| sandbox.ready)
            || observed.containers.iter().any(|container| container.is_running());
        let evicted = failed.is_some_and(|failed| failed.reason == EVICTED);
        if !runs {
            self.publish(pod, observed, &BTreeMap::new(), failed);
            if evicted {
                self.around.clear_volumes(pod).await;
            }
            self.around.release_users(pod);
            self.workers.give_back(pod.uid());
            self.seen = Some(observed.clone());
            return Next::Woken;
        }
        if let Some(failed) = failed {
            let kind = if evicted { Kind::Warning } else { Kind::Normal };
            self.around.recorder.pod(pod, kind, failed.reason, &failed.message);
        }
        self.publish(pod, observed, &BTreeMap::new(), failed);
        let ending = Ending::new(&self.around, self.wanted.clone());
        // Somebody who takes what is not theirs is not asked politely.
        let grace = if evicted { 0 } else { pod.grace() };
        match ending.stop_all(pod, observed, grace).await {
            Ok(()) => Next::Now,
            Err(status) => {
                warn!(code = ?status.code(), reason = status.message(), "a pod that ended does not stop");
                Next::After(ASK_AGAIN)
            }
        }
    }
}

impl Next {
    /// The same, and after `pause` if that is sooner.
    fn at_most(self, pause: Duration) -> Self {
        match self {
            Self::Now => Self::Now,
            Self::After(other) => Self::After(other.min(pause)),
            Self::Woken => Self::After(pause),
        }
    }
}

fn next(wake_at: Option<Timestamp>, now: Timestamp) -> Next {
    match wake_at {
        None => Next::Woken,
        Some(time) => {
            let pause = time.duration_since(now).max(SignedDuration::ZERO);
            // A little later rather than too early, when nothing would have changed.
            Next::After(pause.unsigned_abs() + Duration::from_millis(1))
        }
    }
}
