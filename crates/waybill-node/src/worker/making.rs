//! Calls that make something in the runtime go to their end, also when the pod is not wanted any more:
//! runtimes do not undo what somebody stopped waiting for. The end of a pod waits for them, so that it
//! finds all that there is.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures_util::future::BoxFuture;
use tokio::sync::RwLock;
use tokio_util::task::TaskTracker;
use tonic::Status;
use waybill_core::id::PodUid;

use super::lock;

/// The calls that are under way.
#[derive(Default)]
pub(crate) struct Making {
    /// Whoever makes something reads, and whoever ends a pod writes.
    pods: Mutex<HashMap<PodUid, Arc<RwLock<()>>>>,
    tasks: TaskTracker,
}

impl Making {
    /// Makes `call`, to its end even if nobody waits for it.
    pub(super) async fn carry_out<T: Send + 'static>(
        &self,
        pod: &PodUid,
        call: BoxFuture<'static, Result<T, Status>>,
    ) -> Result<T, Status> {
        let guard = self.of(pod).read_owned().await;
        let task = self.tasks.spawn(async move {
            let answer = call.await;
            drop(guard);
            answer
        });
        task.await.unwrap_or_else(|_| Err(Status::cancelled("the node ends")))
    }

    /// Returns when nothing is under way for the pod.
    pub(super) async fn settled(&self, pod: &PodUid) {
        drop(self.of(pod).write_owned().await);
    }

    /// Nobody will ask for the pod again.
    pub(super) fn forget(&self, pod: &PodUid) {
        lock(&self.pods).remove(pod);
    }

    fn of(&self, pod: &PodUid) -> Arc<RwLock<()>> {
        Arc::clone(lock(&self.pods).entry(pod.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_is_waited_for_in_the_end() {
        let making = Making::default();
        let pod = PodUid::parse("uid-1").unwrap();
        let (begun, has_begun) = oneshot::channel();
        let (answer, answered) = oneshot::channel::<()>();
        let call = async move {
            let _ = begun.send(());
            let _ = answered.await;
            Ok(())
        };
        tokio::select! {
            _ = making.carry_out(&pod, call.boxed()) => panic!("it has no answer yet"),
            begun = has_begun => begun.unwrap(),
        }
        assert!(making.settled(&pod).now_or_never().is_none());
        making.settled(&PodUid::parse("uid-2").unwrap()).await;
        answer.send(()).unwrap();
        making.settled(&pod).await;
    }
}
