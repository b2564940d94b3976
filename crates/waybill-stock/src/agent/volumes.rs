//! The CSI plugin by which the kubelet brings the tokens of a pod, and says when the pod needs no values any more.
//!
//! The volume itself is an empty directory: values never become files.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::time::timeout;
use tonic::{Request, Response, Status};
use waybill_core::{chain::Chain, secret::SecretBytes};
use waybill_proto::csi::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetEnvVarsRequest,
    NodeGetEnvVarsResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    node_server::Node,
};

use super::{
    fetch::{Drivers, TOKENS},
    pods::KnownPod,
    values::HeldValues,
};

/// For the pod, if the watch has not brought it yet.
const ASK: Duration = Duration::from_secs(10);

/// The service `Node` of the plugin.
pub(super) struct Volumes {
    pub(super) client: Client,
    pub(super) node: String,
    pub(super) drivers: Drivers,
    pub(super) values: Arc<HeldValues>,
    /// Where the kubelet's paths begin for this process.
    pub(super) root: PathBuf,
    /// Below it are the volumes of pods, as the kubelet calls it.
    pub(super) kubelet: PathBuf,
}

impl Volumes {
    async fn publish(&self, mut request: NodePublishVolumeRequest) -> Result<(), Status> {
        let tokens = request.volume_context.remove(TOKENS).or(request.secrets.remove(TOKENS));
        let tokens = tokens.map(|text| SecretBytes::from(text.into_bytes()));
        let context = |name: &str| {
            let entry = request.volume_context.get(&format!("csi.storage.k8s.io/{name}"));
            let missing = || Status::invalid_argument("the CSIDriver object lacks podInfoOnMount");
            entry.map(String::as_str).ok_or_else(missing)
        };
        let (namespace, name) = (context("pod.namespace")?, context("pod.name")?);
        let pod = self.pod(namespace, name, context("pod.uid")?).await?;
        self.make_target(&request.target_path)?;
        if self.values.is_fresh(&pod, Instant::now()) {
            return Ok(());
        }
        match self.drivers.fetch(&pod, tokens.as_ref()).await {
            Ok(values) => {
                self.values.insert(&pod.uid, &request.volume_id, values, Instant::now());
                Ok(())
            }
            // What was taken away counts at once, also for containers that start again.
            Err(error) if error.is_denial() => {
                self.values.forget(&pod.uid);
                tracing::warn!(namespace, pod = name, error = %Chain(&error), "no values any more");
                Err(Status::permission_denied(Chain(&error).to_string()))
            }
            // A pod that runs goes on with what it has.
            Err(error) if self.values.is_complete(&pod) => {
                tracing::warn!(namespace, pod = name, error = %Chain(&error), "values are not renewed");
                Ok(())
            }
            Err(error) => {
                tracing::warn!(namespace, pod = name, error = %Chain(&error), "no values");
                Err(Status::unavailable(Chain(&error).to_string()))
            }
        }
    }

    /// The pod as the API server has it now, and no other of the same name.
    async fn pod(&self, namespace: &str, name: &str, uid: &str) -> Result<KnownPod, Status> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let found = timeout(ASK, api.get(name)).await;
        let found = found.map_err(|_| Status::unavailable("the API server did not answer"))?;
        let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
        let node = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let is_here = node == Some(&*self.node) && found.metadata.uid.as_deref() == Some(uid);
        let elsewhere = || Status::not_found("the pod is not on this node");
        KnownPod::of(&found).filter(|_| is_here).ok_or_else(elsewhere)
    }

    /// An empty directory where the kubelet wants the volume, if that is among the volumes of pods.
    fn make_target(&self, target: &str) -> Result<(), Status> {
        let path = self.target(target)?;
        let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(path);
        made.map_err(|error| Status::internal(format!("the volume cannot be made: {error}")))
    }

    fn target(&self, target: &str) -> Result<PathBuf, Status> {
        let path = Path::new(target);
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if path.starts_with(self.kubelet.join("pods")) && path.components().all(plain) {
            return Ok(self.root.join(path.strip_prefix("/").unwrap_or(path)));
        }
        Err(Status::invalid_argument("the path is not among the volumes of pods"))
    }
}

#[tonic::async_trait]
impl Node for Volumes {
    async fn node_get_capabilities(
        &self,
        _request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(NodeGetCapabilitiesResponse::default()))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let node_id = self.node.clone();
        Ok(Response::new(NodeGetInfoResponse { node_id, ..NodeGetInfoResponse::default() }))
    }

    async fn node_get_env_vars(
        &self,
        _request: Request<NodeGetEnvVarsRequest>,
    ) -> Result<Response<NodeGetEnvVarsResponse>, Status> {
        Err(Status::unimplemented("this plugin brings values to containers by itself"))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        self.publish(request.into_inner()).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.values.forget_volume(&request.volume_id);
        let path = self.target(&request.target_path)?;
        // Whatever else may be there is not ours to remove.
        let _ = fs::remove_dir(path);
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }
}
