//! Values of drivers that change while containers run: those that shall, restart.

use std::collections::BTreeSet;

use waybill_core::id::PodUid;

use super::{Workers, lock};

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
}
