//! CRI calls, in the few shapes that are needed here.

use std::path::PathBuf;

use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use waybill_proto::{
    cri::{
        AttachRequest, Container, ContainerConfig, ContainerMetadata, ContainerStatus,
        ContainerStatusRequest, CreateContainerRequest, ExecSyncRequest, ImageSpec,
        LinuxPodSandboxConfig, LinuxSandboxSecurityContext, ListContainersRequest,
        ListPodSandboxRequest, NamespaceMode, NamespaceOption, PodSandboxConfig,
        PodSandboxMetadata, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
        StartContainerRequest, StopContainerRequest, runtime_service_client::RuntimeServiceClient,
    },
    runtime::{
        ImportRequest, ListSessionsRequest, Session, images_client::ImagesClient,
        sessions_client::SessionsClient,
    },
};
use waybill_testkit::runtime::Setup;

use super::image;

/// Longer than a script takes that ends when it is told.
const GRACE_SECONDS: i64 = 50;

/// What commands in an elder end with.
const ELDERS_CODE: i32 = 42;

/// How many sessions that have ended a runtime remembers.
const MOST_KNOWN: usize = 1000;

#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    runtime: RuntimeServiceClient<Channel>,
    cgroup: String,
    logs: PathBuf,
}

/// What a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// Ends by itself soon.
    Short,
    /// Ends when it is told.
    Steady,
    /// Does nothing.
    Elder,
    /// Does what is typed.
    Listener,
}

/// A container that is there all the time.
pub(crate) struct Elder {
    pub(crate) sandbox: String,
    pub(crate) id: String,
    started_at: i64,
    pub(crate) log: PathBuf,
}

impl Client {
    pub(crate) async fn connect(setup: &Setup, cgroup: &str) -> Self {
        let address = format!("unix://{}", setup.socket().display());
        let endpoint = Endpoint::try_from(address).expect("an absolute path");
        let channel = endpoint.connect().await.expect("the runtime takes connections");
        let runtime = RuntimeServiceClient::new(channel.clone());
        let logs = setup.state_dir().join("logs");
        Self { channel, runtime, cgroup: cgroup.to_owned(), logs }
    }

    pub(crate) async fn import(&self, archive: Vec<u8>) {
        let pieces: Vec<_> = archive
            .chunks(100_000)
            .map(|data| ImportRequest { data: data.to_vec(), ..ImportRequest::default() })
            .collect();
        let mut images = ImagesClient::new(self.channel.clone());
        let imported = images.import(futures_util::stream::iter(pieces)).await;
        imported.expect("a good archive");
    }

    pub(crate) async fn start_elder(&self, name: &str, script: Script) -> Elder {
        let sandbox = self.run_sandbox(name).await.expect("a sandbox");
        let id = self.create(&sandbox, name, script, 0).await.expect("a container");
        self.start(&id).await.expect("a start");
        let started_at = self.status(&id).await.expect("a status").started_at;
        let log = self.logs.join(name).join(format!("{name}.log"));
        Elder { sandbox, id, started_at, log }
    }

    /// It runs, was never started again, and takes commands.
    pub(crate) async fn check_elder(&self, elder: &Elder) {
        let started_at = self.status(&elder.id).await.expect("a status").started_at;
        assert_eq!(started_at, elder.started_at);
        let told = self.exec(&elder.id, ELDERS_CODE).await;
        assert_eq!(told.expect("the elder runs"), ELDERS_CODE);
    }

    pub(crate) async fn sessions(&self) -> Vec<Session> {
        let mut sessions = SessionsClient::new(self.channel.clone());
        let list = sessions.list_sessions(ListSessionsRequest::default()).await;
        list.expect("the runtime answers").into_inner().sessions
    }

    /// After the given round, when all but the elder have ended: no session goes on, and those of the elder are known by their codes.
    pub(crate) async fn check_sessions(&self, elder: &Elder, round: usize) {
        let sessions = self.sessions().await;
        let of_elder: Vec<_> = sessions.iter().filter(|it| it.container_id == elder.id).collect();
        assert!(of_elder.iter().all(|it| it.exit_code == ELDERS_CODE), "{of_elder:#?}");
        // The oldest may be forgotten.
        assert!(of_elder.len() > round || sessions.len() >= MOST_KNOWN, "{of_elder:#?}");
        let running: Vec<_> = sessions.iter().filter(|it| it.finished_at == 0).collect();
        assert!(running.is_empty(), "{running:#?}");
        assert!(sessions.iter().all(|it| it.finished_at >= it.started_at), "{sessions:#?}");
    }

    pub(crate) async fn run_sandbox(&self, name: &str) -> Result<String, Status> {
        let request = RunPodSandboxRequest {
            config: Some(self.sandbox_config(name)),
            ..RunPodSandboxRequest::default()
        };
        Ok(self.runtime.clone().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    pub(crate) async fn create(
        &self,
        sandbox: &str,
        name: &str,
        script: Script,
        code: i32,
    ) -> Result<String, Status> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(ContainerConfig {
                metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 0 }),
                image: Some(ImageSpec { image: image::NAME.to_owned(), ..ImageSpec::default() }),
                command: script.command(code),
                log_path: format!("{name}.log"),
                stdin: script == Script::Listener,
                ..ContainerConfig::default()
            }),
            sandbox_config: None,
        };
        Ok(self.runtime.clone().create_container(request).await?.into_inner().container_id)
    }

    pub(crate) async fn start(&self, id: &str) -> Result<(), Status> {
        let request = StartContainerRequest { container_id: id.to_owned() };
        self.runtime.clone().start_container(request).await.map(drop)
    }

    /// Runs a command that ends with `code`; returns the code that the runtime tells.
    pub(crate) async fn exec(&self, id: &str, code: i32) -> Result<i32, Status> {
        self.exec_command(id, shell(&format!("exit {code}"))).await
    }

    /// The same, once a steady container knows what to do when it is told to end.
    pub(crate) async fn exec_when_ready(&self, id: &str, code: i32) -> Result<i32, Status> {
        let script = format!("while ! test -e /ready; do sleep 0.01; done; exit {code}");
        self.exec_command(id, shell(&script)).await
    }

    pub(crate) async fn exec_command(&self, id: &str, cmd: Vec<String>) -> Result<i32, Status> {
        let request = ExecSyncRequest { container_id: id.to_owned(), cmd, timeout: 0 };
        Ok(self.runtime.clone().exec_sync(request).await?.into_inner().exit_code)
    }

    pub(crate) async fn stop(&self, id: &str) -> Result<(), Status> {
        let request = StopContainerRequest { container_id: id.to_owned(), timeout: GRACE_SECONDS };
        self.runtime.clone().stop_container(request).await.map(drop)
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<(), Status> {
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        self.runtime.clone().remove_container(request).await.map(drop)
    }

    pub(crate) async fn status(&self, id: &str) -> Result<ContainerStatus, Status> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let response = self.runtime.clone().container_status(request).await?.into_inner();
        Ok(response.status.expect("an answer holds a status"))
    }

    pub(crate) async fn list(&self) -> Vec<Container> {
        let list = self.runtime.clone().list_containers(ListContainersRequest::default()).await;
        list.expect("the runtime answers").into_inner().containers
    }

    /// Where the streams of a container are.
    pub(crate) async fn attach(&self, id: &str) -> String {
        let request = AttachRequest {
            container_id: id.to_owned(),
            stdin: true,
            stdout: true,
            ..AttachRequest::default()
        };
        self.runtime.clone().attach(request).await.expect("it can be attached to").into_inner().url
    }

    pub(crate) async fn remove_sandboxes_but(&self, kept: &[&str]) {
        let list = self.runtime.clone().list_pod_sandbox(ListPodSandboxRequest::default()).await;
        for sandbox in list.expect("the runtime answers").into_inner().items {
            if !kept.contains(&sandbox.id.as_str()) {
                let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.id };
                let removed = self.runtime.clone().remove_pod_sandbox(request).await;
                removed.expect("a sandbox can be removed");
            }
        }
    }

    fn sandbox_config(&self, name: &str) -> PodSandboxConfig {
        let options = NamespaceOption {
            network: NamespaceMode::Pod.into(),
            // Each kind is met in some round.
            pid: if name.ends_with('1') { NamespaceMode::Pod } else { NamespaceMode::Container }
                .into(),
            ipc: NamespaceMode::Pod.into(),
            ..NamespaceOption::default()
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: name.to_owned(),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: self.logs.join(name).display().to_string(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(options),
                    ..LinuxSandboxSecurityContext::default()
                }),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        }
    }
}

impl Script {
    fn command(self, code: i32) -> Vec<String> {
        match self {
            Self::Short => shell(&format!("sleep 0.0{}; exit {code}", code % 10)),
            Self::Steady => {
                let told = format!("trap 'exit {code}' TERM");
                shell(&format!("{told}; : > /ready; while :; do sleep 0.01; done"))
            }
            // One process that stays the same.
            Self::Elder => ["sleep", "100000"].map(str::to_owned).to_vec(),
            Self::Listener => vec!["sh".to_owned()],
        }
    }
}

fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}
