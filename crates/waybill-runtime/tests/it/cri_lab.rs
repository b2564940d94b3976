//! A runtime behind its socket, with a busybox image, and a count of everything that could be left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use waybill_proto::{
    cri::{
        Container, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus,
        ContainerStatusRequest, CreateContainerRequest, ExecSyncRequest, ExecSyncResponse,
        ImageSpec, LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
        LinuxSandboxSecurityContext, ListContainersRequest, NamespaceMode, NamespaceOption,
        PodSandboxConfig, PodSandboxMetadata, RemovePodSandboxRequest, RunPodSandboxRequest,
        StartContainerRequest, image_service_client::ImageServiceClient,
        runtime_service_client::RuntimeServiceClient,
    },
    runtime::{
        ExportRequest, ImportRequest, images_client::ImagesClient, sessions_client::SessionsClient,
    },
};
use waybill_runtime::{
    cri::{Config, Server, UnsetSeccompProfile},
    engine::Spawner,
    image::build::ImageBuilder,
};
use waybill_testkit::remains::Remains;

use crate::lab::{BUSYBOX, can_run_containers, eventually, hierarchies};

pub(crate) const IMAGE: &str = "localhost/busybox:1";

const APPLETS: &[&str] = &[
    "cat", "df", "echo", "env", "false", "grep", "head", "hostname", "id", "kill", "ls", "mkdir",
    "mknod", "mount", "nc", "ps", "pwd", "sh", "sleep", "stat", "test", "touch", "true", "wc",
    "yes",
];

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A spawner as any process would start it.
pub(crate) fn spawner() -> Spawner {
    Spawner::start_program(Path::new(env!("CARGO_BIN_EXE_waybill-test-spawner"))).unwrap()
}

pub(crate) struct CriLab {
    directory: TempDir,
    pub(crate) cgroup: String,
    server: Option<Server>,
    pub(crate) exec_env: Vec<(String, Vec<u8>)>,
    pub(crate) unset_seccomp_profile: UnsetSeccompProfile,
}

impl CriLab {
    /// `None` when this machine cannot run containers.
    pub(crate) async fn open() -> Option<Self> {
        if !can_run_containers() {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut lab = Self {
            directory: tempfile::tempdir().unwrap(),
            cgroup: format!("/waybill-cri-test-{}-{number}", std::process::id()),
            server: None,
            exec_env: Vec::new(),
            unset_seccomp_profile: UnsetSeccompProfile::default(),
        };
        lab.start().await;
        lab.import(&busybox(), "").await;
        Some(lab)
    }

    pub(crate) async fn start(&mut self) {
        self.start_with(spawner()).await;
    }

    pub(crate) async fn start_with(&mut self, spawner: Spawner) {
        let config = Config {
            listen: self.path("runtime.sock"),
            state_dir: self.path("state"),
            run_dir: self.path("run"),
            streaming_address: "127.0.0.1:0".parse().unwrap(),
            exec_env: self.exec_env.clone(),
            container_open_files: None,
            unset_seccomp_profile: self.unset_seccomp_profile,
            clock: Arc::new(|| i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap()),
        };
        self.server = Some(Server::start(config, spawner).await.unwrap());
    }

    pub(crate) async fn stop(&mut self) {
        self.server.take().unwrap().stop().await;
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) async fn channel(&self) -> Channel {
        let address = format!("unix://{}", self.path("runtime.sock").display());
        Endpoint::try_from(address).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel().await).max_decoding_message_size(64 << 20)
    }

    pub(crate) async fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel().await)
    }

    pub(crate) async fn sessions(&self) -> SessionsClient<Channel> {
        SessionsClient::new(self.channel().await)
    }

    pub(crate) async fn archives(&self) -> ImagesClient<Channel> {
        ImagesClient::new(self.channel().await)
    }

    pub(crate) async fn import(&self, archive: &[u8], name: &str) -> Vec<String> {
        let mut messages: Vec<_> = archive
            .chunks(100_000)
            .map(|piece| ImportRequest { data: piece.to_vec(), ..ImportRequest::default() })
            .collect();
        messages[0].name = name.to_owned();
        let request = futures_util::stream::iter(messages);
        let response = self.archives().await.import(request).await.unwrap().into_inner();
        response.images.into_iter().flat_map(|image| image.names).collect()
    }

    pub(crate) async fn export(&self, image: &str) -> Vec<u8> {
        let request = ExportRequest { image: image.into() };
        let mut pieces = self.archives().await.export(request).await.unwrap().into_inner();
        let mut archive = Vec::new();
        while let Some(piece) = pieces.message().await.unwrap() {
            archive.extend(piece.data);
        }
        archive
    }

    /// A sandbox with a network, IPC and host name of its own, whose containers have their own processes.
    pub(crate) fn sandbox_config(&self, name: &str) -> PodSandboxConfig {
        let options = NamespaceOption {
            network: NamespaceMode::Pod.into(),
            pid: NamespaceMode::Container.into(),
            ipc: NamespaceMode::Pod.into(),
            ..NamespaceOption::default()
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.into(),
                uid: format!("uid-{name}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: format!("host-{name}"),
            log_directory: self.path("logs").join(name).display().to_string(),
            labels: [("app".to_owned(), name.to_owned())].into(),
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

    pub(crate) async fn run_sandbox(&self, config: PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest { config: Some(config), ..Default::default() };
        self.runtime().await.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id
    }

    pub(crate) async fn create(&self, sandbox: &str, config: ContainerConfig) -> String {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: None,
        };
        self.runtime().await.create_container(request).await.unwrap().into_inner().container_id
    }

    pub(crate) async fn start_container(&self, id: &str) {
        let request = StartContainerRequest { container_id: id.into() };
        self.runtime().await.start_container(request).await.unwrap();
    }

    /// A container that runs, in a sandbox of its own.
    pub(crate) async fn run(&self, name: &str, config: ContainerConfig) -> (String, String) {
        let sandbox = self.run_sandbox(self.sandbox_config(name)).await;
        let container = self.create(&sandbox, config).await;
        self.start_container(&container).await;
        (sandbox, container)
    }

    pub(crate) async fn status(&self, id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: id.into(), verbose: false };
        let response = self.runtime().await.container_status(request).await.unwrap();
        response.into_inner().status.unwrap()
    }

    /// Waits until the container has ended.
    pub(crate) async fn ended(&self, id: &str) -> ContainerStatus {
        let end = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.status(id).await;
            if status.state() == ContainerState::ContainerExited {
                return status;
            }
            assert!(std::time::Instant::now() < end, "never ended: {status:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn exec(&self, id: &str, command: &[&str]) -> ExecSyncResponse {
        let request = ExecSyncRequest {
            container_id: id.into(),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: 20,
        };
        self.runtime().await.exec_sync(request).await.unwrap().into_inner()
    }

    /// What a shell script prints inside the container.
    pub(crate) async fn sh(&self, id: &str, script: &str) -> String {
        let response = self.exec(id, &["sh", "-c", script]).await;
        assert_eq!(response.exit_code, 0, "{}", String::from_utf8_lossy(&response.stderr));
        String::from_utf8(response.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) async fn remove(&self, sandbox: &str) {
        let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.into() };
        self.runtime().await.remove_pod_sandbox(request).await.unwrap();
    }

    /// Ids of all containers of this name.
    pub(crate) async fn containers_named(&self, name: &str) -> Vec<String> {
        let list = self.runtime().await.list_containers(ListContainersRequest::default()).await;
        let containers = list.unwrap().into_inner().containers.into_iter();
        let named = |it: &Container| it.metadata.as_ref().is_some_and(|it| it.name == name);
        containers.filter(named).map(|container| container.id).collect()
    }

    /// As somebody with `kill -9` does.
    pub(crate) fn kill_monitor(&self, id: &str) {
        self.signal_monitor(id, rustix::process::Signal::KILL);
    }

    pub(crate) fn signal_monitor(&self, id: &str, signal: rustix::process::Signal) {
        let directory = self.path("run/containers").canonicalize().unwrap().join(id);
        for pid in processes_in(&directory) {
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
        }
    }

    /// Stops the runtime; fails if anything of it is left on the machine.
    pub(crate) async fn close(mut self) {
        self.stop().await;
        let run = self.path("run");
        for below in ["containers", "sandboxes", "cri/containers", "cri/sandboxes"] {
            let left: Vec<_> = fs::read_dir(run.join(below)).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
        let written = fs::read_dir(self.path("state/containers")).map(Iterator::count);
        assert_eq!(written.unwrap_or(0), 0);
        for hierarchy in hierarchies() {
            let cgroup = hierarchy.join(self.cgroup.trim_start_matches('/'));
            assert!(!cgroup.exists(), "{}", cgroup.display());
        }
        let below = format!("{}/", run.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(&below)).collect();
        assert!(left.is_empty(), "{left:?}");
        eventually("no process of the lab is left", || processes_in(&run).is_empty()).await;
        // The spawner holds a lock in it until it has ended.
        let flags = rustix::mount::UnmountFlags::empty();
        eventually("its run directory is free", || rustix::mount::unmount(&run, flags).is_ok())
            .await;
    }
}

/// A test that fails leaves nothing behind either.
impl Drop for CriLab {
    fn drop(&mut self) {
        drop(self.server.take());
        Remains::of(self.directory.path(), &self.cgroup).clear_if_panicking();
    }
}

/// A container that sleeps until it is killed.
pub(crate) fn sleeper(name: &str) -> ContainerConfig {
    container(name, &["sleep", "1000"])
}

pub(crate) fn container(name: &str, command: &[&str]) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.into(), ..ImageSpec::default() }),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        log_path: format!("{name}/0.log"),
        ..ContainerConfig::default()
    }
}

pub(crate) fn with_context(
    config: ContainerConfig,
    context: LinuxContainerSecurityContext,
) -> ContainerConfig {
    let linux = LinuxContainerConfig { resources: None, security_context: Some(context) };
    ContainerConfig { linux: Some(linux), ..config }
}

fn busybox() -> Vec<u8> {
    let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000::/home/web:/bin/sh\n";
    let group = "root:x:0:\nweb:x:1000:\nextra:x:50:web\n";
    let image = ImageBuilder::new()
        .directory("tmp", 0o1777)
        .directory("etc", 0o755)
        .directory("root", 0o700)
        .file("bin/busybox", 0o755, fs::read(BUSYBOX).unwrap())
        .file("etc/passwd", 0o644, passwd)
        .file("etc/group", 0o644, group)
        .variable("PATH", "/bin")
        .variable("FROM", "image")
        .command(&["sh"]);
    let image = APPLETS
        .iter()
        .fold(image, |image, applet| image.symlink(&format!("bin/{applet}"), "busybox"));
    image.archive(IMAGE).unwrap()
}

/// Monitors work in their container's directory.
fn processes_in(run: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|pid| {
            let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
            pid.parse::<u32>().is_ok() && cwd.is_ok_and(|cwd| cwd.starts_with(run))
        })
        .collect()
}
