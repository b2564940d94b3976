//! What happens to containers, told to whoever listens.

use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use tracing::{info, warn};
use waybill_proto::cri::{ContainerEventResponse, ContainerEventType, ContainerStatus};

use super::{Cri, convert, record::SandboxRecord};

/// A listener that is further behind misses events, and its stream ends so that it knows.
const BACKLOG: usize = 1024;

/// Every event goes to every listener.
pub(crate) struct Events(broadcast::Sender<ContainerEventResponse>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::channel(BACKLOG).0)
    }
}

impl Events {
    pub(crate) fn listen(&self) -> broadcast::Receiver<ContainerEventResponse> {
        self.0.subscribe()
    }
}

impl Cri {
    /// Tells that something happened to a container.
    pub(super) fn tell(&self, container: &str, event: ContainerEventType) {
        let Ok(found) = self.store.container(container) else { return };
        let sandbox = found.record().sandbox;
        let statuses = self.statuses_in(&sandbox);
        self.send(container, &sandbox, event, statuses);
    }

    /// Tells that a container is gone, with its last status.
    pub(super) fn tell_removed(&self, status: ContainerStatus, sandbox: &str) {
        let id = status.id.clone();
        self.send(&id, sandbox, ContainerEventType::ContainerDeletedEvent, vec![status]);
    }

    /// Tells that something happened to a sandbox, which counts as a container here.
    pub(super) fn tell_sandbox(&self, record: &SandboxRecord, event: ContainerEventType) {
        let response = ContainerEventResponse {
            container_id: record.id.clone(),
            container_event_type: event.into(),
            created_at: self.now(),
            pod_sandbox_status: Some(convert::sandbox_status(record)),
            containers_statuses: self.statuses_in(&record.id),
        };
        // Without a listener there is nobody to tell.
        let _ = self.events.0.send(response);
    }

    fn send(
        &self,
        container: &str,
        sandbox: &str,
        event: ContainerEventType,
        containers_statuses: Vec<ContainerStatus>,
    ) {
        let sandbox = self.store.sandbox(sandbox).ok();
        let status = sandbox.map(|sandbox| convert::sandbox_status(&sandbox.record()));
        let response = ContainerEventResponse {
            container_id: container.to_owned(),
            container_event_type: event.into(),
            created_at: self.now(),
            pod_sandbox_status: status,
            containers_statuses,
        };
        let _ = self.events.0.send(response);
    }

    /// Passes the engine's exits on until the runtime stops.
    pub(super) async fn watch_exits(self: Arc<Self>) {
        let mut exits = self.engine.exits();
        loop {
            let exit = tokio::select! {
                () = self.stop.cancelled() => return,
                exit = exits.recv() => exit,
            };
            match exit {
                // A container that never ran has not stopped; a start that failed is told by itself.
                Ok((_, exit)) if exit.started_at.is_none() => {}
                Ok((id, exit)) => {
                    info!(container = id, code = exit.code, cause = ?exit.cause, "container ended");
                    self.tell(&id, ContainerEventType::ContainerStoppedEvent);
                }
                Err(RecvError::Lagged(count)) => {
                    warn!(count, "exits came faster than they are told");
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}
