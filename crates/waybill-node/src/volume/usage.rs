//! What a directory takes on its disk.
//!
//! Pods write there while we look, as deep as they like. So no path is joined and no link followed: one
//! directory is open at a time, and the way back up is checked.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2,
        statat,
    },
    io::Errno,
};

use super::error::{Doing, VolumeFault};

/// The unit of what the kernel tells.
const BLOCK: u64 = 512;

/// One name, no link, no other mount.
const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// What something takes of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    /// Files and directories.
    pub(crate) files: u64,
}

impl Taken {
    #[must_use]
    pub(crate) fn saturating_add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }
}

/// What all below `directory` takes, and itself.
pub(super) fn taken(directory: &Path) -> Result<Taken, VolumeFault> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .doing("measuring", directory)?;
    walk(root).doing("measuring", directory)
}

/// A directory on the way from the root to where we are.
struct Level {
    identity: (u64, u64),
    /// Directories in it that were not visited yet.
    below: Vec<CString>,
}

fn walk(root: OwnedFd) -> Result<Taken, Errno> {
    let mut count = Count::default();
    let mut here = root;
    let mut levels = vec![count.directory(&here)?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.below.pop() {
            // What was removed or replaced meanwhile takes nothing any more.
            let Ok(child) = open_below(&here, &name) else { continue };
            let Ok(level) = count.directory(&child) else { continue };
            here = child;
            levels.push(level);
            continue;
        }
        levels.pop();
        let Some(above) = levels.last() else { break };
        let parent = openat(&here, c"..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        // It was moved meanwhile, and the way back leads elsewhere. The next look may see more.
        if identity(&fstat(&parent)?) != above.identity {
            break;
        }
        here = parent;
    }
    Ok(count.taken)
}

fn open_below(directory: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(directory, name, flags, Mode::empty(), INSIDE)
}

#[derive(Default)]
struct Count {
    taken: Taken,
    /// Files with several names, each of which counts once.
    linked: HashSet<(u64, u64)>,
}

impl Count {
    /// Counts a directory and the files in it.
    fn directory(&mut self, directory: &OwnedFd) -> Result<Level, Errno> {
        let own = fstat(directory)?;
        self.add(&own);
        let mut below = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(found) = stat_of(directory, name) else { continue };
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                below.push(name.to_owned());
            } else if found.st_nlink < 2 || self.linked.insert(identity(&found)) {
                self.add(&found);
            }
        }
        Ok(Level { identity: identity(&own), below })
    }

    fn add(&mut self, found: &Stat) {
        let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
        let one = Taken { bytes: blocks.saturating_mul(BLOCK), files: 1 };
        self.taken = self.taken.saturating_add(one);
    }
}

fn stat_of(directory: impl AsFd, name: &CStr) -> Result<Stat, Errno> {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn identity(found: &Stat) -> (u64, u64) {
    (found.st_dev, found.st_ino)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn bytes(directory: &Path) -> u64 {
        taken(directory).unwrap().bytes
    }

    #[test]
    fn files_count_once_and_links_lead_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let empty = bytes(directory.path());
        fs::write(outside.path().join("large"), vec![1; 1 << 20]).unwrap();
        symlink(outside.path(), path("link")).unwrap();
        assert!(bytes(directory.path()) < empty + (1 << 16));
        fs::create_dir_all(path("a/b/c")).unwrap();
        fs::create_dir(path("d")).unwrap();
        fs::write(path("a/b/c/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(path("a/b/c/file"), path("d/same")).unwrap();
        let found = bytes(directory.path());
        assert!(((1 << 20)..(1 << 20) + (1 << 18)).contains(&found), "{found}");
        // Itself, a, b, c and d, the link and the file.
        assert_eq!(taken(directory.path()).unwrap().files, 7);
    }

    #[test]
    fn no_tree_is_too_deep() {
        let directory = tempfile::tempdir().unwrap();
        let mut here = OwnedFd::from(fs::File::open(directory.path()).unwrap());
        for _ in 0..3000 {
            rustix::fs::mkdirat(&here, c"d", Mode::from_raw_mode(0o700)).unwrap();
            here = open_below(&here, c"d").unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(&here, c"file", flags, Mode::from_raw_mode(0o600)).unwrap();
        rustix::io::write(&file, &vec![1; 1 << 16]).unwrap();
        assert!(bytes(directory.path()) >= 1 << 16);
        super::super::remove::delete(directory.path()).unwrap();
    }
}
