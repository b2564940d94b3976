//! What the server does by itself: the objects that every cluster has, the end of namespaces, the placing
//! of pods, and objects about drivers.
//!
//! Each controller follows the caches and writes through the same path as clients do. Each can be
//! cut off or fail at any point and does the right thing when it starts again.

mod basics;
mod cluster_roles;
mod compaction;
mod csi_objects;
mod namespaces;
mod scheduler;

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use self::basics::ensure_basics;
use crate::{api::Api, request::User};

/// Starts every controller; they end with `stop`.
pub(crate) fn start(
    api: &Arc<Api>,
    ca_certificate: &str,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let until = |future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let stop = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = future => {}
            }
        });
    };
    until(Box::pin(namespaces::run(Arc::clone(api), ca_certificate.to_owned())));
    until(Box::pin(scheduler::run(Arc::clone(api))));
    until(Box::pin(cluster_roles::run(Arc::clone(api))));
    until(Box::pin(compaction::run(Arc::clone(api))));
    until(Box::pin(csi_objects::run(Arc::clone(api))));
}

/// A part of the server that writes like a client.
fn system_user(name: &str) -> User {
    User {
        name: name.to_owned(),
        groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        ..User::default()
    }
}
