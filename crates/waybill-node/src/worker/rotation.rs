//! Values of drivers that change while containers run: those that shall, restart.

use std::collections::BTreeSet;

use waybill_api::gates::FeatureGate;
use waybill_core::id::PodUid;

use super::{Surroundings, Workers, lock};
use crate::{
    observed::{Observed, ObservedContainer},
    pod::Pod,
};

impl Workers {
    /// Asks for values again as classes say, until the workers end.
    pub(crate) async fn follow_rotations(self) {
        let pod = |uid: &PodUid| {
            let entries = lock(&self.0.entries);
            let pod = entries.get(uid).map(|entry| entry.wanted.borrow().pod.clone());
            pod.filter(|pod| !pod.is_deleted())
        };
        let following =
            self.0.around.resolver.csi.follow_rotations(pod, |uid: &PodUid| self.wake(uid));
        self.0.stop.run_until_cancelled(following).await;
    }

    /// Variables of a container that have other values by now.
    pub(crate) fn stale_variables(&self, pod: &PodUid, container: &str) -> BTreeSet<String> {
        self.0.around.resolver.csi.rotations.stale_variables(pod, container)
    }

    /// Whether nobody knows what a container was started with, since the node was started again.
    pub(crate) fn is_unknown(&self, pod: &PodUid, container: &str) -> bool {
        self.0.around.resolver.csi.rotations.is_unknown(pod, container)
    }
}

impl Surroundings {
    /// Containers that run already when the node starts are followed from then on.
    pub(super) async fn resume_rotations(&self, pod: &Pod, observed: &Observed) {
        if self.resolver.gates.enabled(FeatureGate::CsiDirectEnvInjection) {
            let runs =
                |name: &str| observed.latest(name).is_some_and(ObservedContainer::is_running);
            self.resolver.csi.resume(pod, runs).await;
        }
    }
}
