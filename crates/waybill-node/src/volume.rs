//! The volumes of a pod: made before its containers start, kept up to date, and cleared away after it.
//!
//! Whatever comes from Secrets and tokens lies on a tmpfs of its own and never on disk. What pods can
//! write is not trusted: paths in it are resolved by the kernel inside the volume, and it is deleted
//! without following a link or crossing a mount.

mod content;
mod empty_dir;
mod error;
mod fetch;
mod host_path_type;
mod kind;
mod mount;
mod mounts;
mod ownership;
mod remove;
mod sub_path;
mod token;
mod usage;
mod writer;

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Volume;
use waybill_core::{env::merge::Environment, id::PodUid};
use waybill_proto::cri::Mount;

use self::{content::Files, kind::Kind, token::Tokens, writer::Written};
use crate::{
    Clock, blocking,
    directories::Directories,
    environment::NodeFacts,
    objects::ObjectSource,
    pod::{ContainerRef, Pod},
};

pub(crate) use self::{
    error::{VolumeError, VolumeFault},
    kind::{host_path, images},
    mounts::VolumeImages,
    usage::Taken,
};

/// The volumes of every pod of the node.
pub(crate) struct Volumes {
    directories: Directories,
    objects: Arc<dyn ObjectSource>,
    node: Arc<NodeFacts>,
    clock: Clock,
    tokens: Tokens,
    pods: Mutex<HashMap<PodUid, Lock>>,
}

/// A volume that takes more than it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Oversized {
    pub(crate) volume: String,
    /// As it is written in the pod.
    pub(crate) limit: String,
}

/// One for each pod, so that its volumes are worked on by one task at a time. It holds the names of those
/// that were made since this node started.
type Lock = Arc<tokio::sync::Mutex<BTreeSet<String>>>;

impl Volumes {
    pub(crate) fn new(
        directories: Directories,
        objects: Arc<dyn ObjectSource>,
        node: Arc<NodeFacts>,
        clock: Clock,
    ) -> Self {
        let tokens = Tokens::new(Arc::clone(&clock));
        Self { directories, objects, node, clock, tokens, pods: Mutex::default() }
    }

    /// Makes every volume that a container of the pod uses. Nothing is done for what is there already.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<(), VolumeError> {
        let lock = self.lock_of(pod.uid());
        let mut made = lock.lock().await;
        let used = kind::used(pod);
        let missing =
            |volume: &Volume| used.contains(&*volume.name) && !made.contains(&volume.name);
        let volumes = pod.spec().volumes.iter().flatten();
        let volumes: Vec<_> = volumes.filter(|volume| missing(volume)).collect();
        self.set_up_all(pod, &volumes).await?;
        made.extend(volumes.into_iter().map(|volume| volume.name.clone()));
        Ok(())
    }

    /// Writes anew what has changed: ConfigMaps, Secrets, metadata of the pod, and tokens before they end.
    pub(crate) async fn refresh(&self, pod: &Pod) -> Result<(), VolumeError> {
        let lock = self.lock_of(pod.uid());
        let made = lock.lock().await;
        // A node before this one may have made them.
        let is_made = |kind: Kind<'_>, name: &String| {
            made.contains(name)
                || self.directories.volume(pod.uid(), kind.word(), name).join("..data").exists()
        };
        let changes = |volume: &Volume| {
            Kind::of(volume).is_ok_and(|kind| kind.is_written() && is_made(kind, &volume.name))
        };
        let volumes = pod.spec().volumes.iter().flatten();
        let volumes: Vec<_> = volumes.filter(|volume| changes(volume)).collect();
        self.set_up_all(pod, &volumes).await
    }

    /// What the runtime is to mount into a container. `environment` is for `subPathExpr`; `images` are those of its volumes that are
    /// images.
    pub(crate) async fn mounts(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
        environment: &Environment,
        images: &VolumeImages,
    ) -> Result<Vec<Mount>, VolumeError> {
        let lock = self.lock_of(pod.uid());
        let _one_at_a_time = lock.lock().await;
        let place = mounts::Place { directories: &self.directories, pod, environment, images };
        mounts::mounts(place, container).await
    }

    /// The runtime has mounted what [`Self::mounts`] told it, or never will.
    pub(crate) async fn release(
        &self,
        pod: &Pod,
        container: ContainerRef<'_>,
    ) -> Result<(), VolumeFault> {
        let lock = self.lock_of(pod.uid());
        let _one_at_a_time = lock.lock().await;
        mounts::release(&self.directories, pod, container).await
    }

    /// The first directory of the pod on disk that takes more than its `sizeLimit`.
    pub(crate) async fn oversized(&self, pod: &Pod) -> Option<Oversized> {
        for volume in pod.spec().volumes.iter().flatten() {
            let Ok(kind @ Kind::EmptyDir(Some(source))) = Kind::of(volume) else { continue };
            let Some(limit) = empty_dir::disk_limit(source) else { continue };
            let directory = self.directories.volume(pod.uid(), kind.word(), &volume.name);
            // One that cannot be measured may have gone just now.
            let used = taken(directory).await.unwrap_or_default();
            if used.bytes > limit.bytes {
                return Some(Oversized { volume: volume.name.clone(), limit: limit.text });
            }
        }
        None
    }

    /// Removes the directories of a pod that will not run again, to have their room.
    pub(crate) async fn clear(&self, pod: &Pod) -> Result<(), VolumeError> {
        let lock = self.lock_of(pod.uid());
        let mut made = lock.lock().await;
        for volume in pod.spec().volumes.iter().flatten() {
            let Ok(kind @ Kind::EmptyDir(_)) = Kind::of(volume) else { continue };
            made.remove(&volume.name);
            let directory = self.directories.volume(pod.uid(), kind.word(), &volume.name);
            let Some(parent) = directory.parent().map(ToOwned::to_owned) else { continue };
            let removed = blocking(move || remove::remove(&parent, &directory)).await;
            removed.map_err(VolumeError::TearDown)?;
        }
        Ok(())
    }

    /// Unmounts everything below the pod's directory, then deletes it.
    pub(crate) async fn remove(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let lock = self.lock_of(uid);
        let mut made = lock.lock().await;
        made.clear();
        self.tokens.forget(uid);
        self.objects.forget(uid);
        let (pods, pod) = (self.directories.pods(), self.directories.pod(uid));
        blocking(move || remove::remove(&pods, &pod)).await.map_err(VolumeError::TearDown)?;
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        Ok(())
    }

    /// All at once; the error is that of the first one that has one.
    async fn set_up_all(&self, pod: &Pod, volumes: &[&Volume]) -> Result<(), VolumeError> {
        let set_up = volumes.iter().map(async |volume| {
            let result = self.set_up(pod, volume).await;
            result.map_err(|fault| VolumeError::SetUp { volume: volume.name.clone(), fault })
        });
        join_all(set_up).await.into_iter().collect()
    }

    async fn set_up(&self, pod: &Pod, volume: &Volume) -> Result<(), VolumeFault> {
        let kind = Kind::of(volume)?;
        let directory = self.directories.volume(pod.uid(), kind.word(), &volume.name);
        let files = match kind {
            Kind::HostPath(source) => {
                let (path, wanted) = (source.path.clone(), source.type_.clone());
                return blocking(move || host_path_type::check(&path, wanted.as_deref())).await;
            }
            Kind::EmptyDir(source) => {
                let made = empty_dir::EmptyDir::new(source, pod, &self.node)?;
                return blocking(move || made.make(&directory)).await;
            }
            // Pulled with those of the containers.
            Kind::Image => return Ok(()),
            Kind::ConfigMap(source) => self.config_map_files(pod, source).await?,
            Kind::Secret(source) => self.secret_files(pod, source).await?,
            Kind::DownwardApi(source) => self.downward_files(pod, source)?,
            Kind::Projected(source) => self.projected_files(pod, source).await?,
        };
        self.write(pod, kind, directory, files).await
    }

    async fn write(
        &self,
        pod: &Pod,
        kind: Kind<'_>,
        directory: PathBuf,
        files: Files,
    ) -> Result<(), VolumeFault> {
        let (in_memory, group, now) =
            (kind.is_in_memory(), ownership::fs_group(pod), (self.clock)());
        let write = move || {
            mount::make_directory(&directory)?;
            if in_memory {
                files.check_size(mount::NEW_SECRET_BYTES)?;
                mount::mount_for_secrets(&directory)?;
            }
            writer::write(&directory, &files, group, now)
        };
        if blocking(write).await? == Written::Changed {
            tracing::debug!(pod = pod.uid().as_str(), "a volume has new content");
        }
        Ok(())
    }

    fn lock_of(&self, uid: &PodUid) -> Lock {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pods.entry(uid.clone()).or_default())
    }
}

/// What all below a directory takes on its disk, as [`usage`] counts it.
pub(crate) async fn taken(directory: PathBuf) -> Result<Taken, VolumeFault> {
    blocking(move || usage::taken(&directory)).await
}

/// Makes a directory that is a file system in memory, for what must not reach a disk.
pub(crate) fn make_memory(directory: &Path) -> Result<(), VolumeFault> {
    mount::make_directory(directory)?;
    mount::mount_for_secrets(directory)
}

/// Whether [`make_memory`] has made it.
pub(crate) fn has_memory(directory: &Path) -> bool {
    mount::is_mounted(directory).unwrap_or(false)
}

/// Runs what may wait for a disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeFault> + Send + 'static,
) -> Result<T, VolumeFault> {
    blocking::blocking(work).await.map_err(|_| VolumeFault::Interrupted)?
}

#[cfg(test)]
mod tests;
