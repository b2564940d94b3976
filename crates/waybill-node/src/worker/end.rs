//! The end of a pod: its containers stop within their grace, then all that was made for it goes.

use std::{sync::Arc, time::Duration};

use futures_util::future::{join_all, pending};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tonic::Status;
use tracing::{info, warn};

use super::{Wanted, failure::shown, surroundings::Surroundings};
use crate::{
    cri::observe::observe,
    deadline,
    event::Kind,
    observed::{ContainerState, Observed, ObservedContainer},
    pod::{Pod, PodOrigin},
};

/// Even a container whose time is over gets this long between the stop signal and the kill, in seconds.
const LEAST_GRACE: i64 = 2;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// The end of one pod.
pub(super) struct Ending<'a> {
    around: &'a Surroundings,
    wanted: watch::Receiver<Wanted>,
}

impl<'a> Ending<'a> {
    pub(super) fn new(around: &'a Surroundings, wanted: watch::Receiver<Wanted>) -> Self {
        Self { around, wanted }
    }

    /// Returns when nothing is left of the pod but its object.
    pub(super) async fn run(self) {
        let mut wanted = self.wanted.clone();
        let grace = wanted.borrow_and_update().grace();
        let (deadline, receiver) = watch::channel(after(grace));
        // Whoever asks again may shorten the grace, and never lengthen it.
        let shorten = async {
            while wanted.changed().await.is_ok() {
                let new = after(wanted.borrow().grace());
                deadline.send_if_modified(|old| {
                    let shorter = new < *old;
                    *old = new.min(*old);
                    shorter
                });
            }
            pending::<()>().await;
        };
        tokio::select! {
            () = self.tear_down(&receiver) => {}
            () = shorten => {}
        }
    }

    async fn tear_down(&self, deadline: &watch::Receiver<Instant>) {
        let mut pause = FIRST_RETRY;
        while let Err(message) = self.try_to_tear_down(deadline).await {
            let pod = Arc::clone(&self.wanted.borrow().pod);
            warn!(reason = message, "a pod does not end; trying again");
            let message = format!("error killing pod: {message}");
            self.around.recorder.pod(&pod, Kind::Warning, "FailedKillPod", &message);
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY);
        }
    }

    async fn try_to_tear_down(&self, deadline: &watch::Receiver<Instant>) -> Result<(), String> {
        let Wanted { pod, end, .. } = self.wanted.borrow().clone();
        // A pod that will be started again by the next node has not ended as far as users can tell, and one
        // that was deleted by force has no object any more to tell it with.
        let is_told = end.is_none();
        let told = |observed: &Observed| {
            if is_told {
                self.around.publish_ending(&pod, observed);
            }
        };
        self.around.making.settled(pod.uid()).await;
        let say = |status: Status| shown(&status);
        let observed = self.observe(&pod).await.map_err(say)?;
        if observed.containers.iter().any(ObservedContainer::is_running) {
            told(&observed);
        }
        self.stop(&pod, &observed, deadline).await.map_err(say)?;
        let observed = self.observe(&pod).await.map_err(say)?;
        told(&observed);
        for container in &observed.containers {
            self.around.runtime.remove(&container.id).await.map_err(say)?;
        }
        for sandbox in &observed.sandboxes {
            self.around.runtime.remove_sandbox(&sandbox.id).await.map_err(say)?;
        }
        self.around.remove_files(&pod).await?;
        self.around.cgroups.remove_pod(pod.uid()).await;
        info!("the pod has ended");
        if is_told && pod.is_deleted() && pod.origin() == PodOrigin::ApiServer {
            self.around.delete(&pod);
        }
        Ok(())
    }

    async fn observe(&self, pod: &Pod) -> Result<Observed, Status> {
        observe(&self.around.runtime, &self.around.directories, pod.uid()).await
    }

    /// Stops all that runs within `grace` seconds, and keeps it.
    pub(super) async fn stop_all(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
        grace: i64,
    ) -> Result<(), Status> {
        let (_deadline, receiver) = watch::channel(after(grace));
        self.stop(pod, observed, &receiver).await
    }

    /// Regular containers stop at once, sidecars after them in the reverse of their order.
    async fn stop(
        &self,
        pod: &Pod,
        observed: &Observed,
        deadline: &watch::Receiver<Instant>,
    ) -> Result<(), Status> {
        // A probe that fails now says nothing.
        self.around.forget_health(pod.uid());
        let runs = |container: &&ObservedContainer| may_run(&container.state);
        let sidecars: Vec<_> = pod.init().filter(|container| container.is_sidecar()).collect();
        let is_sidecar = |container: &ObservedContainer| {
            sidecars.iter().any(|sidecar| sidecar.name() == container.name)
        };
        let first = observed.containers.iter().filter(runs).filter(|it| !is_sidecar(it));
        let stops = first.map(|container| self.stop_one(pod, observed, container, deadline));
        join_all(stops).await.into_iter().collect::<Result<(), _>>()?;
        for sidecar in sidecars.iter().rev() {
            let same_name = observed.containers.iter().filter(|it| it.name == sidecar.name());
            for container in same_name.filter(runs) {
                self.stop_one(pod, observed, container, deadline).await?;
            }
        }
        for sandbox in observed.sandboxes.iter().filter(|sandbox| sandbox.ready) {
            self.around.runtime.stop_sandbox(&sandbox.id).await?;
        }
        Ok(())
    }

    async fn stop_one(
        &self,
        pod: &Pod,
        observed: &Observed,
        container: &ObservedContainer,
        deadline: &watch::Receiver<Instant>,
    ) -> Result<(), Status> {
        let message = format!("Stopping container {}", container.name);
        self.around.recorder.container(pod, &container.name, Kind::Normal, "Killing", &message);
        stop_until(self.around, pod, observed, container, deadline.clone()).await
    }
}

/// Stops one container within `grace` seconds.
pub(super) async fn stop_gracefully(
    around: &Surroundings,
    pod: &Pod,
    observed: &Observed,
    container: &ObservedContainer,
    grace: i64,
) -> Result<(), Status> {
    let (_deadline, receiver) = watch::channel(after(grace));
    stop_until(around, pod, observed, container, receiver).await
}

/// The last hook, then the stop signal, then the kill. The hook's time is part of the grace.
async fn stop_until(
    around: &Surroundings,
    pod: &Pod,
    observed: &Observed,
    container: &ObservedContainer,
    mut deadline: watch::Receiver<Instant>,
) -> Result<(), Status> {
    if container.is_running() {
        pre_stop(around, pod, observed, container, &mut deadline).await;
    }
    loop {
        let left = seconds_until(*deadline.borrow_and_update()).max(LEAST_GRACE);
        tokio::select! {
            stopped = around.runtime.stop(&container.id, left) => return stopped,
            // The runtime is asked again, with less time.
            () = changed(&mut deadline) => {}
        }
    }
}

async fn pre_stop(
    around: &Surroundings,
    pod: &Pod,
    observed: &Observed,
    container: &ObservedContainer,
    deadline: &mut watch::Receiver<Instant>,
) {
    let spec = pod.container(&container.name);
    let lifecycle = spec.as_ref().and_then(|spec| spec.lifecycle());
    let Some(hook) = lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else { return };
    let ip = observed.sandboxes.first().and_then(|sandbox| sandbox.ips.first());
    let running = around.hook(pod, &container.id, ip.map(String::as_str), hook);
    tokio::pin!(running);
    loop {
        let until = *deadline.borrow_and_update();
        let message = tokio::select! {
            result = &mut running => match result {
                Ok(()) => return,
                Err(message) => message,
            },
            () = sleep_until(until) => "the hook did not end within the grace period".to_owned(),
            () = changed(deadline) => continue,
        };
        let name = &container.name;
        around.recorder.container(pod, name, Kind::Warning, "FailedPreStopHook", &message);
        return;
    }
}

/// Waits for a new deadline; if there cannot be one, for ever.
async fn changed(deadline: &mut watch::Receiver<Instant>) {
    if deadline.changed().await.is_err() {
        pending::<()>().await;
    }
}

fn after(seconds: i64) -> Instant {
    deadline::after(deadline::seconds(seconds))
}

/// Whole seconds, rounded up: nobody is killed early.
fn seconds_until(deadline: Instant) -> i64 {
    let left = deadline.saturating_duration_since(Instant::now());
    let whole = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
    i64::try_from(whole).unwrap_or(i64::MAX)
}

/// Whether a container could be told to stop.
fn may_run(state: &ContainerState) -> bool {
    matches!(state, ContainerState::Running { .. } | ContainerState::Unknown)
}
