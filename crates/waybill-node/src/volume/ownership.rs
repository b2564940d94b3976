//! Who may read and write in a volume.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use k8s_openapi::api::core::v1::Container;
use rustix::fs::{AtFlags, CWD, Gid, chownat};

use super::error::{Doing, VolumeFault};
use crate::pod::{ContainerSpec, Pod};

/// The group that owns the pod's volumes.
pub(super) fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec().security_context.as_ref()?;
    context.fs_group.and_then(|group| u32::try_from(group).ok())
}

/// The user that all containers of the pod run as, if the pod says so for each.
pub(super) fn only_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec().security_context.as_ref().and_then(|context| context.run_as_user);
    let user = |container: &Container| {
        let context = container.security_context.as_ref();
        context.and_then(|context| context.run_as_user).or(of_pod)
    };
    let mut users = pod.containers().map(|container| match container.container {
        ContainerSpec::Ephemeral(container) => {
            let context = container.security_context.as_ref();
            context.and_then(|context| context.run_as_user).or(of_pod)
        }
        ContainerSpec::Usual(container) => user(container),
    });
    let first = users.next()??;
    let is_only = users.all(|user| user == Some(first));
    if is_only { u32::try_from(first).ok() } else { None }
}

/// What a group is let do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    ReadWrite,
}

/// Gives everything at and below `path` to a group. Links are given, too, and not followed.
pub(super) fn give_to_group(path: &Path, group: u32, access: Access) -> Result<(), VolumeFault> {
    let metadata = fs::symlink_metadata(path).doing("looking at", path)?;
    let group_id = Some(Gid::from_raw(group));
    chownat(CWD, path, None, group_id, AtFlags::SYMLINK_NOFOLLOW)
        .doing("changing group of", path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = mode_for_group(metadata.permissions().mode(), metadata.is_dir(), access);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).doing("changing mode of", path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).doing("reading", path)? {
            give_to_group(&entry.doing("reading", path)?.path(), group, access)?;
        }
    }
    Ok(())
}

/// The group gets what the owner has for certain, and directories pass their group on.
fn mode_for_group(mode: u32, is_directory: bool, access: Access) -> u32 {
    let shared = match access {
        Access::Read => 0o440,
        Access::ReadWrite => 0o660,
    };
    let directory = if is_directory { 0o2110 } else { 0 };
    (mode & 0o7777) | shared | directory
}
