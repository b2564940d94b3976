//! The volumes of a container on their way into it.
//!
//! libcontainer 0.7 gives every mount of a container the propagation of the root and drops what the
//! specification says about a single one. So a volume is bound to a place of ours first, with the
//! propagation that it asked for. That place is in the creator's own mount namespace, which goes with the
//! creator: nobody else ever sees it, no path of the machine leads to it, and nothing has to be undone.
//!
//! libcontainer also makes devices and links in whatever is at `/dev`, and replaces `ptmx` there. A volume
//! on `/dev` is the machine's directory as a rule, so it is mounted when libcontainer is done.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    mount::{
        MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree,
    },
    thread::LinkNameSpaceType,
};

use super::{proc, users};
use crate::engine::{
    request::STAGE,
    sys,
    volume::{Access, Propagation, Volume},
};

/// A volume that has left its place and has no other yet.
pub(super) struct Clone<'a> {
    volume: &'a Volume,
    tree: OwnedFd,
}

/// Takes hold of all volumes, with the propagation that they have on the machine.
/// Those that ask for it show their files under the ids of `namespace`.
pub(super) fn take<'a>(
    volumes: &'a [Volume],
    namespace: Option<&fs::File>,
) -> Result<Vec<Clone<'a>>, String> {
    let take = volumes.iter().map(|volume| {
        let tree = clone_tree(&volume.source, volume.recursive)
            .map_err(|error| fault("open", volume, &error))?;
        if let (true, Some(namespace)) = (volume.mapped, namespace) {
            users::map_ids(&tree, namespace, &volume.source)
                .map_err(|error| fault("map", volume, &error))?;
        }
        Ok(Clone { volume, tree })
    });
    take.collect()
}

/// Puts them where the specification looks for them. The directory above must be private to this process.
pub(super) fn put(clones: &[Clone<'_>]) -> Result<(), String> {
    if clones.is_empty() {
        return Ok(());
    }
    fs::create_dir(STAGE).map_err(|error| format!("cannot make {STAGE}: {error}"))?;
    clones
        .iter()
        .try_for_each(|clone| put_one(clone).map_err(|error| fault("bind", clone.volume, &error)))
}

fn put_one(clone: &Clone<'_>) -> io::Result<()> {
    let Clone { volume, tree } = clone;
    let place = volume.place();
    if is_directory(tree) {
        fs::create_dir(&place)?;
    } else {
        fs::File::create_new(&place)?;
    }
    attach(tree, &place)?;
    let recursive = MountPropagationFlags::REC;
    match volume.propagation {
        Propagation::Private => mount_change(&place, MountPropagationFlags::PRIVATE | recursive)?,
        Propagation::Slave => mount_change(&place, MountPropagationFlags::DOWNSTREAM | recursive)?,
        Propagation::Shared => {}
    }
    Ok(())
}

/// Mounts those volumes that had to wait in the namespace of the container's first process. Returns what was
/// left out.
pub(super) fn put_late(volumes: &[Volume], pid: i32) -> Result<Vec<String>, String> {
    let late: Vec<_> = volumes.iter().filter(|volume| volume.late).collect();
    if late.is_empty() {
        return Ok(Vec::new());
    }
    let enter = |error: io::Error| format!("cannot enter the container's mounts: {error}");
    let clones = late.iter().map(|volume| {
        let tree = clone_with_access(volume);
        tree.map_err(|error| fault("open", volume, &error))
    });
    let clones = clones.collect::<Result<Vec<_>, _>>()?;
    let namespace = fs::File::open(format!("/proc/{pid}/ns/mnt")).map_err(enter)?;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|error| enter(error.into()))?;
    let mut left_out = Vec::new();
    for (volume, tree) in late.into_iter().zip(&clones) {
        match put_one_late(volume, tree) {
            // Kubelets have a file for last words mounted there by default. It is no reason to make one in
            // a directory of the machine, nor to refuse the container.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_directory(tree) => {
                left_out.push(fault("mount", volume, &error));
            }
            result => result.map_err(|error| fault("mount", volume, &error))?,
        }
    }
    Ok(left_out)
}

fn clone_with_access(volume: &Volume) -> io::Result<OwnedFd> {
    let tree = clone_tree(&volume.place(), true)?;
    match volume.access {
        Access::Writable => {}
        Access::Locked => sys::make_read_only(tree.as_fd(), false)?,
        Access::LockedThroughout => sys::make_read_only(tree.as_fd(), true)?,
    }
    if volume.inert {
        sys::make_inert(tree.as_fd())?;
    }
    Ok(tree)
}

/// Nothing is made in another volume: a place that it does not have cannot be mounted on.
fn put_one_late(volume: &Volume, tree: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let target = openat2(CWD, &volume.destination, flags, Mode::empty(), resolve)?;
    if proc::is_proc(&target) {
        return Err(io::Error::other("a link leads into /proc; mount it elsewhere"));
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree.as_fd(), "", target.as_fd(), "", flags)?)
}

fn is_directory(tree: &OwnedFd) -> bool {
    fstat(tree).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn clone_tree(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(CWD, path, flags)?)
}

fn attach(tree: &OwnedFd, place: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(tree.as_fd(), "", CWD, place, flags)?)
}

fn fault(action: &str, volume: &Volume, error: &io::Error) -> String {
    let (source, inside) = (volume.source.display(), volume.destination.display());
    format!("cannot {action} {source} for {inside}: {error}")
}
