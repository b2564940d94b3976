//! Noticing that something happened to a pod: the runtime's events where it has them, and looking again
//! from time to time where it has not, or in case one was lost.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use tracing::{debug, info, warn};
use waybill_core::id::PodUid;
use waybill_proto::cri::{ContainerEventResponse, GetEventsRequest};

use super::{Runtime, labels};

/// Between two looks at a runtime that tells its events.
const CALM: Duration = Duration::from_secs(10);
/// Between two looks at one that does not.
const BUSY: Duration = Duration::from_secs(1);
/// Before an ended stream of events is opened again.
const AGAIN: Duration = Duration::from_secs(1);
/// Before a runtime without events is asked again; it may have become a newer one.
const SELDOM: Duration = Duration::from_secs(60);

/// What somebody who follows a runtime is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Something happened to a pod, or may have.
    Pod(PodUid),
    /// The runtime was looked at; these pods of this node are there.
    Seen(Vec<PodUid>),
}

/// Follows the runtime until it is stopped.
pub(crate) async fn follow(
    runtime: Runtime,
    node: String,
    changes: mpsc::Sender<Change>,
    stop: CancellationToken,
) {
    let (listening, listens) = watch::channel(false);
    let look =
        Look { runtime: runtime.clone(), node, changes: changes.clone(), last: BTreeMap::new() };
    tokio::select! {
        () = listen(&runtime, &changes, &listening) => {}
        () = look.regularly(listens) => {}
        () = stop.cancelled() => {}
    }
}

/// Passes the runtime's events on, for as long as it has any.
async fn listen(
    runtime: &Runtime,
    changes: &mpsc::Sender<Change>,
    listening: &watch::Sender<bool>,
) {
    loop {
        // Some runtimes do not answer before there is something to tell; they are looked at meanwhile.
        let ended = match runtime.containers().get_container_events(GetEventsRequest {}).await {
            Ok(stream) => {
                let mut events = stream.into_inner();
                listening.send_replace(true);
                info!("listening to the runtime's events");
                loop {
                    match events.message().await {
                        Ok(Some(event)) => tell(changes, &event).await,
                        Ok(None) => break Code::Ok,
                        Err(status) => break status.code(),
                    }
                }
            }
            Err(status) => status.code(),
        };
        listening.send_replace(false);
        debug!(code = ?ended, "the runtime tells no events");
        sleep(if ended == Code::Unimplemented { SELDOM } else { AGAIN }).await;
    }
}

async fn tell(changes: &mpsc::Sender<Change>, event: &ContainerEventResponse) {
    let metadata = event.pod_sandbox_status.as_ref().and_then(|status| status.metadata.as_ref());
    let uid = metadata.and_then(|metadata| PodUid::parse(&metadata.uid).ok());
    if let Some(uid) = uid {
        // Without a receiver there is nobody to tell.
        let _ = changes.send(Change::Pod(uid)).await;
    }
}

struct Look {
    runtime: Runtime,
    node: String,
    changes: mpsc::Sender<Change>,
    /// What each pod consisted of.
    last: BTreeMap<PodUid, Vec<(String, i32)>>,
}

impl Look {
    async fn regularly(mut self, mut listens: watch::Receiver<bool>) {
        let mut failures = 0;
        loop {
            self.again(&mut failures).await;
            let pause = if *listens.borrow_and_update() { CALM } else { BUSY };
            tokio::select! {
                () = sleep(pause) => {}
                // What happened before the first event is not told by one.
                _ = listens.changed() => {}
            }
        }
    }

    /// Compares the runtime with what it was, and tells what changed.
    async fn again(&mut self, failures: &mut u64) {
        match self.pods().await {
            Ok(pods) => {
                *failures = 0;
                let changed =
                    |(uid, now): &(&PodUid, &Vec<(String, i32)>)| self.last.get(*uid) != Some(*now);
                let gone = self.last.keys().filter(|uid| !pods.contains_key(*uid));
                let different: Vec<_> =
                    pods.iter().filter(changed).map(|(uid, _)| uid).chain(gone).cloned().collect();
                let seen = pods.keys().cloned().collect();
                self.last = pods;
                for uid in different {
                    let _ = self.changes.send(Change::Pod(uid)).await;
                }
                let _ = self.changes.send(Change::Seen(seen)).await;
            }
            Err(status) => {
                if *failures == 0 {
                    warn!(code = ?status.code(), reason = status.message(), "the runtime does not answer");
                }
                *failures += 1;
            }
        }
    }

    /// The pods that this node made, with the states of all that belongs to each.
    async fn pods(&self) -> Result<BTreeMap<PodUid, Vec<(String, i32)>>, Status> {
        let (sandboxes, containers) =
            tokio::try_join!(self.runtime.sandboxes(None), self.runtime.list(None))?;
        let mut pods: BTreeMap<PodUid, Vec<(String, i32)>> = BTreeMap::new();
        let mut owner = BTreeMap::new();
        for sandbox in sandboxes {
            if sandbox.annotations.get(labels::NODE) != Some(&self.node) {
                continue;
            }
            let uid = sandbox.labels.get(labels::POD_UID);
            let Some(uid) = uid.and_then(|uid| PodUid::parse(uid).ok()) else { continue };
            owner.insert(sandbox.id.clone(), uid.clone());
            pods.entry(uid).or_default().push((sandbox.id, sandbox.state));
        }
        for container in containers {
            let Some(uid) = owner.get(&container.pod_sandbox_id) else { continue };
            pods.entry(uid.clone()).or_default().push((container.id, container.state));
        }
        for parts in pods.values_mut() {
            parts.sort_unstable();
        }
        Ok(pods)
    }
}
