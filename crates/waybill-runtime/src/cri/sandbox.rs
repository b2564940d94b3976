//! The life of a pod sandbox.

use std::{path::PathBuf, sync::Arc};

use tracing::info;
use waybill_proto::cri::{
    ContainerEventType, NamespaceMode, PodSandboxConfig, PodSandboxFilter, PodSandboxMetadata,
    PodSandboxStatusResponse, UpdatePodSandboxResourcesRequest,
};

use super::{
    Cri, convert,
    error::{CriError, Result},
    files, filter,
    record::{self, NamespacePaths, SandboxRecord},
    spec,
    status::HANDLERS,
    store::{Name, Sandbox, new_id},
};
use crate::{
    IdMap,
    engine::{EngineError, NamespaceMode as Mode, SandboxRequest},
};

/// Above the cgroups of sandboxes that do not say where theirs stands.
const CGROUP_ROOT: &str = "/waybill";
/// The longest host name that Linux takes.
const HOSTNAME_BYTES: usize = 64;

impl Cri {
    /// Makes a sandbox; a failure leaves nothing behind.
    pub(super) async fn run_sandbox(
        self: Arc<Self>,
        config: PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<String> {
        let metadata = self.check_sandbox(&config, &runtime_handler)?;
        let id = new_id();
        let reservation = self.store.reserve(Name::of_sandbox(&metadata), &id)?;
        let record = match self.make_sandbox(&id, config, runtime_handler).await {
            Ok(record) => record,
            Err(error) => {
                self.clear_sandbox(&id).await;
                return Err(error);
            }
        };
        self.store.add_sandbox(record.clone());
        reservation.keep();
        info!(
            sandbox = id,
            pod = metadata.name,
            namespace = metadata.namespace,
            "sandbox is ready"
        );
        self.tell_sandbox(&record, ContainerEventType::ContainerCreatedEvent);
        self.tell_sandbox(&record, ContainerEventType::ContainerStartedEvent);
        Ok(id)
    }

    /// Kills what runs in a sandbox, and gives its namespaces back.
    pub(super) async fn stop_sandbox(self: Arc<Self>, id: String) -> Result<()> {
        let sandbox = match self.store.sandbox(&id) {
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        let _ending = sandbox.announce_end();
        let _making = sandbox.lifecycle.lock().await;
        self.stop_locked_sandbox(&sandbox).await
    }

    /// Removes a sandbox with all its containers.
    pub(super) async fn remove_sandbox(self: Arc<Self>, id: String) -> Result<()> {
        let sandbox = match self.store.sandbox(&id) {
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        let _ending = sandbox.announce_end();
        let _making = sandbox.lifecycle.lock().await;
        let record = sandbox.record();
        if self.store.sandbox(&record.id).is_err() {
            // Somebody was faster.
            return Ok(());
        }
        self.stop_locked_sandbox(&sandbox).await?;
        for container in self.store.containers_of(&record.id) {
            let id = container.record().id;
            Arc::clone(&self).remove_container(id).await?;
        }
        // Once more: the cgroups of its containers were in the way before.
        self.unmake_sandbox(&record.id).await?;
        let directory = self.sandbox_dir(&record.id);
        self.blocking(move || files::remove(&directory)).await?;
        self.store.remove_sandbox(&record.id);
        info!(sandbox = record.id, "sandbox is removed");
        self.tell_sandbox(&sandbox.record(), ContainerEventType::ContainerDeletedEvent);
        Ok(())
    }

    pub(super) fn list_sandboxes(
        &self,
        filter: &PodSandboxFilter,
    ) -> Vec<waybill_proto::cri::PodSandbox> {
        let records = self.store.sandboxes().into_iter().map(|sandbox| sandbox.record());
        let unknown = self.store.unknown_sandboxes().into_iter().map(|it| it.shown.clone());
        let all = records.map(|record| convert::sandbox(&record)).chain(unknown);
        all.filter(|shown| filter::sandbox(filter, shown)).collect()
    }

    pub(super) fn sandbox_status(
        &self,
        id: &str,
        verbose: bool,
    ) -> Result<PodSandboxStatusResponse> {
        let record = match (self.store.sandbox(id), self.store.unknown_sandbox(id)) {
            (Err(_), Some(unknown)) => {
                return Ok(unknown.status(self.statuses_in(&unknown.shown.id), self.now()));
            }
            (sandbox, _) => sandbox?.record(),
        };
        let info = verbose.then(|| ("info".to_owned(), convert::sandbox_info(&record)));
        Ok(PodSandboxStatusResponse {
            status: Some(convert::sandbox_status(&record)),
            info: info.into_iter().collect(),
            containers_statuses: self.statuses_in(&record.id),
            timestamp: self.now(),
        })
    }

    /// The kubelet has changed the pod's cgroup itself; this keeps what it tells about it.
    pub(super) fn update_sandbox(&self, request: UpdatePodSandboxResourcesRequest) -> Result<()> {
        let sandbox = self.store.sandbox(&request.pod_sandbox_id)?;
        let directory = self.sandbox_dir(&sandbox.record().id);
        sandbox.change(
            |record| {
                let linux = record.config.linux.get_or_insert_default();
                linux.overhead = request.overhead.or(linux.overhead.take());
                linux.resources = request.resources.or(linux.resources.take());
            },
            |record| record::write(&directory, record).map_err(CriError::io("write", &directory)),
        )
    }

    /// Everything that can be said before anything is made.
    fn check_sandbox(
        &self,
        config: &PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<PodSandboxMetadata> {
        let metadata = config.metadata.clone().unwrap_or_default();
        if metadata.name.is_empty() || metadata.uid.is_empty() {
            return Err(CriError::invalid("config.metadata needs a name and a uid"));
        }
        if !HANDLERS.contains(&runtime_handler) {
            let known = HANDLERS.join("\", \"");
            let reason = format!("runtime handler {runtime_handler:?} is unknown; use \"{known}\"");
            return Err(CriError::invalid(reason));
        }
        if config.windows.is_some() {
            return Err(CriError::unsupported(
                "a sandbox for Windows",
                "this runtime is for Linux",
            ));
        }
        let name = &config.hostname;
        if name.len() > HOSTNAME_BYTES || name.contains(|c: char| c.is_whitespace() || c == '\0') {
            let reason =
                format!("hostname {name:?}: at most {HOSTNAME_BYTES} bytes, no white space");
            return Err(CriError::invalid(reason));
        }
        let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let options = context.and_then(|it| it.namespace_options.clone()).unwrap_or_default();
        if let Some(context) = context {
            if context.run_as_group.is_some() && context.run_as_user.is_none() {
                return Err(CriError::invalid("run_as_group needs run_as_user"));
            }
            spec::check_sandbox(context, &self.machine)?;
        }
        spec::user_namespace::check_sandbox(&options, &self.machine)?;
        check_modes(&options)?;
        check_ports(config, options.network())?;
        Ok(metadata)
    }

    async fn make_sandbox(
        self: &Arc<Self>,
        id: &str,
        config: PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<SandboxRecord> {
        let parent = config.linux.as_ref().map_or("", |linux| linux.cgroup_parent.as_str());
        let cgroup_parent = if parent.is_empty() {
            PathBuf::from(CGROUP_ROOT).join(id)
        } else {
            PathBuf::from("/").join(parent)
        };
        let mut record = SandboxRecord {
            id: id.to_owned(),
            created_at: self.now(),
            config,
            runtime_handler,
            namespaces: NamespacePaths::default(),
            cgroup_parent,
            stopped: false,
        };
        let options = record.namespace_options();
        let hostname = record.hostname(&self.machine).to_owned();
        let directory = self.sandbox_dir(id);
        let files = (directory.clone(), record.config.clone(), hostname.clone());
        let user = spec::user_namespace::requested(&options)?;
        let isolation = files::Isolation {
            network: options.network(),
            ipc: options.ipc(),
            owner: user.map_or(0, IdMap::root),
        };
        self.making(move || {
            let (directory, config, hostname) = files;
            record::make_directory(&directory).map_err(CriError::io("make", &directory))?;
            make_log_directory(&config.log_directory)?;
            files::make(&directory, &config, &hostname, &isolation)
        })
        .await?;
        let request = SandboxRequest {
            hostname: (options.network() != NamespaceMode::Node).then_some(hostname),
            network: mode(options.network()),
            pid: mode(options.pid()),
            ipc: mode(options.ipc()),
            user,
            sysctls: record.config.linux.as_ref().map(|it| it.sysctls.clone()).unwrap_or_default(),
            cgroup_parent: record.cgroup_parent.clone(),
        };
        record.namespaces = self.engine.create_sandbox(id, &request).await?.into();
        record::write(&directory, &record).map_err(CriError::io("write", &directory))?;
        Ok(record)
    }

    async fn stop_locked_sandbox(self: &Arc<Self>, sandbox: &Sandbox) -> Result<()> {
        let record = sandbox.record();
        self.check_understood(&record.id)?;
        for container in self.store.containers_of(&record.id) {
            self.kill(&container.record().id).await?;
        }
        self.unmake_sandbox(&record.id).await?;
        if record.stopped {
            return Ok(());
        }
        let directory = self.sandbox_dir(&record.id);
        sandbox.change(
            |record| record.stopped = true,
            |record| record::write(&directory, record).map_err(CriError::io("write", &directory)),
        )?;
        info!(sandbox = record.id, "sandbox is stopped");
        self.tell_sandbox(&sandbox.record(), ContainerEventType::ContainerStoppedEvent);
        Ok(())
    }

    pub(super) async fn unmake_sandbox(&self, id: &str) -> Result<()> {
        match self.engine.remove_sandbox(id).await {
            Ok(()) | Err(EngineError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Kubelets make it; `crictl` and tests rely on us.
fn make_log_directory(path: &str) -> Result<()> {
    if path.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(path).map_err(CriError::io("make the log directory", path))
}

fn check_modes(options: &waybill_proto::cri::NamespaceOption) -> Result<()> {
    let good = |mode| matches!(mode, NamespaceMode::Pod | NamespaceMode::Node);
    if !good(options.network()) || !good(options.ipc()) || options.pid() == NamespaceMode::Target {
        let reason = "namespaces of a sandbox are POD or NODE, that of processes also CONTAINER";
        return Err(CriError::invalid(reason));
    }
    Ok(())
}

/// On the machine's network a port is its own mapping. A network of loopback alone cannot have one.
fn check_ports(config: &PodSandboxConfig, network: NamespaceMode) -> Result<()> {
    let mapped = config.port_mappings.iter().find(|port| match network {
        NamespaceMode::Node => port.host_port != 0 && port.host_port != port.container_port,
        _ => port.host_port > 0,
    });
    match mapped {
        None => Ok(()),
        Some(port) => {
            let advice = format!("drop hostPort {}, or use the machine's network", port.host_port);
            Err(CriError::unsupported("a port of the machine", advice))
        }
    }
}

fn mode(mode: NamespaceMode) -> Mode {
    match mode {
        NamespaceMode::Pod => Mode::Pod,
        NamespaceMode::Node => Mode::Node,
        NamespaceMode::Container | NamespaceMode::Target => Mode::Container,
    }
}

#[cfg(test)]
mod tests {
    use waybill_proto::cri::{NamespaceOption, PortMapping};

    use super::*;

    fn ports(host_port: i32) -> PodSandboxConfig {
        let mapping = PortMapping { container_port: 80, host_port, ..PortMapping::default() };
        PodSandboxConfig { port_mappings: vec![mapping], ..PodSandboxConfig::default() }
    }

    #[test]
    fn a_port_that_nobody_would_map_is_refused() {
        let check = |host_port, network| check_ports(&ports(host_port), network).is_ok();
        assert!(check(0, NamespaceMode::Pod));
        assert!(!check(80, NamespaceMode::Pod));
        assert!(check(80, NamespaceMode::Node));
        assert!(!check(8080, NamespaceMode::Node));
    }

    #[test]
    fn namespaces_of_a_sandbox_are_its_own_or_the_machines() {
        let check = |network: NamespaceMode, pid: NamespaceMode| {
            let options = NamespaceOption {
                network: network.into(),
                pid: pid.into(),
                ..NamespaceOption::default()
            };
            check_modes(&options).is_ok()
        };
        assert!(check(NamespaceMode::Pod, NamespaceMode::Container));
        assert!(check(NamespaceMode::Node, NamespaceMode::Node));
        assert!(!check(NamespaceMode::Container, NamespaceMode::Pod));
        assert!(!check(NamespaceMode::Pod, NamespaceMode::Target));
    }
}
