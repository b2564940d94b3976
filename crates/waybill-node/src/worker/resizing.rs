//! Carrying out the changes of resources that a plan holds.

use tracing::warn;

use super::{
    failure::shown,
    plan::{KillCause, Plan, Resize},
    surroundings::Surroundings,
};
use crate::{event::Kind, pod::Pod};

impl Surroundings {
    /// Changes what containers may use. Those that get less memory come first, so that together they never may use more than their pod.
    pub(super) async fn resize(&self, pod: &Pod, plan: &Plan) -> Vec<(Resize, Result<(), String>)> {
        let restarts = plan.kills.iter().any(|kill| kill.cause == KillCause::Resized);
        if plan.resizes.is_empty() && !restarts {
            return Vec::new();
        }
        let mut done = Vec::new();
        for resize in plan.resizes.iter().filter(|resize| resize.lowers_memory()) {
            done.push((resize.clone(), self.resize_one(pod, resize).await));
        }
        if let Err(error) = self.cgroups.make_pod(pod) {
            warn!(%error, "the pod as a whole has the limits that it had");
        }
        for resize in plan.resizes.iter().filter(|resize| !resize.lowers_memory()) {
            done.push((resize.clone(), self.resize_one(pod, resize).await));
        }
        for (resize, result) in &done {
            let name = &resize.name;
            match result {
                Ok(()) => {
                    let message = format!("Container {name} has other resources from now on");
                    self.recorder.container(pod, name, Kind::Normal, "ResizeCompleted", &message);
                }
                Err(message) => {
                    self.recorder.container(pod, name, Kind::Warning, "ResizeError", message);
                }
            }
        }
        done
    }

    /// A kernel that is told to give less than is used kills for it, so it is not told.
    async fn resize_one(&self, pod: &Pod, resize: &Resize) -> Result<(), String> {
        if resize.lowers_memory() {
            let used = self.runtime.memory_of_pods().await.map_err(|status| shown(&status))?;
            let used = used.get(pod.uid().as_str()).and_then(|pod| pod.get(&resize.name)).copied();
            let (used, wanted) = (used.unwrap_or(0), resize.wanted.memory);
            if u64::try_from(wanted).is_ok_and(|wanted| wanted < used) {
                return Err(format!(
                    "attempting to set container memory limit ({wanted}) below current usage ({used})"
                ));
            }
        }
        let resized = self.runtime.resize(&resize.id, resize.wanted).await;
        resized.map_err(|status| shown(&status))
    }
}
