//! Clears away the directory of a pod.
//!
//! First everything mounted below it is unmounted, and only if nothing is left mounted is anything
//! deleted: what lies behind a mount may belong to somebody else. Pods can nest directories deeper than
//! a stack or a path can follow, so the tree is flattened, not walked: directories found in a directory
//! are moved next to it.

use std::{
    ffi::{CStr, CString},
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat2, renameat,
        statat, unlinkat,
    },
    io::Errno,
};

use super::{
    error::{Doing, VolumeFault},
    mount,
};

/// `pods` holds the directories of all pods, `pod` is one of them.
pub(super) fn remove(pods: &Path, pod: &Path) -> Result<(), VolumeFault> {
    // The mount table has no links in its paths.
    let pods = match pods.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.doing("looking at", pods)?,
    };
    let Some(name) = pod.file_name() else { return Ok(()) };
    let pod = pods.join(name);
    for point in mount::mounted_at_or_below(&pod)? {
        mount::unmount_at(&point)?;
    }
    if let Some(point) = mount::mounted_at_or_below(&pod)?.first() {
        return Err(VolumeFault::StillMounted { path: point.display().to_string() });
    }
    if fs::symlink_metadata(&pod).is_ok_and(|found| !found.is_dir()) {
        return fs::remove_file(&pod).doing("removing", &pod);
    }
    delete(&pod).doing("removing", &pod)
}

/// Deletes a directory with everything in it; fails if something is mounted there.
pub(super) fn delete(directory: &Path) -> Result<(), Errno> {
    let root = match open_directory(CWD, directory, ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOENT) => return Ok(()),
        root => root?,
    };
    let mut tree = Tree { root, moved: 0, refilled: 0 };
    // Each round empties the directories that the round before left in the root, one level of each.
    while tree.flatten()? {}
    drop(tree);
    unlinkat(CWD, directory, AtFlags::REMOVEDIR)
}

struct Tree {
    root: OwnedFd,
    /// How many directories were moved into the root.
    moved: u64,
    /// How often somebody wrote into a directory that was just emptied.
    refilled: u32,
}

/// Nobody should write any more; who writes faster than we delete keeps their directory for now.
const REFILLS: u32 = 1000;

impl Tree {
    /// Deletes every entry of the root that is no directory, and every directory after its own entries
    /// were deleted or moved into the root. Says whether there was anything.
    fn flatten(&mut self) -> Result<bool, Errno> {
        let entries = entries(&self.root)?;
        for (name, kind) in &entries {
            if is_directory(&self.root, name, *kind)? {
                self.flatten_directory(name)?;
            } else {
                delete_file(&self.root, name)?;
            }
        }
        Ok(!entries.is_empty())
    }

    fn flatten_directory(&mut self, name: &CStr) -> Result<(), Errno> {
        let inner = open_directory(&self.root, name, INSIDE)?;
        for (below, kind) in entries(&inner)? {
            if is_directory(&inner, &below, kind)? {
                self.move_up(&inner, &below)?;
            } else {
                delete_file(&inner, &below)?;
            }
        }
        match unlinkat(&self.root, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY) if self.refilled < REFILLS => {
                self.refilled += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Moves a directory into the root under a name that is free: that of an empty directory made for
    /// it.
    fn move_up(&mut self, from: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let free = format!("..moved-{}", self.moved);
            match mkdirat(&self.root, &*free, Mode::from_raw_mode(0o700)) {
                Err(Errno::EXIST) => continue,
                made => made?,
            }
            return match renameat(from, name, &self.root, &*free) {
                Err(Errno::NOENT) => Ok(()),
                moved => moved,
            };
        }
    }
}

/// One name, no link, no other mount.
const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

fn open_directory(
    at: impl AsFd,
    name: impl rustix::path::Arg,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(at, name, flags, Mode::empty(), resolve)
}

fn entries(directory: &OwnedFd) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            found.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    Ok(found)
}

/// Some file systems do not say in their lists what an entry is.
fn is_directory(at: &OwnedFd, name: &CStr, kind: FileType) -> Result<bool, Errno> {
    if kind != FileType::Unknown {
        return Ok(kind == FileType::Directory);
    }
    let stat = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn delete_file(at: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match unlinkat(at, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}
