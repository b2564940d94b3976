//! The kinds of volumes that the node can make.

use std::{collections::BTreeSet, path::PathBuf};

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource,
    ImageVolumeSource, ProjectedVolumeSource, SecretVolumeSource, Volume,
};
use waybill_api::names::label_faults;

use super::error::VolumeFault;
use crate::{
    directories::Directories,
    pod::{ContainerRef, Pod},
};

/// A volume by its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'p> {
    ConfigMap(&'p ConfigMapVolumeSource),
    DownwardApi(&'p DownwardAPIVolumeSource),
    /// Also that of a volume that says nothing.
    EmptyDir(Option<&'p EmptyDirVolumeSource>),
    HostPath(&'p HostPathVolumeSource),
    /// The runtime has its files; the node only sees that the image is there.
    Image,
    Projected(&'p ProjectedVolumeSource),
    Secret(&'p SecretVolumeSource),
}

impl<'p> Kind<'p> {
    /// The name is checked too: it becomes part of a path, and static pods were checked by nobody.
    pub(super) fn of(volume: &'p Volume) -> Result<Self, VolumeFault> {
        check_name(&volume.name)?;
        Ok(match volume {
            Volume { config_map: Some(source), .. } => Self::ConfigMap(source),
            Volume { downward_api: Some(source), .. } => Self::DownwardApi(source),
            Volume { empty_dir: Some(source), .. } => Self::EmptyDir(Some(source)),
            Volume { host_path: Some(source), .. } => Self::HostPath(source),
            Volume { image: Some(_), .. } => Self::Image,
            Volume { projected: Some(source), .. } => Self::Projected(source),
            Volume { secret: Some(source), .. } => Self::Secret(source),
            other => match other_kind(other) {
                Some(kind) => return Err(VolumeFault::Kind { kind }),
                None => Self::EmptyDir(None),
            },
        })
    }

    /// The directory of the kind.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::ConfigMap(_) => "config-map",
            Self::DownwardApi(_) => "downward-api",
            Self::EmptyDir(_) => "empty-dir",
            Self::HostPath(_) => "host-path",
            Self::Image => "image",
            Self::Projected(_) => "projected",
            Self::Secret(_) => "secret",
        }
    }

    /// Whether the node writes its content, and containers only read it.
    pub(super) fn is_written(&self) -> bool {
        match self {
            Self::ConfigMap(_) | Self::DownwardApi(_) | Self::Projected(_) | Self::Secret(_) => {
                true
            }
            Self::EmptyDir(_) | Self::HostPath(_) | Self::Image => false,
        }
    }

    /// Whether its content must not reach a disk. Annotations may hold what is private, too.
    pub(super) fn is_in_memory(&self) -> bool {
        match self {
            Self::DownwardApi(_) | Self::Projected(_) | Self::Secret(_) => true,
            Self::ConfigMap(_) | Self::EmptyDir(_) | Self::HostPath(_) | Self::Image => false,
        }
    }
}

/// Where a volume of the pod is on this machine; none if the pod has no such volume, or the node cannot
/// make it.
pub(crate) fn host_path(directories: &Directories, pod: &Pod, volume: &str) -> Option<PathBuf> {
    let found = pod.spec().volumes.iter().flatten().find(|found| found.name == volume)?;
    match Kind::of(found).ok()? {
        Kind::HostPath(source) => Some(PathBuf::from(&source.path)),
        Kind::Image => None,
        kind => Some(directories.volume(pod.uid(), kind.word(), volume)),
    }
}

/// The images that are volumes of a container, by the names of the volumes.
pub(crate) fn images<'p>(
    pod: &'p Pod,
    container: ContainerRef<'_>,
) -> Vec<(&'p str, &'p ImageVolumeSource)> {
    let mounted = |name: &str| container.volume_mounts().iter().any(|mount| mount.name == name);
    let volumes = pod.spec().volumes.iter().flatten().filter(|volume| mounted(&volume.name));
    volumes.filter_map(|volume| Some((&*volume.name, volume.image.as_ref()?))).collect()
}

/// The volumes that some container mounts or reads variables from. The others are left alone, as by
/// kubelets: what they name need not exist.
pub(super) fn used(pod: &Pod) -> BTreeSet<&str> {
    let mounted = pod.containers().flat_map(|container| container.volume_mounts());
    let mounted = mounted.map(|mount| &*mount.name);
    let files = pod.environments().sources().filter_map(|source| source.file_key_ref.as_ref());
    mounted.chain(files.map(|file| &*file.volume_name)).collect()
}

/// Refuses names that are not fit for a path.
pub(super) fn check_name(name: &str) -> Result<(), VolumeFault> {
    match label_faults(name).into_iter().next() {
        Some(why) => Err(VolumeFault::Name { name: name.to_owned(), why }),
        None => Ok(()),
    }
}

/// The field that is set beside the name.
fn other_kind(volume: &Volume) -> Option<String> {
    let volume = serde_json::to_value(volume).ok()?;
    volume.as_object()?.keys().find(|key| *key != "name").cloned()
}
