//! Undoes what was made of containers and sandboxes that have no record. A process that was killed may take its time to die, and
//! then its cgroup cannot go yet: what is left is remembered and tried again until it is gone.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tracing::{info, warn};
use waybill_core::chain::Chain;

use super::{Cri, error::Result, files};

/// The first pause before another attempt; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Something that has no record.
#[derive(Clone, Debug)]
enum Left {
    Container(String),
    Sandbox(String),
}

impl Cri {
    /// Clears a container away.
    pub(super) async fn clear_container(self: &Arc<Self>, id: &str) {
        self.clear_or_retry(Left::Container(id.to_owned())).await;
    }

    /// Clears a sandbox away.
    pub(super) async fn clear_sandbox(self: &Arc<Self>, id: &str) {
        self.clear_or_retry(Left::Sandbox(id.to_owned())).await;
    }

    async fn clear_or_retry(self: &Arc<Self>, left: Left) {
        if let Err(error) = self.clear(&left).await {
            warn!(?left, error = %Chain(&error), "what could not be cleared away is tried again");
            self.tasks.spawn(Arc::clone(self).clear_later(left));
        }
    }

    async fn clear_later(self: Arc<Self>, left: Left) {
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(pause) => {}
            }
            if self.clear(&left).await.is_ok() {
                info!(?left, "it is cleared away now");
                return;
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn clear(self: &Arc<Self>, left: &Left) -> Result<()> {
        match left {
            Left::Container(id) => {
                self.discard_container(id).await?;
                // It may have stood in the cgroup of a sandbox that was removed meanwhile.
                Ok(self.engine.finish_sandbox_removals().await?)
            }
            Left::Sandbox(id) => {
                self.unmake_sandbox(id).await?;
                let directory = self.sandbox_dir(id);
                self.blocking(move || files::remove(&directory)).await
            }
        }
    }
}
