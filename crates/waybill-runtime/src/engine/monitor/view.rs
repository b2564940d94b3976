//! Which cgroups libcontainer and the container get to see.
//!
//! We make a container's cgroups and enter them before libcontainer runs. It would enter them a second time, which on
//! cgroup v1 costs more than everything else it does, and on failure it would kill every process in them, ourselves
//! included. So it runs in a mount namespace in which no cgroup is mounted. What the container itself shall see of
//! its cgroups is put together there beforehand.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags},
    thread::UnshareFlags,
};

use crate::engine::{cgroup::Cgroup, sys};

const ROOT: &str = "/sys/fs/cgroup";

/// Leaves the machine's mount namespace for one without cgroups. With a `view`, that directory shows the
/// container's own cgroups of the older hierarchies, as they are seen from inside.
pub(super) fn hide_cgroups(cgroup: &Cgroup, view: Option<&Path>) -> io::Result<()> {
    sys::unshare(UnshareFlags::NEWNS)?;
    // What is done below the parent must not reach the machine; everything else stays as shared as it was.
    if rustix::mount::mount_change("/sys", MountPropagationFlags::PRIVATE).is_err() {
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE)?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(ROOT, private)?;
    let mut shown: Vec<(PathBuf, OwnedFd)> = Vec::new();
    if view.is_some() {
        for directory in cgroup.legacy_directories() {
            let (name, path) = directory;
            shown.push((name, sys::clone_mount(&path, 0)?));
        }
    }
    rustix::mount::unmount(ROOT, UnmountFlags::DETACH)?;
    let flags = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    rustix::mount::mount("tmpfs", ROOT, "tmpfs", flags, c"mode=0755")?;
    let Some(view) = view else { return Ok(()) };
    fs::create_dir(view)?;
    for (name, mount) in shown {
        show(view, &name, &mount)?;
    }
    Ok(())
}

/// Mounts one hierarchy, and gives each of several controllers that share it a name of its own.
fn show(view: &Path, name: &Path, mount: &OwnedFd) -> io::Result<()> {
    let place = view.join(name);
    fs::create_dir(&place)?;
    rustix::mount::move_mount(
        mount.as_fd(),
        "",
        rustix::fs::CWD,
        &place,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    let name = name.to_string_lossy();
    for controller in name.split(',').filter(|controller| **controller != *name) {
        symlink(&*name, view.join(controller))?;
    }
    Ok(())
}
