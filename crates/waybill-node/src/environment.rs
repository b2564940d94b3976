//! The environment of a container: a pure plan of what its spec asks for, and one resolver for each source.
//!
//! ```text
//!   container spec ──► Plan (pure) ──needs──► objects, files, drivers: asked at once
//!                        │                                  │
//!                        └──steps, in their order──► merge ◄┘ ──► Environment, every variable with its origin
//! ```
//!
//! The order is that of Kubernetes: what the node adds, then `envFrom`, then `env`; a later definition
//! wins, and a `value` sees whatever was defined before it. No error here holds a value.

mod config_map;
mod csi;
mod error;
pub(crate) mod field;
mod file;
mod gather;
mod merge;
mod node;
mod plan;
mod provenance;
pub(crate) mod resource;
mod secret;

use std::sync::Arc;

use waybill_api::gates::FeatureGates;
use waybill_core::env::merge::Environment;

use self::plan::Plan;
use crate::{
    csi::{Csi, Injected},
    directories::Directories,
    objects::ObjectSource,
    pod::{ContainerRef, Pod},
};

pub(crate) use self::{
    error::EnvironmentError,
    node::{ApiEndpoint, NodeFacts},
    provenance::{ContainerProvenance, Provenance},
};

/// Makes environments. One for the node.
pub(crate) struct Resolver {
    pub(crate) objects: Arc<dyn ObjectSource>,
    pub(crate) directories: Directories,
    pub(crate) gates: FeatureGates,
    pub(crate) node: Arc<NodeFacts>,
    pub(crate) csi: Arc<Csi>,
}

/// Whose environment is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: ContainerRef<'a>,
    /// Addresses of the sandbox; empty if it has no network of its own.
    pub(crate) pod_ips: &'a [String],
}

/// An environment, and what the owner of the pod should hear about it.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) environment: Environment,
    pub(crate) warnings: Vec<Warning>,
    /// Classes whose drivers gave variables.
    pub(crate) injected: Vec<Injected>,
}

/// Something for an event of type Warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Resolver {
    /// The environment with which the container is to be created. Everything is read anew, at every
    /// start (FILE-11, CSI-30).
    pub(crate) async fn resolve(&self, request: Request<'_>) -> Result<Resolved, EnvironmentError> {
        let container = request.container.name();
        let at = |fault| EnvironmentError::new(container, fault);
        let spec = request.pod.environment_of(request.container.kind, container);
        let plan = spec.map_or_else(|| Ok(Plan::default()), |spec| Plan::new(spec, self.gates));
        let plan = plan.map_err(at)?;
        let mut gathered = gather::gather(self, request, &plan).await;
        merge::merge(self, request, &plan, &mut gathered).map_err(at)
    }
}

#[cfg(test)]
mod tests;
