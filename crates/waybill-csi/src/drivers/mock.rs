//! A driver that does what a file says, right or wrong, for tests of kubelets and for authors of drivers.
//!
//! The file is read anew for each call, so that a value that changes there has been rotated. Values are
//! in it, so that it must be its owner's alone.

mod journal;
mod misbehave;
mod script;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tonic::{Request, Response, Status};
use waybill_core::{chain::Chain, secret::SecretBytes};
use waybill_proto::csi::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetEnvVarsRequest,
    NodeGetEnvVarsResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    node_server::Node,
};

pub use self::script::ScriptError;
use self::script::{Behaviour, Script};
use crate::{
    driver::{Answer, Call, Driver, FetchError, Hints, Query, Sharing},
    server::{Config, NodeService, Server, ServerError},
};

/// The name under which it registers, unless it is told another.
pub const NAME: &str = "mock.csi.waybill.dev";

/// The driver. Clones share their count of calls.
#[derive(Clone, Debug)]
pub struct Mock {
    name: String,
    script: PathBuf,
    calls: Arc<AtomicUsize>,
}

impl Mock {
    /// A driver of this name that does what the file at `script` says. Fails if that cannot be used now;
    /// what is wrong later fails the call that finds it.
    pub fn new(name: &str, script: impl Into<PathBuf>) -> Result<Self, ScriptError> {
        let script = script.into();
        Script::read(&script)?;
        Ok(Self { name: name.to_owned(), script, calls: Arc::default() })
    }

    /// Serves it. [`Server::start`] would serve it too, but keep it from misbehaving.
    pub async fn serve(self, config: Config) -> Result<Server, ServerError> {
        let mock = self.clone();
        Server::start_with(self, config, |inner| MockNode { mock, inner }).await
    }

    fn script(&self) -> Result<Script, FetchError> {
        Script::read(&self.script).map_err(|error| FetchError::backend(Chain(&error).to_string()))
    }
}

impl Driver for Mock {
    fn name(&self) -> &str {
        &self.name
    }

    fn backend(&self) -> &'static str {
        "mock"
    }

    fn hints(&self) -> Hints {
        self.script().map(|script| script.hints()).unwrap_or_default()
    }

    fn sharing(&self) -> Sharing {
        self.script().map_or(Sharing::Pod, |script| script.sharing())
    }

    fn cache_ttl(&self) -> Duration {
        self.script().map(|script| script.cache_ttl()).unwrap_or_default()
    }

    async fn fetch(&self, _call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        let script = self.script()?;
        let answer = |query: &Query| {
            let key = &query.key;
            match (script.failure(key), script.value(key)) {
                (Some(failure), _) => Err(failure),
                (None, Some(value)) => Ok(SecretBytes::copy_of(value.expose())),
                (None, None) => Err(FetchError::not_found(format!("there is no key {key:?}"))),
            }
        };
        Ok(queries.iter().map(answer).collect())
    }
}

/// Stands between the service and its callers, where things can go wrong that the SDK prevents.
struct MockNode {
    mock: Mock,
    inner: NodeService<Mock>,
}

#[tonic::async_trait]
impl Node for MockNode {
    async fn node_get_capabilities(
        &self,
        request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        match self.mock.script() {
            Ok(script) if !script.capability() => {
                Ok(Response::new(NodeGetCapabilitiesResponse::default()))
            }
            _ => self.inner.node_get_capabilities(request).await,
        }
    }

    async fn node_get_info(
        &self,
        request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        self.inner.node_get_info(request).await
    }

    async fn node_get_env_vars(
        &self,
        request: Request<NodeGetEnvVarsRequest>,
    ) -> Result<Response<NodeGetEnvVarsResponse>, Status> {
        let call = self.mock.calls.fetch_add(1, Ordering::SeqCst);
        let behaviour = match self.mock.script() {
            Ok(script) => {
                if let Some(journal) = script.journal() {
                    journal::add(journal, request.get_ref())
                        .map_err(|error| Status::internal(format!("the journal: {error}")))?;
                }
                script.behaviour(call)
            }
            // The call finds the same and says so.
            Err(_) => Behaviour::Answer,
        };
        misbehave::before(&behaviour).await?;
        let mut answer = self.inner.node_get_env_vars(request).await?;
        misbehave::after(&behaviour, &mut answer.get_mut().results);
        Ok(answer)
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        self.inner.node_publish_volume(request).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        self.inner.node_unpublish_volume(request).await
    }
}

#[cfg(test)]
mod tests;
