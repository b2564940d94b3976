//! Events that tell users what happened to their pods.
//!
//! Recording never waits: a note goes into a queue, one task writes from it, and what does not fit is
//! counted and dropped. A note that repeats an earlier one raises its count instead of adding an object,
//! and a pod that makes notes without end is held to a trickle. In standalone mode notes are logged only.

mod history;
mod write;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};
use waybill_api::pod::ContainerKind;

use crate::{Clock, pod::Pod};

/// Notes that wait to be written.
const QUEUE: usize = 1000;

/// Who reports, as `kubectl describe` shows it. People and tools look for the events of nodes by this name.
pub(crate) const COMPONENT: &str = "kubelet";

/// Longer messages are cut, as the API server would refuse some of them.
const MESSAGE_BYTES: usize = 1024;

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Normal,
    Warning,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Takes notes. Clones share one queue.
#[derive(Clone)]
pub(crate) struct Recorder {
    queue: Option<mpsc::Sender<Note>>,
    node: String,
    clock: Clock,
}

/// Something that happened.
#[derive(Clone, Debug)]
struct Note {
    about: ObjectReference,
    kind: Kind,
    reason: String,
    message: String,
    at: Timestamp,
}

impl Recorder {
    /// Starts to write notes as events of the API server; without a client they are logged.
    pub(crate) fn start(
        client: Option<Client>,
        node: &str,
        clock: Clock,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let queue = client.map(|client| {
            let (sender, receiver) = mpsc::channel(QUEUE);
            tasks.spawn(write::run(client, node.to_owned(), receiver, stop.clone()));
            sender
        });
        Self { queue, node: node.to_owned(), clock }
    }

    /// About a pod as a whole.
    pub(crate) fn pod(&self, pod: &Pod, kind: Kind, reason: &str, message: &str) {
        self.note(pod_reference(pod), kind, reason, message);
    }

    /// About one container of a pod.
    pub(crate) fn container(
        &self,
        pod: &Pod,
        container: &str,
        kind: Kind,
        reason: &str,
        message: &str,
    ) {
        let field_path = field_path(pod, container);
        self.note(ObjectReference { field_path, ..pod_reference(pod) }, kind, reason, message);
    }

    /// About a pod that could not be read, so that little is known of it.
    pub(crate) fn unreadable(&self, about: ObjectReference, reason: &str, message: &str) {
        self.note(about, Kind::Warning, reason, message);
    }

    /// About the node itself.
    pub(crate) fn node(&self, kind: Kind, reason: &str, message: &str) {
        let about = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(self.node.clone()),
            // Kubelets put the name here, and tools look for it.
            uid: Some(self.node.clone()),
            ..ObjectReference::default()
        };
        self.note(about, kind, reason, message);
    }

    fn note(&self, about: ObjectReference, kind: Kind, reason: &str, message: &str) {
        let object = about.name.as_deref().unwrap_or_default();
        let namespace = about.namespace.as_deref().unwrap_or_default();
        match kind {
            Kind::Normal => debug!(namespace, object, reason, message, "event"),
            Kind::Warning => info!(namespace, object, reason, message, "event"),
        }
        let Some(queue) = &self.queue else { return };
        let note = Note {
            kind,
            reason: reason.to_owned(),
            message: cut(message).to_owned(),
            at: (self.clock)(),
            about,
        };
        match queue.try_send(note) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(note)) => {
                warn!(reason = note.reason, "an event is dropped: too many wait to be written");
            }
        }
    }
}

/// At most as many bytes as allowed, and whole characters.
fn cut(message: &str) -> &str {
    message.get(..message.floor_char_boundary(MESSAGE_BYTES)).unwrap_or(message)
}

fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name().to_owned()),
        namespace: Some(pod.namespace().to_owned()),
        uid: Some(pod.uid().to_string()),
        resource_version: pod.object().metadata.resource_version.clone(),
        field_path: None,
    }
}

/// As `kubectl` and log collectors know it: `spec.containers{name}`.
fn field_path(pod: &Pod, name: &str) -> Option<String> {
    let container = pod.containers().find(|container| container.name() == name)?;
    let list = match container.kind {
        ContainerKind::Ephemeral => "ephemeralContainers",
        ContainerKind::Init => "initContainers",
        ContainerKind::Regular => "containers",
    };
    Some(format!("spec.{list}{{{name}}}"))
}

#[cfg(test)]
mod tests;
