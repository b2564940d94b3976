//! A runtime with a few containers, which counts what is asked of it.

use std::{
    future::ready,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use prost::Message;
use tokio_util::sync::DropGuard;
use tonic::Status;
use waybill_proto::cri::{self, ContainerState};

use crate::fake_grpc::serve;

pub(super) struct FakeRuntime {
    dir: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    _running: DropGuard,
}

/// What the runtime has, and what it was asked.
pub(super) struct State {
    pub(super) exec_envs: bool,
    pub(super) url: String,
    pub(super) containers: Vec<cri::Container>,
    pub(super) log: PathBuf,
    /// How all three kinds of sessions are refused.
    pub(super) refusal: Option<Status>,
    pub(super) calls: Vec<String>,
    pub(super) execs: Vec<cri::ExecRequest>,
    pub(super) attaches: Vec<cri::AttachRequest>,
    pub(super) forwards: Vec<cri::PortForwardRequest>,
}

impl FakeRuntime {
    /// Both containers of the pod run, and one of another pod.
    pub(super) fn start(url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = Arc::new(Mutex::new(State {
            exec_envs: true,
            url: url.to_owned(),
            containers: vec![
                container("c-other", "u-2", "main", ContainerState::ContainerRunning, 9),
                container("c-main", "u-1", "main", ContainerState::ContainerRunning, 2),
                container("c-shell", "u-1", "shell", ContainerState::ContainerRunning, 2),
            ],
            log: dir.path().join("0.log"),
            refusal: None,
            calls: Vec::new(),
            execs: Vec::new(),
            attaches: Vec::new(),
            forwards: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let running = serve(&dir.path().join("cri.sock"), move |call, message| {
            let mut state = shared.lock().unwrap();
            state.calls.push(call.clone());
            ready(state.answer(&call, message))
        });
        Self { dir, state, _running: running }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("cri.sock")
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Changes a container's state.
    pub(super) fn set(&self, id: &str, state: ContainerState) {
        let mut all = self.state();
        let found = all.containers.iter_mut().find(|container| container.id == id).unwrap();
        found.state = state.into();
    }
}

pub(super) fn container(
    id: &str,
    uid: &str,
    name: &str,
    state: ContainerState,
    created_at: i64,
) -> cri::Container {
    let labels = [("io.kubernetes.pod.uid", uid), ("io.kubernetes.container.name", name)];
    cri::Container {
        id: id.to_owned(),
        pod_sandbox_id: format!("s-{uid}"),
        metadata: Some(cri::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
        state: state.into(),
        created_at,
        labels: labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into(),
        ..cri::Container::default()
    }
}

impl State {
    fn answer(&mut self, call: &str, message: Bytes) -> Result<Vec<u8>, Status> {
        Ok(match call {
            "Exec" => {
                let exec = cri::ExecRequest::decode(message).unwrap();
                let running = i32::from(ContainerState::ContainerRunning);
                let mut all = self.containers.iter();
                if !all.any(|found| found.id == exec.container_id && found.state == running) {
                    return Err(Status::unknown("the container has ended"));
                }
                self.execs.push(exec);
                cri::ExecResponse { url: self.url()? }.encode_to_vec()
            }
            "Attach" => {
                self.attaches.push(Message::decode(message).unwrap());
                cri::AttachResponse { url: self.url()? }.encode_to_vec()
            }
            "PortForward" => {
                self.forwards.push(Message::decode(message).unwrap());
                cri::PortForwardResponse { url: self.url()? }.encode_to_vec()
            }
            "ListContainers" => {
                let request = cri::ListContainersRequest::decode(message).unwrap();
                let filter = request.filter.unwrap_or_default();
                let chosen = self.containers.iter().filter(|container| matches(&filter, container));
                cri::ListContainersResponse { containers: chosen.cloned().collect() }
                    .encode_to_vec()
            }
            "ContainerStatus" => {
                let request = cri::ContainerStatusRequest::decode(message).unwrap();
                self.status(&request.container_id)?.encode_to_vec()
            }
            "ListPodSandbox" => {
                let request = cri::ListPodSandboxRequest::decode(message).unwrap();
                let wanted = request.filter.unwrap_or_default().label_selector;
                let uid = wanted.get("io.kubernetes.pod.uid");
                let items =
                    if uid.is_none_or(|uid| uid == "u-1") { vec![sandbox()] } else { vec![] };
                cri::ListPodSandboxResponse { items }.encode_to_vec()
            }
            "Status" => {
                let features =
                    cri::RuntimeFeatures { exec_envs: self.exec_envs, ..Default::default() };
                cri::StatusResponse { features: Some(features), ..Default::default() }
                    .encode_to_vec()
            }
            "ListContainerStats" => cri::ListContainerStatsResponse::default().encode_to_vec(),
            _ => return Err(Status::unimplemented(call)),
        })
    }

    fn url(&self) -> Result<String, Status> {
        match &self.refusal {
            Some(status) => Err(status.clone()),
            None => Ok(self.url.clone()),
        }
    }

    fn status(&self, id: &str) -> Result<cri::ContainerStatusResponse, Status> {
        let container = self.containers.iter().find(|container| container.id == id);
        let container = container.ok_or_else(|| Status::not_found("no such container"))?;
        let status = cri::ContainerStatus {
            id: container.id.clone(),
            state: container.state,
            log_path: self.log.to_str().unwrap().to_owned(),
            ..cri::ContainerStatus::default()
        };
        Ok(cri::ContainerStatusResponse { status: Some(status), ..Default::default() })
    }
}

fn matches(filter: &cri::ContainerFilter, container: &cri::Container) -> bool {
    let labels = &filter.label_selector;
    labels.iter().all(|(label, value)| container.labels.get(label) == Some(value))
        && filter.state.is_none_or(|wanted| wanted.state == container.state)
}

fn sandbox() -> cri::PodSandbox {
    cri::PodSandbox {
        id: "s-u-1".to_owned(),
        metadata: Some(cri::PodSandboxMetadata {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            uid: "u-1".to_owned(),
            attempt: 0,
        }),
        ..cri::PodSandbox::default()
    }
}
