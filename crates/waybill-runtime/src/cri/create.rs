//! How a container comes to be.

use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use oci_spec::image::Config as ImageConfig;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_change, mount_remount};
use tokio::time::timeout;
use tracing::{info, warn};
use waybill_proto::cri::{
    ContainerConfig, ContainerEventType, CreateContainerRequest, KeyValue, NamespaceMode,
};

use super::{
    Cri,
    error::{CriError, Result},
    files,
    record::{self, ContainerRecord, RecordedUser, SandboxRecord},
    sensitive, signals,
    spec::{self, Plan, Rootfs, User},
    store::{Name, Sandbox, new_id},
    volumes,
};
use crate::{
    engine::{ContainerRequest, State, Stdio},
    id_map::UserNamespace,
    image::{Access, Image, ImageName},
};

/// What the creation of a container may take once its sandbox shall end.
const CREATION_GRACE: Duration = Duration::from_secs(2);

impl Cri {
    /// Makes a container whose first process waits for the start; a failure leaves nothing behind.
    pub(super) async fn create_container(
        self: Arc<Self>,
        request: CreateContainerRequest,
    ) -> Result<String> {
        let config =
            request.config.ok_or_else(|| CriError::invalid("the request has no config"))?;
        spec::check_config(&config)?;
        let entry = self.store.sandbox(&request.pod_sandbox_id)?;
        let _making = entry.lifecycle.lock().await;
        let sandbox = entry.record();
        if sandbox.stopped || entry.is_ending() || self.store.sandbox(&sandbox.id).is_err() {
            return Err(CriError::state(format!("sandbox {:?} is not ready", sandbox.id)));
        }
        let id = new_id();
        let metadata = config.metadata.clone().unwrap_or_default();
        let reservation = self.store.reserve(Name::of_container(&sandbox.id, &metadata), &id)?;
        let record = match self.make_container(&id, &entry, config).await {
            Ok(record) => record,
            Err(error) => {
                self.clear_container(&id).await;
                return Err(error);
            }
        };
        self.store.add_container(record);
        reservation.keep();
        info!(container = id, sandbox = sandbox.id, name = metadata.name, "container is created");
        self.tell(&id, ContainerEventType::ContainerCreatedEvent);
        Ok(id)
    }

    async fn make_container(
        self: &Arc<Self>,
        id: &str,
        entry: &Sandbox,
        mut config: ContainerConfig,
    ) -> Result<ContainerRecord> {
        let sandbox = entry.record();
        let wanted = Wanted {
            id: id.to_owned(),
            log: log_path(&sandbox.config.log_directory, &config.log_path)?,
            target_pid: self.target_pid(&config, &sandbox.id)?,
            sandbox,
            variables: std::mem::take(&mut config.envs),
            config,
        };
        let cri = Arc::clone(self);
        let (record, request) = self.making(move || cri.prepare(wanted)).await?;
        self.create_until_the_end(&record.id, request, entry).await?;
        let directory = self.container_dir(&record.id);
        record::write(&directory, &record).map_err(CriError::io("write", &directory))?;
        Ok(record)
    }

    /// Lets the engine make a container, for as long as its sandbox shall live. Whoever shares a PID namespace with a container that is
    /// being made can stop its processes, and the end of a pod must not depend on them.
    async fn create_until_the_end(
        &self,
        id: &str,
        request: ContainerRequest,
        sandbox: &Sandbox,
    ) -> Result<()> {
        let creation = self.engine.create(id, request);
        tokio::pin!(creation);
        tokio::select! {
            created = &mut creation => return Ok(created?),
            () = sandbox.end_announced() => {}
        }
        // More than once: there may have been nothing to end yet.
        loop {
            if let Ok(created) = timeout(CREATION_GRACE, &mut creation).await {
                return Ok(created?);
            }
            warn!(container = id, "a creation that takes too long for the end of its pod is ended");
            self.engine.end_creation(id).await;
        }
    }

    /// Mounts what the container is made of, and makes the request for the engine and the record of it.
    fn prepare(&self, wanted: Wanted) -> Result<(ContainerRecord, ContainerRequest)> {
        let Wanted { id, sandbox, mut config, variables, log, target_pid } = wanted;
        let name = config.image.as_ref().map_or("", |image| image.image.as_str());
        let image = self.images.resolve(name)?;
        let user_namespace = sandbox.user_namespace();
        let rootfs = self.mount_rootfs(&id, &image, user_namespace.as_ref())?;
        make_log_directory(log.as_deref())?;
        let sources = self.mount_images(&id, &mut config.mounts, user_namespace.as_ref())?;
        let image_config = image.config.config().clone().unwrap_or_default();
        let inside = Rootfs::open(&rootfs).map_err(CriError::io("open", &rootfs))?;
        let user = user_of(&config, &image_config, &inside)?;
        let shared =
            files::shared(&self.sandbox_dir(&sandbox.id), sandbox.namespace_options().ipc());
        let plan = Plan {
            id: &id,
            config: &config,
            sources: &sources,
            sandbox: &sandbox,
            shared: &shared,
            image: &image_config,
            user: &user,
            rootfs: &rootfs,
            target_pid,
            machine: &self.machine,
        };
        spec::check_destinations(&inside, &config.mounts)?;
        volumes::make_host_paths(&config.mounts)?;
        let spec = plan.spec()?;
        let env = plan.environment(variables)?;
        let working_dir = plan.working_dir()?;
        let owner = user_namespace.map_or(0, |user| user.map.root());
        inside
            .make_directory(&working_dir, owner)
            .map_err(CriError::io("make the working directory", &working_dir))?;
        let env_names = sensitive::shown_names(&config, env.iter().map(|(name, _)| name));
        let stop_signal = stop_signal(&config, image_config.stop_signal().as_deref())?;
        let resources = config.linux.as_ref().and_then(|it| it.resources.clone());
        let seccomp = spec::seccomp_profile(&spec::security_context(&config), &self.machine)?;
        sensitive::hide_words(&mut config);
        let program_name = spec::program(&config, &image_config);
        let stdio = stdio_of(&config, log.clone());
        let record = ContainerRecord {
            id,
            sandbox: sandbox.id.clone(),
            created_at: self.now(),
            env_names,
            image_id: image.id.to_string(),
            image_ref: image_ref(&image),
            image_tag: image_tag(&config, &image),
            log,
            user: RecordedUser { uid: user.uid, gid: user.gid, groups: user.groups },
            resources: resources.unwrap_or_default(),
            stop_signal,
            start_error: None,
            removing: false,
            config,
        };
        Ok((record, ContainerRequest { spec, env, stdio, seccomp, program_name }))
    }

    fn mount_rootfs(
        &self,
        id: &str,
        image: &Image,
        user: Option<&UserNamespace>,
    ) -> Result<PathBuf> {
        let (directory, rootfs) = (self.container_dir(id), self.rootfs(id));
        record::make_directory(&directory).map_err(CriError::io("make", &directory))?;
        std::fs::create_dir(&rootfs).map_err(CriError::io("make", &rootfs))?;
        self.images.mount_with(image, id, &rootfs, Access::ReadWrite, user)?;
        // What is mounted in a container whose root is shared must not appear out here.
        mount_change(&rootfs, MountPropagationFlags::PRIVATE)
            .map_err(|error| CriError::io("make private", &rootfs)(error.into()))?;
        if self.machine.guards_devices {
            // It is mounted so that no device works in it; with a guard, those that the rules allow may.
            mount_remount(&rootfs, MountFlags::BIND, c"")
                .map_err(|error| CriError::io("mount again", &rootfs)(error.into()))?;
        }
        Ok(rootfs)
    }

    /// The first process of the container whose process namespace the new one shall join.
    fn target_pid(&self, config: &ContainerConfig, sandbox: &str) -> Result<Option<i32>> {
        let Some(options) = spec::security_context(config).namespace_options else {
            return Ok(None);
        };
        if options.pid() != NamespaceMode::Target {
            return Ok(None);
        }
        let target = self.store.container(&options.target_id)?.record();
        if target.sandbox != sandbox {
            let reason = format!("target container {:?} is in another sandbox", target.id);
            return Err(CriError::invalid(reason));
        }
        match self.engine.state(&target.id)? {
            State::Running { pid, .. } => Ok(Some(pid)),
            State::Created | State::Exited(_) | State::Silent | State::Unknown { .. } => {
                Err(CriError::state(format!("target container {:?} is not running", target.id)))
            }
        }
    }

    /// Removes a container from the engine, the image store and the disk. Doing it twice is fine.
    pub(super) async fn discard_container(self: &Arc<Self>, id: &str) -> Result<()> {
        self.kill(id).await?;
        match self.engine.delete(id).await.map_err(CriError::from) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        let (cri, id) = (Arc::clone(self), id.to_owned());
        self.blocking(move || {
            let directory = cri.container_dir(&id);
            cri.images.unmount(&id, &cri.rootfs(&id))?;
            cri.unmount_images(&id)?;
            volumes::unstage(&directory)?;
            // Never as a tree: what is still mounted there would be lost with it.
            record::remove(&directory, &["volumes", "rootfs"])
                .map_err(CriError::io("remove", directory))
        })
        .await
    }
}

/// A container that is asked for, and what was found out about the request.
struct Wanted {
    id: String,
    sandbox: SandboxRecord,
    /// Without variables.
    config: ContainerConfig,
    variables: Vec<KeyValue>,
    log: Option<PathBuf>,
    target_pid: Option<i32>,
}

fn make_log_directory(log: Option<&Path>) -> Result<()> {
    match log.and_then(Path::parent) {
        Some(directory) => std::fs::create_dir_all(directory)
            .map_err(CriError::io("make the log directory", directory)),
        None => Ok(()),
    }
}

/// Who the container runs as, by the request, the image and the files in it.
fn user_of(config: &ContainerConfig, image: &ImageConfig, inside: &Rootfs) -> Result<User> {
    let read = |path: &str| inside.read(path).map_err(CriError::io("read", path));
    let image_user = image.user().as_deref().unwrap_or_default();
    let context = spec::security_context(config);
    spec::resolve(&context, image_user, &read("/etc/passwd")?, &read("/etc/group")?)
}

fn stdio_of(config: &ContainerConfig, log: Option<PathBuf>) -> Stdio {
    let ContainerConfig { stdin, stdin_once, tty, .. } = *config;
    Stdio { stdin, stdin_once, tty, log }
}

/// Where the log goes: `log_path` below the sandbox's directory, if both are given.
fn log_path(directory: &str, path: &str) -> Result<Option<PathBuf>> {
    if directory.is_empty() || path.is_empty() {
        return Ok(None);
    }
    let below = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    if !Path::new(path).components().all(below) {
        let reason = format!("log_path {path:?} does not stay below the sandbox's log directory");
        return Err(CriError::invalid(reason));
    }
    Ok(Some(Path::new(directory).join(path)))
}

/// The request's stop signal, or else the image's.
fn stop_signal(config: &ContainerConfig, image: Option<&str>) -> Result<i32> {
    if let Some(signal) = signals::from_cri(config.stop_signal()) {
        return Ok(signal);
    }
    match image {
        None | Some("") => Ok(signals::TERM),
        Some(name) => signals::parse(name).ok_or_else(|| {
            CriError::invalid(format!("the image's stop signal {name:?} is not a signal"))
        }),
    }
}

/// By digest if the image has one; an imported image may have none.
fn image_ref(image: &Image) -> String {
    image.digests.first().cloned().unwrap_or_else(|| image.id.to_string())
}

/// The name that people know the image by: the one that was asked for, or else its first.
fn image_tag(config: &ContainerConfig, image: &Image) -> Option<String> {
    let asked = config.image.as_ref()?;
    // Kubelets ask by id, and say beside it what the pod says.
    let names = [&asked.image, &asked.user_specified_image];
    let names = names.into_iter().filter_map(|name| name.parse::<ImageName>().ok());
    let mut names = names.map(|name| name.to_string());
    names.find(|name| image.tags.contains(name)).or_else(|| image.tags.first().cloned())
}

#[cfg(test)]
mod tests {
    use oci_spec::image::ImageConfiguration;
    use waybill_proto::cri::{ImageSpec, Signal};

    use super::*;
    use crate::image::Digest;

    #[test]
    fn a_log_stays_below_the_sandboxes_directory() {
        let path = |directory, path| log_path(directory, path).unwrap();
        assert_eq!(path("/logs", "c/0.log"), Some(PathBuf::from("/logs/c/0.log")));
        assert_eq!(path("", "c/0.log"), None);
        assert_eq!(path("/logs", ""), None);
        assert!(log_path("/logs", "../0.log").is_err());
        assert!(log_path("/logs", "/etc/0.log").is_err());
    }

    /// An image with several names was told by the first of them.
    #[test]
    fn an_image_is_told_by_the_name_that_was_asked_for() {
        let image = Image {
            id: Digest::of(b""),
            tags: vec!["docker.io/library/a:latest".into(), "example.com/b:1".into()],
            digests: Vec::new(),
            size: 0,
            config: ImageConfiguration::default().into(),
            pinned: false,
        };
        let told = |asked: &str, user: &str| {
            let spec = ImageSpec {
                image: asked.into(),
                user_specified_image: user.into(),
                ..ImageSpec::default()
            };
            let config = ContainerConfig { image: Some(spec), ..ContainerConfig::default() };
            image_tag(&config, &image).unwrap()
        };
        assert_eq!(told("example.com/b:1", ""), "example.com/b:1");
        assert_eq!(told("a", ""), "docker.io/library/a:latest");
        let id = image.id.to_string();
        assert_eq!(told(&id, "example.com/b:1"), "example.com/b:1");
        assert_eq!(told(&id, ""), "docker.io/library/a:latest");
    }

    #[test]
    fn the_request_says_how_to_stop_before_the_image_does() {
        let with = |signal: Signal| ContainerConfig {
            stop_signal: signal.into(),
            ..ContainerConfig::default()
        };
        let default = with(Signal::RuntimeDefault);
        assert_eq!(stop_signal(&with(Signal::Sigusr1), Some("SIGQUIT")).unwrap(), 10);
        assert_eq!(stop_signal(&default, Some("SIGQUIT")).unwrap(), 3);
        assert_eq!(stop_signal(&default, None).unwrap(), 15);
        assert!(stop_signal(&default, Some("SIGFLY")).is_err());
    }
}
