//! Finds containers and sandboxes in the runtime, which alone knows what runs.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use tonic::{Request, Status};
use waybill_proto::cri;

use crate::{cri::Runtime, pod::Pod};

/// How long the runtime may take for an answer.
const LIMIT: Duration = Duration::from_secs(30);

const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// A message with a limit on the time that its answer may take.
pub(super) fn limited<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(LIMIT);
    request
}

/// The id of the container of that name, if it runs.
pub(super) async fn running(
    runtime: &Runtime,
    pod: &Pod,
    name: &str,
) -> Result<Option<String>, Status> {
    let state = cri::ContainerStateValue { state: cri::ContainerState::ContainerRunning.into() };
    let found = list(runtime, pod, name, Some(state)).await?;
    Ok(found.into_iter().next().map(|container| container.id))
}

/// All containers of that name, whether they run or not.
pub(super) async fn newest_first(
    runtime: &Runtime,
    pod: &Pod,
    name: &str,
) -> Result<Vec<cri::Container>, Status> {
    list(runtime, pod, name, None).await
}

/// More about one container.
pub(super) async fn status(runtime: &Runtime, id: &str) -> Result<cri::ContainerStatus, Status> {
    let request = cri::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let response = runtime.containers().container_status(limited(request)).await?;
    let status = response.into_inner().status;
    status.ok_or_else(|| Status::internal("the runtime answered without a status"))
}

/// The id of the pod's sandbox, if it is ready.
pub(super) async fn ready_sandbox(runtime: &Runtime, pod: &Pod) -> Result<Option<String>, Status> {
    let filter = cri::PodSandboxFilter {
        state: Some(cri::PodSandboxStateValue { state: cri::PodSandboxState::SandboxReady.into() }),
        label_selector: BTreeMap::from([(POD_UID.to_owned(), pod.uid().to_string())]),
        ..cri::PodSandboxFilter::default()
    };
    let request = cri::ListPodSandboxRequest { filter: Some(filter) };
    let response = runtime.containers().list_pod_sandbox(limited(request)).await?;
    let sandboxes = response.into_inner().items;
    Ok(sandboxes.into_iter().max_by_key(|sandbox| sandbox.created_at).map(|sandbox| sandbox.id))
}

async fn list(
    runtime: &Runtime,
    pod: &Pod,
    name: &str,
    state: Option<cri::ContainerStateValue>,
) -> Result<Vec<cri::Container>, Status> {
    let labels = [(POD_UID, pod.uid().to_string()), (CONTAINER_NAME, name.to_owned())];
    let labels = labels.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
    let filter =
        cri::ContainerFilter { state, label_selector: labels, ..cri::ContainerFilter::default() };
    let request = cri::ListContainersRequest { filter: Some(filter) };
    let response = runtime.containers().list_containers(limited(request)).await?;
    let mut found = response.into_inner().containers;
    found.sort_by_key(|container| Reverse(container.created_at));
    Ok(found)
}
