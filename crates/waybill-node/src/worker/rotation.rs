//! Values of drivers that change while containers run: those that shall, restart.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use waybill_core::id::PodUid;

use super::Workers;

impl Workers {
    /// Asks for values again as classes say, until the workers end.
    pub(crate) async fn follow_rotations(self) {
        let stop = self.0.stop.clone();
        let following = async {
            let csi = &self.0.around.resolver.csi;
            loop {
                let due = csi.rotations.due().await;
                let pods = self.all();
                let pod = |uid| pods.iter().find(|pod| pod.uid() == uid && !pod.is_deleted());
                join_all(due.iter().map(async |due| {
                    if let Some(pod) = pod(&due.pod)
                        && csi.refresh(pod, due).await
                    {
                        self.wake(&due.pod);
                    }
                }))
                .await;
            }
        };
        stop.run_until_cancelled(following).await;
    }

    /// Variables of a container that have other values by now.
    pub(crate) fn stale_variables(&self, pod: &PodUid, container: &str) -> BTreeSet<String> {
        self.0.around.resolver.csi.rotations.stale_variables(pod, container)
    }
}
