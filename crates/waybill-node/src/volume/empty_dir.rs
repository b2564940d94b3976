//! Directories that live as long as their pod, on disk or in memory.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use waybill_core::quantity::Quantity;

use super::{
    error::{Doing, VolumeFault},
    mount,
    ownership::{self, Access},
};
use crate::{environment::NodeFacts, pod::Pod};

/// What has to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EmptyDir {
    medium: Medium,
    mode: u32,
    group: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Disk,
    /// At most so many bytes, or whatever the machine has.
    Memory(Option<u64>),
}

/// What a directory on disk may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiskLimit {
    pub(super) bytes: u64,
    pub(super) text: String,
}

/// The limit of a directory on disk, if it has one. One in memory is limited by its file system.
pub(super) fn disk_limit(source: &EmptyDirVolumeSource) -> Option<DiskLimit> {
    if !source.medium.as_deref().unwrap_or_default().is_empty() {
        return None;
    }
    let text = source.size_limit.as_ref()?.0.clone();
    let bytes = u64::try_from(Quantity::parse(&text).ok()?.value()).ok()?;
    (bytes > 0).then_some(DiskLimit { bytes, text })
}

impl EmptyDir {
    pub(super) fn new(
        source: Option<&EmptyDirVolumeSource>,
        pod: &Pod,
        node: &NodeFacts,
    ) -> Result<Self, VolumeFault> {
        let medium = match source.and_then(|source| source.medium.as_deref()).unwrap_or_default() {
            "" => Medium::Disk,
            "Memory" => Medium::Memory(size(source, pod, node)?),
            other => {
                let value = other.to_owned();
                return Err(VolumeFault::Unsupported { what: "medium of an emptyDir", value });
            }
        };
        // A file system in memory keeps the sticky bit that the kernel gives it; sub-paths have the mode of their volume.
        let mode = if medium == Medium::Disk { 0o777 } else { 0o1777 };
        Ok(Self { medium, mode, group: ownership::fs_group(pod) })
    }

    /// Makes it, unless it is there. What pods did to it since then is theirs.
    pub(super) fn make(self, directory: &Path) -> Result<(), VolumeFault> {
        match self.medium {
            Medium::Disk => self.make_on_disk(directory),
            Medium::Memory(size) => {
                mount::make_directory(directory)?;
                if mount::is_mounted(directory)? {
                    return Ok(());
                }
                mount::mount_memory(directory, size, self.mode)?;
                self.give(directory)
            }
        }
    }

    /// Under another name first, so that a directory that is there is a complete one.
    fn make_on_disk(self, directory: &Path) -> Result<(), VolumeFault> {
        if directory.is_dir() {
            return Ok(());
        }
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(VolumeFault::Interrupted);
        };
        mount::make_directory(parent)?;
        // No volume has a dot in its name.
        let new = parent.join(format!("{}.new", name.display()));
        match fs::create_dir(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.doing("making", &new)?,
        }
        let mode = fs::Permissions::from_mode(self.mode);
        fs::set_permissions(&new, mode).doing("changing mode of", &new)?;
        self.give(&new)?;
        fs::rename(&new, directory).doing("making", directory)
    }

    fn give(self, directory: &Path) -> Result<(), VolumeFault> {
        match self.group {
            Some(group) => ownership::give_to_group(directory, group, Access::ReadWrite),
            None => Ok(()),
        }
    }
}

/// The smallest of what the volume may have, what its containers may use together, and what the node has.
fn size(
    source: Option<&EmptyDirVolumeSource>,
    pod: &Pod,
    node: &NodeFacts,
) -> Result<Option<u64>, VolumeFault> {
    let limit = source.and_then(|source| source.size_limit.as_ref());
    let limit = limit.map(|text| Quantity::parse(&text.0)).transpose();
    let limit = limit.map_err(|why| VolumeFault::Quantity { what: "sizeLimit", why })?;
    let node = node.allocatable.get("memory").copied();
    let sizes = [limit, memory_of_containers(pod), node].into_iter().flatten();
    let sizes = sizes.filter_map(|size| u64::try_from(size.value()).ok());
    Ok(sizes.filter(|size| *size > 0).min())
}

/// The sum of the limits, if every container has one.
fn memory_of_containers(pod: &Pod) -> Option<Quantity> {
    let mut sum = Quantity::default();
    for container in &pod.spec().containers {
        let limits = container.resources.as_ref()?.limits.as_ref()?;
        sum = sum.saturating_add(Quantity::parse(&limits.get("memory")?.0).ok()?);
    }
    Some(sum)
}
