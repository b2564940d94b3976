//! Forgets old history in the store; what watches need is in the caches.

use std::{sync::Arc, time::Duration};

use waybill_core::chain::Chain;

use crate::api::Api;

/// As upstream: history older than five to ten minutes goes.
const ROUND: Duration = Duration::from_secs(5 * 60);

pub(super) async fn run(api: Arc<Api>) {
    let mut before = api.reader.objects.revision();
    loop {
        tokio::time::sleep(ROUND).await;
        let now = api.reader.objects.revision();
        if let Err(error) = api.reader.objects.compact(before).await {
            tracing::warn!(error = %Chain(&error), "old history could not be forgotten");
        }
        before = now;
    }
}
