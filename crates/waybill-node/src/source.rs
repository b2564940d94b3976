//! Where pods come from: the API server, and files in a directory.
//!
//! Both feed one channel. A pod is told by its uid: a change of it is the same pod again, and a static
//! pod whose file changes is another pod. Nothing is kept here but what tells whether a pod is known.

mod file;
mod manifest;
mod mirror;
mod watch;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::gates::FeatureGates;
use waybill_core::id::PodUid;

use crate::{Clock, event::Recorder, pod::Pod, status::Writer};

/// Changes that wait for the node.
const QUEUE: usize = 256;

/// What happened to a pod.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// It is new, or not as it was.
    Set(Arc<Pod>),
    /// Nobody wants it any more. It may never have been set.
    Gone(PodUid),
    /// Said once: every source has told all that it has. Pods that run and were not set are orphans.
    Synced,
}

/// What sources need.
pub(crate) struct Options {
    /// The name of the node.
    pub(crate) node: String,
    /// For pods of the API server, and mirrors of others.
    pub(crate) client: Option<Client>,
    /// The directory of static pods.
    pub(crate) static_pods: Option<PathBuf>,
    pub(crate) gates: FeatureGates,
    pub(crate) recorder: Recorder,
    /// Is told of mirrors, which need a status.
    pub(crate) writer: Writer,
    pub(crate) clock: Clock,
}

/// Starts all sources. They end when nobody listens any more, or with `stop`.
pub(crate) fn start(
    options: Options,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> mpsc::Receiver<Change> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let Options { node, client, static_pods, gates, recorder, writer, clock } = options;
    let parts = u8::from(client.is_some()) + u8::from(static_pods.is_some());
    let outlet = Outlet { changes: sender, unsynced: Arc::new(AtomicU8::new(parts)) };
    let mirrors = client.clone().map(|client| {
        let (mirrors, told) = mirror::channel();
        let keeper = mirror::Keeper::new(client, &node, writer, static_pods.is_some());
        tasks.spawn(stop.clone().run_until_cancelled_owned(keeper.run(told)));
        mirrors
    });
    if let Some(client) = client {
        let watch = watch::Watch::new(client, &node, recorder, outlet.clone(), mirrors.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(watch.run()));
    }
    if let Some(directory) = static_pods {
        let rules = manifest::Rules { node, gates, clock };
        let files = file::Files::new(directory, rules, outlet.clone(), mirrors);
        tasks.spawn(stop.clone().run_until_cancelled_owned(files.run()));
    }
    if parts == 0 {
        // There is nothing to wait for, and the queue is empty.
        let _ = outlet.changes.try_send(Change::Synced);
    }
    receiver
}

/// Where sources put what they know.
#[derive(Clone)]
struct Outlet {
    changes: mpsc::Sender<Change>,
    /// Sources that have not told everything yet.
    unsynced: Arc<AtomicU8>,
}

impl Outlet {
    async fn put(&self, change: Change) -> Result<(), NobodyListens> {
        self.changes.send(change).await.map_err(|_| NobodyListens)
    }

    /// To be called once by each source, after it has put everything.
    async fn synced(&self) -> Result<(), NobodyListens> {
        if self.unsynced.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.put(Change::Synced).await?;
        }
        Ok(())
    }
}

/// The node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NobodyListens;

#[cfg(test)]
mod tests;
