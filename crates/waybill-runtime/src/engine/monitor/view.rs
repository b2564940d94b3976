//! Which cgroups libcontainer and the container get to see.
//!
//! We make a container's cgroups and enter them before libcontainer runs. It would enter them a second time, which on
//! cgroup v1 costs more than everything else it does, and on failure it would kill every process in them, ourselves
//! included. So it runs in a mount namespace in which no cgroup is mounted. What the container itself shall see of
//! its cgroups is put together there beforehand.

use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::symlink,
    },
    path::Path,
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags},
    thread::UnshareFlags,
};

use crate::engine::{
    cgroup::{Cgroup, source_of},
    sys,
};

const ROOT: &str = "/sys/fs/cgroup";

/// Leaves the machine's mount namespace for one of our own, in which all is as shared as it was.
pub(super) fn leave_mounts() -> io::Result<()> {
    Ok(sys::unshare(UnshareFlags::NEWNS)?)
}

/// Makes the mount namespace, which must be our own, one without cgroups. With a `view`, that directory has a place for each older
/// hierarchy, and what belongs there, the leaf of the container's processes, is mounted beside it (see [`source_of`]).
pub(super) fn hide_cgroups(cgroup: &Cgroup, view: Option<&Path>) -> io::Result<()> {
    // What is done below the parent must not reach the machine; everything else stays as shared as it was.
    if rustix::mount::mount_change("/sys", MountPropagationFlags::PRIVATE).is_err() {
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE)?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(ROOT, private)?;
    let mut shown = Vec::new();
    if view.is_some() {
        for (name, directory) in cgroup.legacy_leaves() {
            shown.push((name, sys::clone_mount(&directory, 0)?));
        }
    }
    rustix::mount::unmount(ROOT, UnmountFlags::DETACH)?;
    let flags = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    rustix::mount::mount("tmpfs", ROOT, "tmpfs", flags, c"mode=0755")?;
    let Some(view) = view else { return Ok(()) };
    fs::create_dir(view)?;
    shown.iter().try_for_each(|(name, mount)| show(view, name, mount))
}

/// Mounts one hierarchy, and gives each of several controllers that share it a name of its own.
fn show(view: &Path, name: &str, mount: &OwnedFd) -> io::Result<()> {
    let source = source_of(view, name);
    fs::create_dir(&source)?;
    rustix::mount::move_mount(
        mount.as_fd(),
        "",
        rustix::fs::CWD,
        &source,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    fs::create_dir(view.join(name))?;
    for controller in name.split(',').filter(|&controller| controller != name) {
        symlink(name, view.join(controller))?;
    }
    Ok(())
}
