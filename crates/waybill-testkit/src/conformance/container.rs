//! The container in which the cases run their sessions.

use std::collections::BTreeMap;

use tonic::{Response, Status, transport::Channel};
use waybill_proto::cri::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ExecRequest, ImageSpec, KeyValue,
    LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig,
    PodSandboxMetadata, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest,
    StatusRequest, StopPodSandboxRequest, runtime_service_client::RuntimeServiceClient,
};

use super::{
    runtime::{ConformanceError, Stamp, Target},
    session::{self, Output},
};

/// A variable of the container itself, which sessions see and may override.
pub(super) const BASELINE: (&str, &str) = ("CONFORMANCE_BASELINE", "from the container");

/// Prints the environment as the kernel keeps it: `NAME=value`, each ended by NUL.
const PRINT: &[&str] = &["/busybox", "cat", "/proc/self/environ"];

/// An environment, by name; a name that came twice is an error.
pub(super) type Variables = BTreeMap<Vec<u8>, Vec<u8>>;

/// A running container that does nothing.
pub(super) struct Container {
    client: RuntimeServiceClient<Channel>,
    sandbox: String,
    id: String,
    stamp: Option<Stamp>,
}

impl Container {
    pub(super) async fn start(target: &Target) -> Result<Self, ConformanceError> {
        let mut client = target.connect().await?;
        let sandbox_config = sandbox_config();
        let request = RunPodSandboxRequest {
            config: Some(sandbox_config.clone()),
            runtime_handler: target.handler.clone(),
        };
        let sandbox = called("RunPodSandbox", client.run_pod_sandbox(request).await)?;
        let stamp = target.stamp.clone();
        let (sandbox, id) = (sandbox.pod_sandbox_id, String::new());
        let mut container = Self { client, sandbox, id, stamp };
        if let Err(error) = container.create(target, sandbox_config).await {
            // The first error is the one to tell.
            let _ = container.remove().await;
            return Err(error);
        }
        Ok(container)
    }

    async fn create(
        &mut self,
        target: &Target,
        sandbox_config: PodSandboxConfig,
    ) -> Result<(), ConformanceError> {
        let request = CreateContainerRequest {
            pod_sandbox_id: self.sandbox.clone(),
            config: Some(container_config(target)),
            sandbox_config: Some(sandbox_config),
        };
        self.id =
            called("CreateContainer", self.client.create_container(request).await)?.container_id;
        let request = StartContainerRequest { container_id: self.id.clone() };
        called("StartContainer", self.client.start_container(request).await)?;
        Ok(())
    }

    /// Stops and removes the sandbox and all in it.
    pub(super) async fn remove(mut self) -> Result<(), ConformanceError> {
        let pod_sandbox_id = self.sandbox;
        let stop = StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
        called("StopPodSandbox", self.client.stop_pod_sandbox(stop).await)?;
        let remove = RemovePodSandboxRequest { pod_sandbox_id };
        called("RemovePodSandbox", self.client.remove_pod_sandbox(remove).await)?;
        Ok(())
    }

    /// Whether the runtime says that it knows `ExecRequest.envs`, or does without saying so.
    pub(super) async fn supports_variables(&self) -> Result<bool, ConformanceError> {
        let plain = self.variables(&[]).await.map_err(ConformanceError::Session)?;
        if plain.is_empty() {
            return Err(ConformanceError::Session("it has no environment at all".to_owned()));
        }
        let probe = self.variables(&[("CONFORMANCE_PROBE", b"1")]).await;
        Ok(probe.is_ok_and(|seen| seen.contains_key("CONFORMANCE_PROBE".as_bytes()))
            || self.advertises_variables().await)
    }

    /// EXEC-12, OP-9: the feature in the runtime's status.
    pub(super) async fn advertises_variables(&self) -> bool {
        let status = self.client.clone().status(StatusRequest::default()).await;
        status.is_ok_and(|status| {
            status.into_inner().features.is_some_and(|features| features.exec_envs)
        })
    }

    /// The environment that a session with these variables sees.
    pub(super) async fn variables(&self, set: &[(&str, &[u8])]) -> Result<Variables, String> {
        self.variables_of(PRINT, set).await
    }

    /// The environment that a command prints in a session with these variables.
    pub(super) async fn variables_of(
        &self,
        command: &[&str],
        set: &[(&str, &[u8])],
    ) -> Result<Variables, String> {
        let output = session::run(&self.session_url(command, set).await?).await?;
        let mut variables = parse(&output)?;
        if let Some(stamp) = &self.stamp {
            variables.remove(stamp.adds.as_bytes());
        }
        Ok(variables)
    }

    /// The address at which a session with these variables waits for its client.
    pub(super) async fn session_url(
        &self,
        command: &[&str],
        set: &[(&str, &[u8])],
    ) -> Result<String, String> {
        let (cmd, set) = match &self.stamp {
            Some(stamp) => ((stamp.make)(command, set), &[][..]),
            None => (command.iter().map(|&part| part.to_owned()).collect(), set),
        };
        let envs = set
            .iter()
            .map(|(key, value)| KeyValue { key: (*key).to_owned(), value: value.to_vec() })
            .collect();
        let request = ExecRequest {
            container_id: self.id.clone(),
            cmd,
            stdout: true,
            stderr: true,
            envs,
            ..ExecRequest::default()
        };
        let answer = self.client.clone().exec(request).await;
        answer
            .map(|answer| answer.into_inner().url)
            .map_err(|status| format!("Exec: {}: {}", status.code(), status.message()))
    }

    /// The environment of the container's own first process.
    pub(super) async fn own_variables(&self) -> Result<Variables, String> {
        self.variables_of(&["/busybox", "cat", "/proc/1/environ"], &[]).await
    }
}

fn parse(output: &Output) -> Result<Variables, String> {
    let mut variables = Variables::new();
    for entry in output.stdout.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()) {
        let split = entry.iter().position(|&byte| byte == b'=');
        let (name, value) = entry.split_at(split.unwrap_or(entry.len()));
        let value = value.strip_prefix(b"=").unwrap_or_default();
        if variables.insert(name.to_vec(), value.to_vec()).is_some() {
            return Err(format!("{} is there twice", String::from_utf8_lossy(name)));
        }
    }
    Ok(variables)
}

/// On the machine's network, because a runtime without network plugins has no other; and with
/// processes of its own, so that the container's first one is number 1.
fn namespaces() -> NamespaceOption {
    NamespaceOption {
        network: NamespaceMode::Node.into(),
        pid: NamespaceMode::Container.into(),
        ..NamespaceOption::default()
    }
}

fn sandbox_config() -> PodSandboxConfig {
    let security = LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces()),
        ..LinuxSandboxSecurityContext::default()
    };
    let linux = LinuxPodSandboxConfig {
        security_context: Some(security),
        ..LinuxPodSandboxConfig::default()
    };
    let metadata = PodSandboxMetadata {
        name: "exec-env-conformance".to_owned(),
        uid: format!("conformance-{}", std::process::id()),
        namespace: "default".to_owned(),
        attempt: 0,
    };
    PodSandboxConfig { metadata: Some(metadata), linux: Some(linux), ..PodSandboxConfig::default() }
}

fn container_config(target: &Target) -> ContainerConfig {
    let (key, value) = BASELINE;
    let security = LinuxContainerSecurityContext {
        namespace_options: Some(namespaces()),
        ..LinuxContainerSecurityContext::default()
    };
    let linux = LinuxContainerConfig {
        security_context: Some(security),
        ..LinuxContainerConfig::default()
    };
    let image = ImageSpec { image: target.image.clone(), ..ImageSpec::default() };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "sleeper".to_owned(), attempt: 0 }),
        image: Some(image),
        command: ["/busybox", "sleep", "3600"].map(str::to_owned).to_vec(),
        envs: vec![KeyValue { key: key.to_owned(), value: value.as_bytes().to_vec() }],
        linux: Some(linux),
        ..ContainerConfig::default()
    }
}

fn called<T>(
    step: &'static str,
    answer: Result<Response<T>, Status>,
) -> Result<T, ConformanceError> {
    answer
        .map(Response::into_inner)
        .map_err(|status| ConformanceError::Refused { step, status: Box::new(status) })
}
