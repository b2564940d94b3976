//! How many calls to one driver are under way. More than may be wait, and only for this driver (CSI-42).

use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::{sync::watch, time::timeout};

/// The calls to one driver.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    running: watch::Sender<u32>,
}

/// A call that runs; it ends with this.
pub(super) struct Slot<'a> {
    running: &'a watch::Sender<u32>,
}

/// Others took all the time there was.
#[derive(Debug)]
pub(super) struct Crowded;

impl InFlight {
    /// Waits until fewer than `limit` calls run, for as long as `patience`.
    pub(super) async fn enter(&self, limit: u32, patience: Duration) -> Result<Slot<'_>, Crowded> {
        let mut news = self.running.subscribe();
        let entering = async {
            loop {
                let entered = self.running.send_if_modified(|running| {
                    let free = *running < limit;
                    *running += u32::from(free);
                    free
                });
                if entered {
                    return;
                }
                // The sender is ours, so there is news as long as we wait.
                let _ = news.wait_for(|running| *running < limit).await;
            }
        };
        match timeout(patience, entering).await {
            Ok(()) => Ok(Slot { running: &self.running }),
            Err(_) => Err(Crowded),
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.running.send_modify(|running| *running = running.saturating_sub(1));
    }
}

/// One call in the gauge, running or waiting (OP-37); it ends with this.
pub(super) struct Counted(Gauge);

impl Counted {
    pub(super) fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// CSI-42
    #[tokio::test]
    async fn calls_beyond_the_limit_wait_for_one_to_end_csi_42() {
        let calls = InFlight::default();
        let first = calls.enter(2, LONG).await.unwrap();
        let second = calls.enter(2, LONG).await.unwrap();
        let mut third = Box::pin(calls.enter(2, LONG));
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        let third = third.await.unwrap();
        assert!(calls.enter(2, LONG).now_or_never().is_none());
        drop((second, third));
        assert!(calls.enter(1, LONG).await.is_ok());
    }

    /// OP-37
    #[tokio::test]
    async fn patience_ends() {
        let calls = InFlight::default();
        let _first = calls.enter(1, LONG).await.unwrap();
        assert!(calls.enter(1, Duration::ZERO).await.is_err());
    }

    /// A start that was given up takes no place.
    #[tokio::test]
    async fn who_stops_waiting_is_not_counted() {
        let calls = InFlight::default();
        let first = calls.enter(1, LONG).await.unwrap();
        let mut second = Box::pin(calls.enter(1, LONG));
        assert!((&mut second).now_or_never().is_none());
        drop((first, second));
        assert!(calls.enter(1, LONG).now_or_never().unwrap().is_ok());
    }
}
