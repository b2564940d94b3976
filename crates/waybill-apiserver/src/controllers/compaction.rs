//! Forgets old history in the store; what watches need is in the caches.

use std::{sync::Arc, time::Duration};

use waybill_core::chain::Chain;

use crate::objects::Objects;

/// As upstream: history older than five to ten minutes goes.
const ROUND: Duration = Duration::from_secs(5 * 60);

pub(super) async fn run(objects: Arc<Objects>) {
    let mut before = objects.revision();
    loop {
        tokio::time::sleep(ROUND).await;
        let now = objects.revision();
        if let Err(error) = objects.compact(before).await {
            tracing::warn!(error = %Chain(&error), "old history could not be forgotten");
        }
        before = now;
    }
}
