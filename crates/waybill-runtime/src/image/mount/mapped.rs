//! Layers under the ids of a user namespace.
//!
//! An overlay cannot show its files under other ids, but those below it can: the directory of all layers is mounted once more for
//! the moment in which the overlay is made, with its ids mapped and nobody able to write. The overlay keeps what it needs of that.

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, OFlags},
    mount::{MoveMountFlags, UnmountFlags, move_mount, unmount},
};

use crate::{
    IdMap,
    id_map::UserNamespace,
    image::error::{Doing, Result},
    sys,
};

/// The directory of all layers, mounted in a place of its own until this is dropped.
pub(super) struct MappedLayers {
    place: PathBuf,
}

impl MappedLayers {
    /// Mounts `layers` at `place`, which is made.
    pub(super) fn mount(layers: &Path, place: PathBuf, user: &UserNamespace) -> Result<Self> {
        let doing = || format!("mapping the ids of {}", layers.display());
        let mount = map(layers, &user.pin).doing(doing)?;
        fs::create_dir(&place).doing(doing)?;
        let mapped = Self { place };
        move_mount(&mount, "", CWD, &mapped.place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .doing(doing)?;
        Ok(mapped)
    }

    pub(super) fn path(&self) -> &Path {
        &self.place
    }
}

impl Drop for MappedLayers {
    fn drop(&mut self) {
        remove(&self.place);
    }
}

/// Removes what a runtime that was killed left there. Before anything above is removed as a tree: what is mounted there is not the
/// container's.
pub(super) fn remove(place: &Path) {
    let _ = unmount(place, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
    let _ = fs::remove_dir(place);
}

/// Gives a directory to who stands for its owner in a user namespace; to its root if nobody does.
pub(super) fn give(directory: &Path, map: IdMap) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, rustix::fs::Mode::empty())?;
    let stat = rustix::fs::fstat(&directory)?;
    let outside = |id| map.on_the_machine(id).unwrap_or(map.root());
    let owner = rustix::fs::Uid::from_raw(outside(stat.st_uid));
    let group = rustix::fs::Gid::from_raw(outside(stat.st_gid));
    // That takes bits away which the image's root may have.
    rustix::fs::fchown(&directory, Some(owner), Some(group))?;
    Ok(rustix::fs::fchmod(&directory, rustix::fs::Mode::from_raw_mode(stat.st_mode & 0o7777))?)
}

fn map(layers: &Path, namespace: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let namespace = File::open(namespace)?;
    let mount = sys::clone_mount(layers, libc::MOUNT_ATTR_RDONLY)?;
    sys::map_ids(mount.as_fd(), namespace.as_fd())?;
    Ok(mount)
}
