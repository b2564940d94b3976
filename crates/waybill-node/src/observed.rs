//! What the runtime has of a pod, as it was when it was asked.

use jiff::Timestamp;

use crate::cri::resources::ContainerLimits;

/// The sandboxes and containers of one pod. Newest first in both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) sandboxes: Vec<ObservedSandbox>,
    pub(crate) containers: Vec<ObservedContainer>,
}

impl Observed {
    /// The newest container of that name.
    pub(crate) fn latest(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The one before it, whose end is the last state and whose log is the previous one.
    pub(crate) fn previous(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().filter(|container| container.name == name).nth(1)
    }
}

/// One sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedSandbox {
    pub(crate) id: String,
    pub(crate) ready: bool,
    pub(crate) attempt: u32,
    pub(crate) created: Timestamp,
    /// Addresses of the pod, if the sandbox has a network of its own.
    pub(crate) ips: Vec<String>,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedContainer {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    /// Its name in the pod.
    pub(crate) name: String,
    /// How many there were before it.
    pub(crate) attempt: u32,
    /// What was written into its annotation when it was made: a digest of its spec.
    pub(crate) spec_hash: Option<String>,
    /// The image as the pod spec names it.
    pub(crate) image: String,
    /// The image by digest, as `imageID` of a status shows it.
    pub(crate) image_id: String,
    pub(crate) log_path: String,
    pub(crate) created: Timestamp,
    pub(crate) state: ContainerState,
    /// What it may use, if the runtime tells that.
    pub(crate) limits: Option<ContainerLimits>,
}

/// Where a container is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContainerState {
    Created,
    Running {
        started: Timestamp,
    },
    Exited {
        started: Option<Timestamp>,
        finished: Timestamp,
        code: i32,
        signal: Option<i32>,
        /// Such as `Completed`, `Error` and `OOMKilled`.
        reason: String,
        /// The termination message, or what the runtime says.
        message: String,
    },
    /// The runtime lost it.
    Unknown,
}

impl ObservedContainer {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }
}
