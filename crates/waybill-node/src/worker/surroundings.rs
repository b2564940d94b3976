//! What a worker needs of the rest of the node, in one place.

use std::{collections::BTreeMap, fs, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::LifecycleHandler;
use tokio::time::Instant;
use tracing::warn;
use waybill_core::{chain::Chain, env::merge::Environment, id::PodUid};
use waybill_proto::cri::Mount;

use super::{
    cgroup::Cgroups, image::Images, making::Making, memory::Health, plan, sysctl::SysctlPolicy,
    users::UserRanges,
};
use crate::{
    Clock,
    cri::{Runtime, sandbox::Machine},
    directories::Directories,
    environment::{Provenance, Request, Resolver},
    event::{Kind, Recorder},
    hook,
    image_collection::ImageCollector,
    observed::Observed,
    pod::{ContainerRef, Pod},
    pressure::Pressure,
    probe::{self, Prober},
    server::Metrics,
    status::{self, Facts, Failed, Writer},
    volume::{VolumeImages, Volumes},
};

/// The parts of the node that workers use.
pub(crate) struct Surroundings {
    pub(crate) runtime: Runtime,
    /// What stands before `://` in the ids of containers.
    pub(crate) runtime_name: String,
    pub(crate) machine: Machine,
    pub(crate) cgroups: Cgroups,
    /// Calls to the runtime that make something.
    pub(crate) making: Making,
    pub(crate) directories: Directories,
    pub(crate) host_ip: String,
    pub(crate) clock: Clock,
    pub(crate) resolver: Resolver,
    /// Told of every environment that a container is made with.
    pub(crate) provenance: Arc<Provenance>,
    pub(crate) volumes: Volumes,
    pub(crate) images: Images,
    pub(crate) recorder: Recorder,
    pub(crate) prober: Prober,
    pub(crate) writer: Writer,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sysctls: SysctlPolicy,
    /// Of pods with `hostUsers: false`.
    pub(crate) users: Arc<UserRanges>,
    pub(crate) pressure: Pressure,
    /// Makes room when the disk of the images is full.
    pub(crate) collector: Arc<ImageCollector>,
}

impl Surroundings {
    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The environment of a container, or what users read about it.
    pub(super) async fn environment(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
        pod_ips: &[String],
    ) -> Result<Environment, String> {
        let request = Request { pod, container, pod_ips };
        let begin = Instant::now();
        let resolved = self.resolver.resolve(request).await;
        self.metrics.environment(begin.elapsed());
        let resolved = resolved.map_err(|error| text(&error))?;
        for warning in &resolved.warnings {
            let (reason, message) = (warning.reason, &warning.message);
            self.recorder.container(pod, container.name(), Kind::Warning, reason, message);
        }
        self.resolver.csi.tell_success(pod, container.name(), &resolved.injected);
        Ok(resolved.environment)
    }

    pub(super) async fn prepare_volumes(&self, pod: &Pod) -> Result<(), String> {
        self.volumes.prepare(pod).await.map_err(|error| text(&error))
    }

    /// What cannot be refreshed stays as it is.
    pub(super) async fn refresh_volumes(&self, pod: &Pod) {
        if let Err(error) = self.volumes.refresh(pod).await {
            let message = text(&error);
            self.recorder.pod(pod, Kind::Warning, "FailedMount", &message);
        }
    }

    pub(super) async fn mounts(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
        environment: &Environment,
        images: &VolumeImages,
    ) -> Result<Vec<Mount>, String> {
        let mounts = self.volumes.mounts(pod, container, environment, images).await;
        let mut mounts = mounts.map_err(|error| text(&error))?;
        let wishes = container
            .volume_mounts()
            .iter()
            .map(|mount| mount.recursive_read_only.as_deref() == Some("IfPossible"));
        let wished: Vec<_> = mounts.iter_mut().zip(wishes).filter(|(_, wish)| *wish).collect();
        if !wished.is_empty() {
            let handler = pod.spec().runtime_class_name.as_deref().unwrap_or_default();
            let asked = self.runtime.has_recursive_read_only(handler).await;
            let can = asked.map_err(|status| status.message().to_owned())?;
            wished.into_iter().for_each(|(mount, _)| mount.recursive_read_only = can);
        }
        Ok(mounts)
    }

    /// What is left mounted goes with the pod.
    pub(super) async fn release_mounts(&self, pod: &Pod, container: ContainerRef<'_>) {
        if let Err(error) = self.volumes.release(pod, container).await {
            warn!(container = container.name(), reason = text(&error), "a subPath is left mounted");
        }
    }

    /// Of a pod of which nothing will run again.
    pub(super) fn release_users(&self, pod: &Pod) {
        if pod.spec().host_users == Some(false)
            && let Err(error) = self.users.release(pod.uid())
        {
            warn!(pod = pod.name(), error = %Chain(&error), "a pod keeps its range of user ids");
        }
    }

    /// Room that a pod which will not run again has taken is needed for others.
    pub(super) async fn clear_volumes(&self, pod: &Pod) {
        if let Err(error) = self.volumes.clear(pod).await {
            warn!(
                reason = text(&error),
                "the volumes of an evicted pod keep their room until it is deleted"
            );
        }
    }

    pub(super) async fn remove_volumes(&self, uid: &PodUid) -> Result<(), String> {
        self.volumes.remove(uid).await.map_err(|error| text(&error))
    }

    /// Volumes and logs of a pod that has ended.
    pub(super) async fn remove_files(&self, pod: &Pod) -> Result<(), String> {
        self.remove_volumes(pod.uid()).await?;
        self.remove_logs(pod.namespace(), pod.name(), pod.uid());
        Ok(())
    }

    pub(super) fn remove_logs(&self, namespace: &str, name: &str, uid: &PodUid) {
        let logs = self.directories.pod_logs(namespace, name, uid);
        match fs::remove_dir_all(&logs) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                warn!(path = %logs.display(), %error, "logs of a pod are left");
            }
            _ => {}
        }
    }

    /// Sees that the probes of a pod are asked, and says what they found.
    pub(super) fn watch_health(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
    ) -> BTreeMap<String, Health> {
        self.prober.watch(pod, observed);
        let results = self.prober.results(pod.uid());
        let running = observed.containers.iter().filter(|container| container.is_running());
        let health = running.filter_map(|container| {
            let spec = pod.container(&container.name)?.to_container();
            let failed = results.failure(&container.id).map(|failure| failure.purpose);
            let health = Health {
                started: results.is_started(&spec, &container.id),
                startup_failed: failed == Some(probe::Purpose::Startup),
                liveness_failed: failed == Some(probe::Purpose::Liveness),
            };
            Some((container.id.clone(), health))
        });
        health.collect()
    }

    /// How long a container may take to stop whose probe failed, if the probe says so.
    pub(super) fn probe_grace(&self, pod: &Pod, container_id: &str) -> Option<i64> {
        self.prober.results(pod.uid()).failure(container_id)?.grace
    }

    /// Stops asking the probes of a pod.
    pub(super) fn forget_health(&self, uid: &PodUid) {
        self.prober.forget(uid);
    }

    pub(super) async fn hook(
        &self,
        pod: &Pod,
        container_id: &str,
        pod_ip: Option<&str>,
        handler: &LifecycleHandler,
    ) -> Result<(), String> {
        let ran = hook::run(&self.runtime, pod, container_id, pod_ip, handler).await;
        ran.map_err(|error| text(&error))
    }

    /// Tells the status of a pod that shall run.
    pub(super) fn publish(
        &self,
        pod: &Arc<Pod>,
        observed: &Observed,
        facts: Facts,
        failed: Option<&plan::Failed>,
    ) {
        let failed = failed.map(|failed| Failed {
            reason: failed.reason.to_owned(),
            message: failed.message.clone(),
        });
        self.set_status(pod, observed, Facts { failed, ..facts });
    }

    /// Tells the status of a pod that ends.
    pub(super) fn publish_ending(&self, pod: &Arc<Pod>, observed: &Observed) {
        self.set_status(pod, observed, Facts { terminating: true, ..Facts::default() });
    }

    fn set_status(&self, pod: &Arc<Pod>, observed: &Observed, facts: Facts) {
        let facts = Facts {
            probes: self.prober.results(pod.uid()),
            host_ip: self.host_ip.clone(),
            runtime_name: self.runtime_name.clone(),
            ..facts
        };
        let status = status::compute(pod, observed, &facts, self.now());
        self.writer.set(Arc::clone(pod), status);
    }

    /// The API server may forget the pod: nothing of it is left.
    pub(super) fn delete(&self, pod: &Arc<Pod>) {
        self.writer.delete(Arc::clone(pod));
    }

    /// Nobody will ask for the pod again.
    pub(super) fn forget(&self, uid: &PodUid) {
        self.forget_health(uid);
        self.resolver.csi.forget(uid);
        self.writer.forget(uid);
        self.making.forget(uid);
    }
}

fn text(error: &(dyn std::error::Error + 'static)) -> String {
    Chain(error).to_string()
}
