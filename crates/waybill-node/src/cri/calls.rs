//! The calls that a pod's life needs, each with its time limit.

use std::{collections::BTreeMap, error::Error, time::Duration};

use tokio::time::timeout;
use tonic::{Code, Response, Status};
use waybill_core::{chain::Chain, id::PodUid};
use waybill_proto::cri::{
    Container, ContainerConfig, ContainerFilter, ContainerState, ContainerStateValue,
    ContainerStatsFilter, ContainerStatus, ContainerStatusRequest, CreateContainerRequest, Image,
    ImageFsInfoRequest, ImageSpec, ImageStatusRequest, ListContainerStatsRequest,
    ListContainersRequest, ListImagesRequest, ListPodSandboxRequest, PodSandbox, PodSandboxConfig,
    PodSandboxFilter, PodSandboxStatus, PodSandboxStatusRequest, PullImageRequest,
    RemoveContainerRequest, RemoveImageRequest, RemovePodSandboxRequest, ReopenContainerLogRequest,
    RunPodSandboxRequest, RuntimeHandlerFeatures, StartContainerRequest, StatusRequest,
    StopContainerRequest, StopPodSandboxRequest, UpdateContainerResourcesRequest,
};

use super::{Runtime, image::FoundImage, labels, resources::ContainerLimits};
use crate::{deadline, volume::Taken};

type Result<T> = std::result::Result<T, Status>;

/// Questions.
const ASK: Duration = Duration::from_secs(10);
/// Making and starting; networks and disks may be slow.
const MAKE: Duration = Duration::from_secs(240);
/// What a runtime may take beyond the grace of a stop.
const STOP_EXTRA: Duration = Duration::from_secs(120);
/// A pull that takes longer has stalled.
const PULL: Duration = Duration::from_secs(3600);

impl Runtime {
    pub(crate) async fn sandboxes(&self, uid: Option<&str>) -> Result<Vec<PodSandbox>> {
        let filter = PodSandboxFilter { label_selector: selector(uid), ..Default::default() };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        Ok(within(ASK, self.containers().list_pod_sandbox(request)).await?.items)
    }

    /// Whether pods of a handler can have users of their own.
    pub(crate) async fn has_user_namespaces(&self, handler: &str) -> Result<bool> {
        Ok(self.features(handler).await?.is_some_and(|features| features.user_namespaces))
    }

    /// Whether mounts of a handler can be read-only together with what is mounted below them.
    pub(crate) async fn has_recursive_read_only(&self, handler: &str) -> Result<bool> {
        let features = self.features(handler).await?;
        Ok(features.is_some_and(|features| features.recursive_read_only_mounts))
    }

    async fn features(&self, handler: &str) -> Result<Option<RuntimeHandlerFeatures>> {
        let request = StatusRequest { verbose: false };
        let handlers = within(ASK, self.containers().status(request)).await?.runtime_handlers;
        Ok(handlers.into_iter().find(|it| it.name == handler).and_then(|it| it.features))
    }

    /// Every container that runs, whoever told the runtime to.
    pub(crate) async fn list_running(&self) -> Result<Vec<Container>> {
        let state = ContainerStateValue { state: ContainerState::ContainerRunning.into() };
        let filter = ContainerFilter { state: Some(state), ..Default::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        Ok(within(ASK, self.containers().list_containers(request)).await?.containers)
    }

    pub(crate) async fn list(&self, uid: Option<&str>) -> Result<Vec<Container>> {
        let filter = ContainerFilter { label_selector: selector(uid), ..Default::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        Ok(within(ASK, self.containers().list_containers(request)).await?.containers)
    }

    /// `None` if it is gone.
    pub(crate) async fn sandbox_status(&self, id: &str) -> Result<Option<PodSandboxStatus>> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let answer = within(ASK, self.containers().pod_sandbox_status(request)).await;
        Ok(unless_gone(answer)?.and_then(|answer| answer.status))
    }

    /// `None` if it is gone.
    pub(crate) async fn container_status(&self, id: &str) -> Result<Option<ContainerStatus>> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = within(ASK, self.containers().container_status(request)).await;
        Ok(unless_gone(answer)?.and_then(|answer| answer.status))
    }

    pub(crate) async fn run_sandbox(
        &self,
        config: PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<String> {
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler };
        Ok(within(MAKE, self.containers().run_pod_sandbox(request)).await?.pod_sandbox_id)
    }

    pub(crate) async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        unless_gone(within(MAKE, self.containers().stop_pod_sandbox(request)).await).map(drop)
    }

    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        unless_gone(within(MAKE, self.containers().remove_pod_sandbox(request)).await).map(drop)
    }

    pub(crate) async fn create(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        sandbox_config: PodSandboxConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(within(MAKE, self.containers().create_container(request)).await?.container_id)
    }

    pub(crate) async fn start(&self, id: &str) -> Result<()> {
        let request = StartContainerRequest { container_id: id.to_owned() };
        within(MAKE, self.containers().start_container(request)).await.map(drop)
    }

    /// Returns when the container has ended. `grace` is in seconds.
    pub(crate) async fn stop(&self, id: &str, grace: i64) -> Result<()> {
        let timeout = deadline::at_most(grace);
        let request = StopContainerRequest { container_id: id.to_owned(), timeout };
        let limit = deadline::seconds(grace).saturating_add(STOP_EXTRA);
        unless_gone(within(limit, self.containers().stop_container(request)).await).map(drop)
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<()> {
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        unless_gone(within(MAKE, self.containers().remove_container(request)).await).map(drop)
    }

    /// Changes what a container that runs may use.
    pub(crate) async fn resize(&self, id: &str, limits: ContainerLimits) -> Result<()> {
        let request = UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(limits.request()),
            ..UpdateContainerResourcesRequest::default()
        };
        within(MAKE, self.containers().update_container_resources(request)).await.map(drop)
    }

    /// What each container of a pod that runs has written beside its volumes, by its name.
    pub(crate) async fn writable_layers(&self, uid: &PodUid) -> Result<BTreeMap<String, Taken>> {
        let label_selector = selector(Some(uid.as_str()));
        let filter = ContainerStatsFilter { label_selector, ..Default::default() };
        let request = ListContainerStatsRequest { filter: Some(filter) };
        let answer = within(MAKE, self.containers().list_container_stats(request)).await?;
        let layers = answer.stats.into_iter().filter_map(|stats| {
            let mut attributes = stats.attributes?;
            let name = attributes.labels.remove(labels::CONTAINER_NAME)?;
            let layer = stats.writable_layer?;
            let files = layer.inodes_used.map_or(0, |files| files.value);
            Some((name, Taken { bytes: layer.used_bytes?.value, files }))
        });
        Ok(layers.collect())
    }

    /// The memory that containers need, in bytes, by their names and the uids of their pods.
    pub(crate) async fn memory_of_pods(&self) -> Result<BTreeMap<String, BTreeMap<String, u64>>> {
        let request = ListContainerStatsRequest { filter: None };
        let answer = within(MAKE, self.containers().list_container_stats(request)).await?;
        let mut pods = BTreeMap::<String, BTreeMap<String, u64>>::new();
        for stats in answer.stats {
            let (Some(mut attributes), Some(memory)) = (stats.attributes, stats.memory) else {
                continue;
            };
            let mut label = |name: &str| attributes.labels.remove(name);
            if let (Some(uid), Some(name)) = (label(labels::POD_UID), label(labels::CONTAINER_NAME))
            {
                let used = memory.working_set_bytes.map_or(0, |bytes| bytes.value);
                pods.entry(uid).or_default().insert(name, used);
            }
        }
        Ok(pods)
    }

    /// The container writes its log to a new file, if the old one has another name by now.
    pub(crate) async fn reopen_log(&self, id: &str) -> Result<()> {
        let request = ReopenContainerLogRequest { container_id: id.to_owned() };
        within(ASK, self.containers().reopen_container_log(request)).await.map(drop)
    }

    /// `None` if the image is not here.
    pub(crate) async fn image(&self, name: &str) -> Result<Option<FoundImage>> {
        let request = ImageStatusRequest { image: Some(spec(name)), verbose: true };
        let answer = within(ASK, self.images().image_status(request)).await?;
        Ok(answer.image.map(|image| FoundImage::new(image, &answer.info)))
    }

    pub(crate) async fn list_images(&self) -> Result<Vec<Image>> {
        let request = ListImagesRequest { filter: None };
        Ok(within(ASK, self.images().list_images(request)).await?.images)
    }

    pub(crate) async fn remove_image(&self, id: &str) -> Result<()> {
        let request = RemoveImageRequest { image: Some(spec(id)) };
        within(MAKE, self.images().remove_image(request)).await.map(drop)
    }

    /// A directory on the file system where images lie, if the runtime tells it.
    pub(crate) async fn image_place(&self) -> Result<Option<String>> {
        let answer = within(MAKE, self.images().image_fs_info(ImageFsInfoRequest {})).await?;
        let first = answer.image_filesystems.into_iter().next();
        Ok(first.and_then(|usage| usage.fs_id).map(|id| id.mountpoint))
    }

    /// The id of the image that was pulled.
    pub(crate) async fn pull(&self, request: PullImageRequest) -> Result<String> {
        Ok(within(PULL, self.images().pull_image(request)).await?.image_ref)
    }
}

pub(crate) fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.to_owned(), ..ImageSpec::default() }
}

fn selector(uid: Option<&str>) -> BTreeMap<String, String> {
    uid.map(|uid| (labels::POD_UID.to_owned(), uid.to_owned())).into_iter().collect()
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<Response<T>>>) -> Result<T> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map(Response::into_inner).map_err(told),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "the runtime did not answer within {} s",
            limit.as_secs()
        ))),
    }
}

/// A runtime that was killed during a call has said nothing about it; the connection has.
fn told(status: Status) -> Status {
    match status.source() {
        Some(source) if status.code() == Code::Unknown => {
            let reason = Chain(source);
            Status::unavailable(format!("the connection to the runtime broke: {reason}"))
        }
        _ => status,
    }
}

fn unless_gone<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_runtime_that_is_killed_meanwhile_is_said_to_be_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runtime.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let runtime = Runtime::at(&path).unwrap();
        let killed = async {
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
            drop(stream);
        };
        let (answer, ()) = tokio::join!(runtime.list_images(), killed);
        let status = answer.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().starts_with("the connection to the runtime broke: "), "{status}");
    }
}
