//! Carrying out a plan: sandboxes and containers come to be.

use std::{fs, io, path::Path, sync::Arc};

use futures_util::FutureExt;
use tonic::{Code, Status};
use tracing::warn;
use waybill_proto::cri::{ImageSpec, Mount, PodSandboxConfig, UserNamespace};

use super::{
    end::stop_gracefully,
    failure::{Failure, PodFailure, shown},
    files,
    image::NeededImage,
    plan::{KillCause, Plan, Resize, SandboxPlan, Start},
    surroundings::Surroundings,
};
use crate::{
    blocking,
    cri::{self, container, dns, hosts, image::FoundImage, labels, sandbox, words},
    environment::ContainerProvenance,
    event::Kind,
    observed::Observed,
    pod::{ContainerRef, Pod},
    status::Waiting,
    volume::{self, VolumeImages},
};

/// Where the machine's names and resolvers stand.
const MACHINE_HOSTS: &str = "/etc/hosts";
const MACHINE_RESOLVERS: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// What came of a plan.
#[derive(Debug, Default)]
pub(super) struct Started {
    /// Names of containers that run now.
    pub(super) started: Vec<String>,
    pub(super) failed: Vec<(String, Failure)>,
    /// What came of changes of resources.
    pub(super) resized: Vec<(Resize, Result<(), String>)>,
    /// What kept the pod as a whole from starting.
    pub(super) failure: Option<PodFailure>,
}

/// What a container is made from.
struct PulledImages {
    own: FoundImage,
    volumes: VolumeImages,
}

/// A container that was made.
struct Created {
    id: String,
    /// Whether errors about its program must not be passed on as they are.
    hides_program: bool,
}

/// The sandbox that containers are made in.
struct Place<'a> {
    id: &'a str,
    config: &'a PodSandboxConfig,
    ips: &'a [String],
}

impl Surroundings {
    /// Carries `plan` out as far as it goes.
    pub(super) async fn act(&self, pod: &Arc<Pod>, observed: &Observed, plan: &Plan) -> Started {
        let mut outcome = Started::default();
        outcome.failure = self.act_on(pod, observed, plan, &mut outcome).await.err();
        outcome
    }

    async fn act_on(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
        plan: &Plan,
        outcome: &mut Started,
    ) -> Result<(), PodFailure> {
        self.kill(pod, observed, plan)
            .await
            .map_err(failed("FailedKillPod", "error killing pod"))?;
        for id in &plan.removals {
            self.runtime
                .remove(id)
                .await
                .map_err(failed("FailedKillPod", "error removing container"))?;
        }
        outcome.resized = self.resize(pod, plan).await;
        if plan.starts.is_empty() {
            return Ok(());
        }
        let (id, attempt) = match &plan.sandbox {
            SandboxPlan::Keep { id } => {
                let found = observed.sandboxes.iter().find(|sandbox| sandbox.id == *id);
                (Some(id.as_str()), found.map_or(0, |sandbox| sandbox.attempt))
            }
            SandboxPlan::Make { attempt } => (None, *attempt),
            SandboxPlan::Finish { .. } => return Ok(()),
        };
        let machine_dns = dns::parse(&files::read_or_empty(MACHINE_RESOLVERS));
        let users = self
            .users_of(pod, id.is_none())
            .await
            .map_err(|message| PodFailure::new("FailedCreatePodSandBox", message))?;
        let config = sandbox::config(pod, attempt, &self.machine, &machine_dns, users);
        // None of these needs another.
        let (volumes, sandbox, first_image) = tokio::join!(
            self.prepare_volumes(pod),
            self.sandbox(pod, observed, id, &config),
            self.first_image(pod, plan, &config),
        );
        volumes.map_err(|message| PodFailure::new("FailedMount", message))?;
        let (id, ips) = sandbox?;
        let place = Place { id: &id, config: &config, ips: &ips };
        let mut image = first_image;
        for start in &plan.starts {
            match self.start(pod, observed, start, image.take(), &place).await {
                Ok(()) => outcome.started.push(start.name.clone()),
                Err(failure) => {
                    if !matches!(failure, Failure::UnderWay(_)) {
                        self.count_failure(pod, &start.name, &failure);
                        self.tell_failure(pod, &start.name, &failure);
                    }
                    outcome.failed.push((start.name.clone(), failure));
                }
            }
        }
        Ok(())
    }

    /// What the pod has instead of the machine's users. A `new` sandbox needs a runtime that can.
    async fn users_of(&self, pod: &Pod, new: bool) -> Result<Option<UserNamespace>, String> {
        if pod.spec().host_users != Some(false) {
            return Ok(None);
        }
        let handler = pod.spec().runtime_class_name.as_deref().unwrap_or_default();
        if new && !self.runtime.has_user_namespaces(handler).await.map_err(|it| shown(&it))? {
            return Err(
                "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
                    .to_owned(),
            );
        }
        let (ranges, uid) = (Arc::clone(&self.users), pod.uid().clone());
        let chosen = blocking::blocking(move || ranges.of(&uid)).await;
        let chosen = chosen.map_err(|error| error.to_string())?;
        chosen.map(Some).map_err(|error| error.to_string())
    }

    /// The image of the container that starts first.
    async fn first_image(
        &self,
        pod: &Pod,
        plan: &Plan,
        config: &PodSandboxConfig,
    ) -> Option<Result<FoundImage, Failure>> {
        let container = pod.container(&plan.starts.first()?.name)?;
        Some(self.images.ensure(self, pod, NeededImage::of(&container), config).await)
    }

    /// The sandbox with that id, or a new one; and its addresses.
    async fn sandbox(
        &self,
        pod: &Pod,
        observed: &Observed,
        id: Option<&str>,
        config: &PodSandboxConfig,
    ) -> Result<(String, Vec<String>), PodFailure> {
        let Some(id) = id else {
            self.metrics.starts().pod();
            let made = self.make_sandbox(pod, observed, config).await;
            let id = made.inspect_err(|_| self.metrics.starts().pod_failed())?;
            let ips = self.addresses(&id).await;
            return Ok((id, ips));
        };
        let found = observed.sandboxes.iter().find(|sandbox| sandbox.id == id);
        Ok((id.to_owned(), found.map(|sandbox| sandbox.ips.clone()).unwrap_or_default()))
    }

    /// Kills what must not run on.
    async fn kill(&self, pod: &Pod, observed: &Observed, plan: &Plan) -> Result<(), Status> {
        for kill in &plan.kills {
            let message = match kill.cause {
                KillCause::LivenessFailed => {
                    format!("Container {} failed liveness probe, will be restarted", kill.name)
                }
                KillCause::Rotated => {
                    format!("Container {} runs on old values, will be restarted", kill.name)
                }
                KillCause::Resized => format!("Container {} resize requires restart", kill.name),
                KillCause::StartupFailed => {
                    format!("Container {} failed startup probe, will be restarted", kill.name)
                }
                KillCause::SpecChanged => {
                    format!("Container {} definition changed, will be restarted", kill.name)
                }
                KillCause::Unknown => format!(
                    "Container {} is in unknown state, try killing it before starting a new one",
                    kill.name
                ),
            };
            self.recorder.container(pod, &kill.name, Kind::Normal, "Killing", &message);
            let grace = self.probe_grace(pod, &kill.id).unwrap_or_else(|| pod.grace());
            let container = observed.containers.iter().find(|container| container.id == kill.id);
            let Some(container) = container else { continue };
            stop_gracefully(self, pod, observed, container, grace).await?;
        }
        Ok(())
    }

    async fn make_sandbox(
        &self,
        pod: &Pod,
        observed: &Observed,
        config: &PodSandboxConfig,
    ) -> Result<String, PodFailure> {
        for old in &observed.sandboxes {
            let failed = failed("FailedKillPod", "error stopping sandbox");
            self.runtime.stop_sandbox(&old.id).await.map_err(failed)?;
        }
        fs::create_dir_all(&config.log_directory).map_err(|error| {
            let message = format!("cannot make the directory for logs: {error}");
            PodFailure::new("FailedCreatePodSandBox", message)
        })?;
        self.cgroups.make_pod(pod).map_err(|error| {
            let message = format!("unable to ensure pod container exists: {error}");
            PodFailure::new("FailedCreatePodContainer", message)
        })?;
        let handler = pod.spec().runtime_class_name.clone().unwrap_or_default();
        let failed = failed("FailedCreatePodSandBox", "Failed to create pod sandbox");
        let (runtime, config) = (self.runtime.clone(), config.clone());
        let run = async move { runtime.run_sandbox(config, handler).await };
        self.making.carry_out(pod.uid(), run.boxed()).await.map_err(failed)
    }

    /// The addresses of a new sandbox. Not knowing them does not keep anything from starting.
    async fn addresses(&self, id: &str) -> Vec<String> {
        let status = self.runtime.sandbox_status(id).await.ok().flatten();
        status.map(cri::observe::addresses).unwrap_or_default()
    }

    async fn start(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
        start: &Start,
        image: Option<Result<FoundImage, Failure>>,
        place: &Place<'_>,
    ) -> Result<(), Failure> {
        let Some(container) = pod.container(&start.name) else { return Ok(()) };
        self.metrics.starts().container(container.kind);
        let image = match image {
            Some(image) => image?,
            None => {
                self.images.ensure(self, pod, NeededImage::of(&container), place.config).await?
            }
        };
        let volumes = self.volume_images(pod, container, place.config).await?;
        let images = PulledImages { own: image, volumes };
        let made = self.make_and_start(pod, observed, (container, start), &images, place).await;
        self.release_mounts(pod, container).await;
        self.post_start(pod, container, &made?, place.ips).await
    }

    /// The images that are volumes of a container, each pulled if its policy says so.
    async fn volume_images(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
        config: &PodSandboxConfig,
    ) -> Result<VolumeImages, Failure> {
        let mut images = VolumeImages::new();
        for (volume, source) in volume::images(pod, container) {
            let needed = NeededImage::of_volume(source, &container);
            let found = self.images.ensure(self, pod, needed, config).await?;
            let spec = ImageSpec {
                image: found.image.id,
                user_specified_image: source.reference.clone().unwrap_or_default(),
                ..ImageSpec::default()
            };
            images.insert(volume.to_owned(), spec);
        }
        Ok(images)
    }

    /// The id of a container that runs.
    async fn make_and_start(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
        (container, start): (ContainerRef<'_>, &Start),
        images: &PulledImages,
        place: &Place<'_>,
    ) -> Result<String, Failure> {
        let Created { id, hides_program } =
            self.create(pod, observed, container, start.attempt, images, place).await?;
        let note = |reason, message: String| {
            self.recorder.container(pod, &start.name, Kind::Normal, reason, &message);
        };
        note("Created", format!("Created container: {}", start.name));
        let (runtime, created) = (self.runtime.clone(), id.clone());
        let start_it = async move { runtime.start(&created).await };
        let started = self.making.carry_out(pod.uid(), start_it.boxed()).await;
        started.map_err(|status| {
            let told = words::shown_fault(status.message().to_owned(), hides_program);
            let message = shown(&Status::new(status.code(), told));
            Failure::Run(Waiting { reason: "RunContainerError", message })
        })?;
        note("Started", format!("Started container {}", start.name));
        Ok(id)
    }

    async fn create(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
        container: ContainerRef<'_>,
        attempt: u32,
        images: &PulledImages,
        place: &Place<'_>,
    ) -> Result<Created, Failure> {
        let PulledImages { own: image, volumes } = images;
        let config_error = |message: String| Failure::new("CreateContainerConfigError", message);
        let environment =
            self.environment(pod, container, place.ips).await.map_err(config_error)?;
        let mounts = self.mounts(pod, container, &environment, volumes).await;
        let mut mounts = mounts.map_err(config_error)?;
        let add = self.add_own_mounts(pod, container, attempt, place.ips, &mut mounts);
        add.map_err(|error| {
            config_error(format!("cannot prepare the container's files: {error}"))
        })?;
        let target = container.target().map(|name| target_id(observed, name)).transpose()?;
        let request = container::Request {
            pod,
            container,
            attempt,
            image: &image.image,
            environment: &environment,
            mounts,
            sandbox: place.config,
            target: target.as_deref(),
        };
        let config = container::config(request, &self.machine)
            .map_err(|error| config_error(error.to_string()))?;
        let hides_program = words::hides_program(config.annotations.get(labels::SENSITIVE_ARGS));
        // Before there is a container, so that none is without.
        let provenance = ContainerProvenance::new(&environment, image.variables.as_deref());
        self.provenance.record(pod.uid(), container.name(), &provenance);
        let (runtime, sandbox) = (self.runtime.clone(), place.id.to_owned());
        let sandbox_config = place.config.clone();
        let make = async move { runtime.create(&sandbox, config, sandbox_config).await };
        let made = self.making.carry_out(pod.uid(), make.boxed()).await;
        let made = made.map(|id| Created { id, hides_program });
        made.map_err(|status| {
            let waiting = Waiting { reason: "CreateContainerError", message: shown(&status) };
            match status.code() {
                Code::AlreadyExists => Failure::UnderWay(waiting),
                _ => Failure::Other(waiting),
            }
        })
    }

    /// Adds what every container has: the hosts file of its pod, and a file for its last words.
    fn add_own_mounts(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
        attempt: u32,
        ips: &[String],
        mounts: &mut Vec<Mount>,
    ) -> io::Result<()> {
        let logs = self.directories.pod_logs(pod.namespace(), pod.name(), pod.uid());
        fs::create_dir_all(logs.join(container.name()))?;
        let mut own = Vec::new();
        let message = self.directories.termination_message(pod.uid(), container.name(), attempt);
        files::make_message_file(&message)?;
        own.push((container::message_path(container), message));
        if let Some(content) = hosts::content(pod, ips, &files::read_or_empty(MACHINE_HOSTS)) {
            let path = self.directories.hosts(pod.uid());
            files::write_in_place(&path, &content)?;
            own.push((HOSTS.to_owned(), path));
        }
        for (container_path, path) in own {
            let taken = |mount: &Mount| {
                mount.container_path.trim_end_matches('/') == container_path.trim_end_matches('/')
            };
            let leaves_a_file =
                must_be_made_on_the_machine(pod, container, mounts, &container_path);
            if !mounts.iter().any(taken) && !leaves_a_file {
                let host_path = path.display().to_string();
                mounts.push(Mount { container_path, host_path, ..Mount::default() });
            }
        }
        Ok(())
    }

    /// A container whose first hook fails is killed, as if it had never started well.
    async fn post_start(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
        id: &str,
        ips: &[String],
    ) -> Result<(), Failure> {
        let hook = container.lifecycle().and_then(|lifecycle| lifecycle.post_start.as_ref());
        let Some(hook) = hook else { return Ok(()) };
        let ip = ips.first().map(String::as_str);
        let Err(message) = self.hook(pod, id, ip, hook).await else { return Ok(()) };
        let name = container.name();
        self.recorder.container(pod, name, Kind::Warning, "FailedPostStartHook", &message);
        self.recorder.container(pod, name, Kind::Normal, "Killing", "FailedPostStartHook");
        if let Err(status) = self.runtime.stop(id, pod.grace()).await {
            warn!(container = name, reason = status.message(), "a container does not stop");
        }
        Err(Failure::Run(Waiting { reason: "PostStartHookError", message }))
    }

    /// FILE-39
    fn count_failure(&self, pod: &Pod, name: &str, failure: &Failure) {
        if let Some(container) = pod.container(name) {
            self.metrics.starts().container_failed(container.kind, failure.waiting().reason);
        }
    }

    pub(super) fn tell_failure(&self, pod: &Pod, name: &str, failure: &Failure) {
        let waiting = failure.waiting();
        let message = match failure {
            Failure::Pull { .. } => format!("Error: {}", waiting.reason),
            Failure::Run(waiting) if waiting.reason == "PostStartHookError" => return,
            Failure::Other(waiting) | Failure::Run(waiting) | Failure::UnderWay(waiting) => {
                format!("Error: {}", waiting.message)
            }
        };
        self.recorder.container(pod, name, Kind::Warning, "Failed", &message);
    }
}

/// Whether a file mounted there would have to be made in a `hostPath` first, where it would stay.
fn must_be_made_on_the_machine(
    pod: &Pod,
    container: ContainerRef<'_>,
    mounts: &[Mount],
    inside: &str,
) -> bool {
    let is_host_path = |name: &str| {
        let mut volumes = pod.spec().volumes.iter().flatten();
        volumes.any(|volume| volume.name == name && volume.host_path.is_some())
    };
    let below = |volume: &Path| Path::new(inside).strip_prefix(volume).ok();
    let around =
        container.volume_mounts().iter().filter(|it| below(Path::new(&it.mount_path)).is_some());
    let Some(nearest) = around.max_by_key(|it| Path::new(&it.mount_path).components().count())
    else {
        return false;
    };
    let mount =
        mounts.iter().find(|it| Path::new(&it.container_path) == Path::new(&nearest.mount_path));
    let rest = below(Path::new(&nearest.mount_path));
    is_host_path(&nearest.name)
        && mount.zip(rest).is_some_and(|(mount, rest)| {
            fs::symlink_metadata(Path::new(&mount.host_path).join(rest)).is_err()
        })
}

fn target_id(observed: &Observed, name: &str) -> Result<String, Failure> {
    let target = observed.latest(name).filter(|container| container.is_running());
    target.map(|container| container.id.clone()).ok_or_else(|| {
        let message = format!("unable to find target container {name:?}");
        Failure::new("CreateContainerConfigError", message)
    })
}

fn failed(reason: &'static str, what: &'static str) -> impl FnOnce(Status) -> PodFailure {
    move |status| PodFailure {
        reason,
        message: format!("{what}: {}", shown(&status)),
        under_way: status.code() == Code::AlreadyExists,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/termination-log` used to be left in the machine's own `/dev`.
    #[test]
    fn no_file_of_ours_is_made_in_a_directory_of_the_machine() {
        let host = tempfile::tempdir().unwrap();
        fs::write(host.path().join("hosts"), "").unwrap();
        let path = host.path().to_str().unwrap();
        let pod = crate::pod::testing::pod(serde_json::json!({
            "volumes": [
                { "name": "host", "hostPath": { "path": path } },
                { "name": "own", "emptyDir": {} },
            ],
            "containers": [{ "name": "a", "image": "i", "volumeMounts": [
                { "name": "host", "mountPath": "/dev" },
                { "name": "host", "mountPath": "/etc" },
                { "name": "own", "mountPath": "/dev/own" },
            ]}],
        }));
        let mount = |inside: &str, host_path: &str| Mount {
            container_path: inside.to_owned(),
            host_path: host_path.to_owned(),
            ..Mount::default()
        };
        let mounts = [mount("/dev", path), mount("/etc", path), mount("/dev/own", "/nowhere")];
        let container = pod.container("a").unwrap();
        let must = |inside: &str| must_be_made_on_the_machine(&pod, container, &mounts, inside);
        assert!(must("/dev/termination-log"));
        assert!(!must("/etc/hosts"), "it is there");
        assert!(!must("/dev/own/log"), "what is the pod's goes with it");
        assert!(!must("/tmp/log") && !must("/device/log"));
    }
}
