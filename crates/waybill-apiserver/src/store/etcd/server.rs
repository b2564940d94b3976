//! How the tests reach a real etcd.

use std::time::Duration;

use waybill_testkit::etcd::EtcdServer;

use super::EtcdConfig;
use crate::store::history::Limits;

/// How a store reaches `server`; what a TLS server needs is for the caller to add.
pub(super) fn config(server: &EtcdServer, prefix: &str) -> EtcdConfig {
    EtcdConfig {
        endpoints: vec![server.url()],
        prefix: prefix.into(),
        tls: None,
        tls_source: None,
        user: None,
        timeout: Duration::from_secs(5),
        history: Limits::default(),
    }
}

/// Calls `open` until it succeeds, because a new server needs a moment.
pub(super) async fn eventually<T, E: std::fmt::Debug>(open: impl AsyncFn() -> Result<T, E>) -> T {
    for _ in 0..200 {
        if let Ok(opened) = open().await {
            return opened;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    open().await.unwrap()
}
