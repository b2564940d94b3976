//! Clears away the directory of a pod.
//!
//! First everything mounted below it is unmounted, and only if nothing is left mounted is anything
//! deleted: what lies behind a mount may belong to somebody else. Pods can nest directories deeper than
//! a stack or a path can follow, so the tree is flattened, not walked: directories found in a directory
//! are moved next to it.

use std::{ffi::CString, fs, io, os::fd::OwnedFd, path::Path};

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

pub(super) fn delete(directory: &Path) -> Result<(), Errno> {
    let root = match open_directory(CWD, directory, ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOENT) => return Ok(()),
        root => root?,
    };
    let mut moved = 0_u64;
    // Each round empties the directories that the round before left in the root, one level of each.
    while flatten(&root, &mut moved)? {}
    drop(root);
    unlinkat(CWD, directory, AtFlags::REMOVEDIR)
}

/// Deletes every entry of the root that is no directory, and every directory after its own entries were
/// deleted or moved into the root. Says whether there was anything.
fn flatten(root: &OwnedFd, moved: &mut u64) -> Result<bool, Errno> {
    let entries = entries(root)?;
    for (name, kind) in &entries {
        if !is_directory(root, name, *kind)? {
            delete_file(root, name)?;
            continue;
        }
        let inner = open_directory(root, name.as_c_str(), INSIDE)?;
        for (below, kind) in self::entries(&inner)? {
            if is_directory(&inner, &below, kind)? {
                move_up(&inner, &below, root, moved)?;
            } else {
                delete_file(&inner, &below)?;
            }
        }
        match unlinkat(root, name.as_c_str(), AtFlags::REMOVEDIR) {
            // Somebody still writes; the next round sees it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(!entries.is_empty())
}

/// One name, no link, no other mount.
const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

fn open_directory(
    at: impl std::os::fd::AsFd,
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
fn is_directory(at: &OwnedFd, name: &CString, kind: FileType) -> Result<bool, Errno> {
    if kind != FileType::Unknown {
        return Ok(kind == FileType::Directory);
    }
    let stat = statat(at, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn delete_file(at: &OwnedFd, name: &CString) -> Result<(), Errno> {
    match unlinkat(at, name.as_c_str(), AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// Moves a directory into the root under a name that is free: that of an empty directory made for it.
fn move_up(from: &OwnedFd, name: &CString, root: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved += 1;
        let free = format!("..moved-{moved}");
        match mkdirat(root, &*free, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => continue,
            made => made?,
        }
        return match renameat(from, name.as_c_str(), root, &*free) {
            Err(Errno::NOENT) => Ok(()),
            moved => moved,
        };
    }
}
