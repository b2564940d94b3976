//! CRI's runtime service: each call, and who answers it.
//!
//! Calls that change something run to their end; the others end with their client.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tonic::{Request, Response, Status};
use waybill_proto::cri::{runtime_service_server::RuntimeService, *};

use super::{Cri, error::CriError, exec::audit_id, metrics, status};

/// How many entries one message of a streamed list holds.
const LIST_CHUNK: usize = 100;

type Answer<T> = Result<Response<T>, Status>;
type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(crate) struct Runtime(pub(crate) Arc<Cri>);

impl Runtime {
    fn cri(&self) -> Arc<Cri> {
        Arc::clone(&self.0)
    }
}

#[tonic::async_trait]
impl RuntimeService for Runtime {
    type StreamPodSandboxesStream = BoxStream<StreamPodSandboxesResponse>;
    type StreamContainersStream = BoxStream<StreamContainersResponse>;
    type StreamContainerStatsStream = BoxStream<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = BoxStream<StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = BoxStream<StreamPodSandboxMetricsResponse>;
    type GetContainerEventsStream = BoxStream<ContainerEventResponse>;

    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(status::version()))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = request.config.unwrap_or_default();
        let id = self.cri().run_sandbox(config, request.runtime_handler);
        let pod_sandbox_id = self.0.complete(id).await?;
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let request = request.into_inner();
        self.0.complete(self.cri().stop_sandbox(request.pod_sandbox_id)).await?;
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let request = request.into_inner();
        self.0.complete(self.cri().remove_sandbox(request.pod_sandbox_id)).await?;
        Ok(Response::new(RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.0.sandbox_status(&request.pod_sandbox_id, request.verbose)?))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let request = request.into_inner();
        let items = self.0.list_sandboxes(&request.filter.unwrap_or_default());
        Ok(Response::new(ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let request = request.into_inner();
        let items = self.0.list_sandboxes(&request.filter.unwrap_or_default());
        Ok(chunked(&items, |pod_sandboxes| StreamPodSandboxesResponse { pod_sandboxes }))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        let container_id = self.0.complete(self.cri().create_container(request)).await?;
        Ok(Response::new(CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let request = request.into_inner();
        self.0.complete(self.cri().start_container(request.container_id)).await?;
        Ok(Response::new(StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let request = request.into_inner();
        let stop = self.cri().stop_container(request.container_id, request.timeout);
        self.0.complete(stop).await?;
        Ok(Response::new(StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let request = request.into_inner();
        self.0.complete(self.cri().remove_container(request.container_id)).await?;
        Ok(Response::new(RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let request = request.into_inner();
        let containers = self.0.list_containers(&request.filter.unwrap_or_default());
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let request = request.into_inner();
        let containers = self.0.list_containers(&request.filter.unwrap_or_default());
        Ok(chunked(&containers, |containers| StreamContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.0.container_status(&request.container_id, request.verbose)?))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        self.0.complete(self.cri().update_container(request)).await?;
        Ok(Response::new(UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let request = request.into_inner();
        self.0.complete(self.cri().reopen_log(request.container_id)).await?;
        Ok(Response::new(ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.0.complete(self.cri().exec_sync(request)).await?))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        let request = request.into_inner();
        Ok(Response::new(ExecResponse { url: self.0.exec_url(request)? }))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        let audit_id = audit_id(request.metadata())?;
        let request = request.into_inner();
        Ok(Response::new(AttachResponse { url: self.0.attach_url(&request, audit_id)? }))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        let request = request.into_inner();
        Ok(Response::new(PortForwardResponse { url: self.0.forward_url(&request)? }))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let request = request.into_inner();
        let stats = self.0.container_stats(&request.container_id).await?;
        Ok(Response::new(ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let request = request.into_inner();
        let stats = self.0.list_container_stats(&request.filter.unwrap_or_default()).await;
        Ok(Response::new(ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let request = request.into_inner();
        let stats = self.0.list_container_stats(&request.filter.unwrap_or_default()).await;
        Ok(chunked(&stats, |container_stats| StreamContainerStatsResponse { container_stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        let request = request.into_inner();
        let stats = self.0.sandbox_stats(&request.pod_sandbox_id).await?;
        Ok(Response::new(PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        let request = request.into_inner();
        let stats = self.0.list_sandbox_stats(&request.filter.unwrap_or_default()).await;
        Ok(Response::new(ListPodSandboxStatsResponse { stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let request = request.into_inner();
        let stats = self.0.list_sandbox_stats(&request.filter.unwrap_or_default()).await;
        Ok(chunked(&stats, |pod_sandbox_stats| StreamPodSandboxStatsResponse { pod_sandbox_stats }))
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        let request = request.into_inner();
        self.0.update_runtime_config(request);
        Ok(Response::new(UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        let request = request.into_inner();
        Ok(Response::new(self.0.status(request.verbose).await))
    }

    async fn checkpoint_container(
        &self,
        _: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        let advice = "stop the container and create it anew";
        Err(CriError::unsupported("a checkpoint", advice).into())
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let events = stream::unfold(Some(self.0.events.listen()), next_event);
        let until = self.0.stop.clone().cancelled_owned();
        Ok(Response::new(Box::pin(events.take_until(until))))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        Ok(Response::new(ListMetricDescriptorsResponse { descriptors: metrics::descriptors() }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        let pod_metrics = self.0.list_metrics().await;
        Ok(Response::new(ListPodSandboxMetricsResponse { pod_metrics }))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        let metrics = self.0.list_metrics().await;
        let answer = |pod_sandbox_metrics| StreamPodSandboxMetricsResponse { pod_sandbox_metrics };
        Ok(chunked(&metrics, answer))
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        Ok(Response::new(status::runtime_config()))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        self.0.update_sandbox(request)?;
        Ok(Response::new(UpdatePodSandboxResourcesResponse {}))
    }
}

/// The next event for a listener. One that was too slow is told so, and its stream ends.
async fn next_event(
    listener: Option<Receiver<ContainerEventResponse>>,
) -> Option<(Result<ContainerEventResponse, Status>, Option<Receiver<ContainerEventResponse>>)> {
    let mut listener = listener?;
    match listener.recv().await {
        Ok(event) => Some((Ok(event), Some(listener))),
        Err(RecvError::Lagged(count)) => {
            let missed = format!("{count} events were missed; list containers and listen again");
            Some((Err(Status::data_loss(missed)), None))
        }
        Err(RecvError::Closed) => None,
    }
}

fn chunked<T: Clone + Send + 'static, R: Send + 'static>(
    items: &[T],
    response: impl Fn(Vec<T>) -> R,
) -> Response<BoxStream<R>> {
    let chunks: Vec<_> =
        items.chunks(LIST_CHUNK).map(|chunk| Ok(response(chunk.to_vec()))).collect();
    Response::new(Box::pin(stream::iter(chunks)))
}
