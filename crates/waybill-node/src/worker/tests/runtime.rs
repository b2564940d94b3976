//! A runtime that makes sandboxes and containers on paper.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};
use tokio_util::sync::DropGuard;
use tonic::Status;
use waybill_proto::cri::{self, ContainerState, PodSandboxState};

use crate::fake_grpc::serve;

/// Something that takes longer than this does not happen.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct FakeRuntime {
    pub(super) directory: tempfile::TempDir,
    shared: Arc<Shared>,
    _running: DropGuard,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

/// What the runtime has, and what it was asked to change.
#[derive(Default)]
pub(super) struct State {
    pub(super) sandboxes: Vec<cri::PodSandbox>,
    pub(super) containers: Vec<cri::ContainerStatus>,
    homes: BTreeMap<String, String>,
    pub(super) configs: Vec<cri::ContainerConfig>,
    /// Every call that changes something, with what it is about.
    pub(super) calls: Vec<String>,
    /// What containers have written, by their names.
    pub(super) layers: BTreeMap<&'static str, u64>,
    /// Containers that stop only if they are given less time than this.
    pub(super) stubborn: Option<i64>,
    pub(super) fail: BTreeMap<&'static str, &'static str>,
    /// Calls whose names are taken.
    pub(super) taken: BTreeSet<&'static str>,
    /// A call that is not answered as long as somebody has the other end of this.
    held: Option<(&'static str, oneshot::Receiver<()>)>,
    made: u32,
}

impl FakeRuntime {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared::default());
        let all = Arc::clone(&shared);
        let running = serve(&directory.path().join("cri.sock"), move |call, message| {
            let shared = Arc::clone(&all);
            async move { answer(&call, message, &shared).await }
        });
        Self { directory, shared, _running: running }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("cri.sock")
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// Waits until the runtime is as `good` wants it.
    #[track_caller]
    pub(super) fn until(&self, good: impl Fn(&State) -> bool) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let waiting = async {
                loop {
                    let changed = self.shared.changed.notified();
                    if good(&self.state()) {
                        return;
                    }
                    changed.await;
                }
            };
            if timeout(PATIENCE, waiting).await.is_err() {
                panic!("{place}: {:?}", self.state().calls);
            }
        }
    }

    /// The next call of this name is carried out when what this returns is dropped.
    pub(super) fn hold(&self, call: &'static str) -> oneshot::Sender<()> {
        let (sender, receiver) = oneshot::channel();
        self.state().held = Some((call, receiver));
        sender
    }

    /// The calls since the last time.
    pub(super) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// The newest container of that name ends by itself.
    pub(super) fn exit(&self, name: &str, code: i32) {
        let mut state = self.state();
        let found = state.containers.iter_mut().rev().find(|it| name_of(it) == name).unwrap();
        end(found, code);
    }
}

impl State {
    pub(super) fn running(&self) -> Vec<String> {
        let running =
            self.containers.iter().filter(|it| it.state() == ContainerState::ContainerRunning);
        running.map(shown).collect()
    }

    fn named(&self, id: &str) -> String {
        self.containers.iter().find(|it| it.id == id).map(shown).unwrap_or_else(|| id.to_owned())
    }
}

fn name_of(status: &cri::ContainerStatus) -> &str {
    &status.metadata.as_ref().unwrap().name
}

fn shown(status: &cri::ContainerStatus) -> String {
    format!("{}#{}", name_of(status), status.metadata.as_ref().unwrap().attempt)
}

fn end(status: &mut cri::ContainerStatus, code: i32) {
    if status.state() == ContainerState::ContainerRunning {
        status.state = ContainerState::ContainerExited.into();
        status.finished_at = now();
        status.exit_code = code;
    }
}

fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap()
}

async fn answer(call: &str, message: Bytes, shared: &Shared) -> Result<Vec<u8>, Status> {
    let held = shared.state.lock().unwrap().hold(call);
    if let Some(held) = held {
        shared.changed.notify_waiters();
        let _ = held.await;
    }
    let answered = shared.state.lock().unwrap().answer(call, message);
    shared.changed.notify_waiters();
    match answered {
        Some(answered) => answered,
        // Never.
        None => std::future::pending().await,
    }
}

impl State {
    fn hold(&mut self, call: &str) -> Option<oneshot::Receiver<()>> {
        let (_, held) = self.held.take_if(|(name, _)| *name == call)?;
        self.calls.push(format!("hold {call}"));
        Some(held)
    }

    /// `None` if the answer never comes.
    fn answer(&mut self, call: &str, message: Bytes) -> Option<Result<Vec<u8>, Status>> {
        if let Some(reason) = self.fail.get(call) {
            self.calls.push(format!("fail {call}"));
            return Some(Err(Status::unknown(*reason)));
        }
        if self.taken.contains(call) {
            self.calls.push(format!("taken {call}"));
            return Some(Err(Status::already_exists("")));
        }
        if call == "StopContainer" {
            return self.stop(&Message::decode(message).unwrap());
        }
        Some(self.answer_now(call, message))
    }

    fn answer_now(&mut self, call: &str, message: Bytes) -> Result<Vec<u8>, Status> {
        Ok(match call {
            "ListPodSandbox" => {
                let request = cri::ListPodSandboxRequest::decode(message).unwrap();
                let wanted = request.filter.unwrap_or_default().label_selector;
                let items = self.sandboxes.iter().filter(|it| has(&it.labels, &wanted));
                cri::ListPodSandboxResponse { items: items.cloned().collect() }.encode_to_vec()
            }
            "ListContainers" => {
                let request = cri::ListContainersRequest::decode(message).unwrap();
                let wanted = request.filter.unwrap_or_default().label_selector;
                let containers = self.containers.iter().filter(|it| has(&it.labels, &wanted));
                let containers = containers.map(|it| self.listed(it)).collect();
                cri::ListContainersResponse { containers }.encode_to_vec()
            }
            "ListContainerStats" => {
                let request = cri::ListContainerStatsRequest::decode(message).unwrap();
                let wanted = request.filter.unwrap_or_default().label_selector;
                let containers = self.containers.iter().filter(|it| has(&it.labels, &wanted));
                let stats = containers.map(|it| self.stats(it)).collect();
                cri::ListContainerStatsResponse { stats }.encode_to_vec()
            }
            "ContainerStatus" => {
                let request = cri::ContainerStatusRequest::decode(message).unwrap();
                let status = self.containers.iter().find(|it| it.id == request.container_id);
                let status = status.ok_or_else(|| Status::not_found("gone"))?.clone();
                cri::ContainerStatusResponse { status: Some(status), ..Default::default() }
                    .encode_to_vec()
            }
            "PodSandboxStatus" => cri::PodSandboxStatusResponse::default().encode_to_vec(),
            "ImageStatus" => {
                let request = cri::ImageStatusRequest::decode(message).unwrap();
                let name = request.image.unwrap().image;
                let image =
                    (name != "missing:1").then(|| cri::Image { id: name, ..Default::default() });
                cri::ImageStatusResponse { image, ..Default::default() }.encode_to_vec()
            }
            "RunPodSandbox" => self.run_sandbox(Message::decode(message).unwrap()),
            "CreateContainer" => self.create(Message::decode(message).unwrap()),
            "StartContainer" => {
                let request = cri::StartContainerRequest::decode(message).unwrap();
                self.calls.push(format!("start {}", self.named(&request.container_id)));
                let found = self.containers.iter_mut().find(|it| it.id == request.container_id);
                let found = found.ok_or_else(|| Status::not_found("gone"))?;
                found.state = ContainerState::ContainerRunning.into();
                found.started_at = now();
                Vec::new()
            }
            "StopPodSandbox" => {
                let request = cri::StopPodSandboxRequest::decode(message).unwrap();
                self.calls.push("stop sandbox".to_owned());
                let id = request.pod_sandbox_id;
                self.containers
                    .iter_mut()
                    .filter(|it| self.homes[&it.id] == id)
                    .for_each(|it| end(it, 137));
                let found = self.sandboxes.iter_mut().find(|it| it.id == id);
                found.unwrap().state = PodSandboxState::SandboxNotready.into();
                Vec::new()
            }
            "RemoveContainer" => {
                let request = cri::RemoveContainerRequest::decode(message).unwrap();
                self.calls.push(format!("remove {}", self.named(&request.container_id)));
                self.containers.retain(|it| it.id != request.container_id);
                Vec::new()
            }
            "RemovePodSandbox" => {
                let request = cri::RemovePodSandboxRequest::decode(message).unwrap();
                self.calls.push("remove sandbox".to_owned());
                self.sandboxes.retain(|it| it.id != request.pod_sandbox_id);
                Vec::new()
            }
            "UpdateContainerResources" => {
                let request = cri::UpdateContainerResourcesRequest::decode(message).unwrap();
                let id = request.container_id;
                let linux = request.linux.unwrap();
                let memory = linux.memory_limit_in_bytes;
                self.calls.push(format!("resize {} {memory}", self.named(&id)));
                let found = self.containers.iter_mut().find(|it| it.id == id).unwrap();
                let resources = cri::ContainerResources { linux: Some(linux), windows: None };
                found.resources = Some(resources);
                Vec::new()
            }
            "ExecSync" => {
                let request = cri::ExecSyncRequest::decode(message).unwrap();
                self.calls.push(format!("exec {}", request.cmd.join(" ")));
                cri::ExecSyncResponse::default().encode_to_vec()
            }
            _ => return Err(Status::unimplemented(call.to_owned())),
        })
    }

    fn stop(&mut self, request: &cri::StopContainerRequest) -> Option<Result<Vec<u8>, Status>> {
        let name = self.named(&request.container_id);
        self.calls.push(format!("stop {name} {}", request.timeout));
        if self.stubborn.is_some_and(|limit| request.timeout >= limit) {
            return None;
        }
        let found = self.containers.iter_mut().find(|it| it.id == request.container_id);
        found.into_iter().for_each(|it| end(it, 143));
        Some(Ok(Vec::new()))
    }

    fn run_sandbox(&mut self, request: cri::RunPodSandboxRequest) -> Vec<u8> {
        let config = request.config.unwrap();
        let metadata = config.metadata.unwrap();
        self.calls.push(format!("run sandbox {}", metadata.attempt));
        self.made += 1;
        let id = format!("box-{}", self.made);
        self.sandboxes.push(cri::PodSandbox {
            id: id.clone(),
            metadata: Some(metadata),
            state: PodSandboxState::SandboxReady.into(),
            created_at: now(),
            labels: config.labels,
            annotations: config.annotations,
            ..cri::PodSandbox::default()
        });
        cri::RunPodSandboxResponse { pod_sandbox_id: id }.encode_to_vec()
    }

    fn create(&mut self, request: cri::CreateContainerRequest) -> Vec<u8> {
        let config = request.config.unwrap();
        self.configs.push(config.clone());
        self.made += 1;
        let id = format!("container-{}", self.made);
        self.homes.insert(id.clone(), request.pod_sandbox_id);
        let status = cri::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata,
            state: ContainerState::ContainerCreated.into(),
            created_at: now(),
            image: config.image,
            labels: config.labels,
            annotations: config.annotations,
            ..cri::ContainerStatus::default()
        };
        self.calls.push(format!("create {}", shown(&status)));
        self.containers.push(status);
        cri::CreateContainerResponse { container_id: id }.encode_to_vec()
    }

    fn stats(&self, status: &cri::ContainerStatus) -> cri::ContainerStats {
        let used = self.layers.get(name_of(status)).map(|&value| cri::UInt64Value { value });
        let labels = status.labels.clone();
        cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes { labels, ..Default::default() }),
            writable_layer: Some(cri::FilesystemUsage { used_bytes: used, ..Default::default() }),
            ..cri::ContainerStats::default()
        }
    }

    fn listed(&self, status: &cri::ContainerStatus) -> cri::Container {
        cri::Container {
            id: status.id.clone(),
            pod_sandbox_id: self.homes[&status.id].clone(),
            metadata: status.metadata.clone(),
            state: status.state,
            labels: status.labels.clone(),
            ..cri::Container::default()
        }
    }
}

fn has(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}
