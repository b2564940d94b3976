//! The node: runs the pods that are meant for it on a container runtime, and makes their environments.
//!
//! It speaks CRI to the runtime, and HTTPS to the API server; both may be the stock ones. What runs is
//! always asked of the runtime, never remembered on disk, so the node can be killed and started again
//! without disturbing a container.
//!
//! ```text
//!   source ──pods──► worker, one for each pod ──► plan (pure) ──► actions ──► cri
//!                       ▲   │        │                             ├─ environment
//!        runtime events ┘   │        └──► status ──► API server    └─ volume
//!        probes ────────────┘
//!   server: exec, attach, port-forward, logs for the API server
//! ```

mod blocking;
mod config;
mod cri;
mod csi;
mod deadline;
mod directories;
mod environment;
mod event;
#[cfg(test)]
mod fake_api;
#[cfg(test)]
mod fake_grpc;
#[cfg(test)]
mod fake_log;
mod hook;
mod image_collection;
mod node;
mod objects;
mod observed;
mod pod;
mod pressure;
mod probe;
mod register;
mod retry;
mod rotation;
mod server;
mod source;
mod status;
mod volume;
mod worker;

use std::sync::Arc;

use jiff::Timestamp;

pub use self::{
    config::Config,
    csi::CsiConfig,
    directories::Directories,
    image_collection::ImageLimits,
    node::{Node, NodeError},
    pressure::{EvictionLimits, EvictionThresholds, ThresholdError},
    rotation::LogLimits,
    server::{ExecEnvPolicy, ExecSessionPolicy, PairPaths},
    worker::SysctlPolicy,
};

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
