//! Removes a tree without ever leaving its file system.
//!
//! Each directory is opened below the one before it by a call that refuses links and mounts, bind mounts of the same disk
//! included, so a mount that appears meanwhile ends the removal and is not gone through.

use std::{
    ffi::{CStr, CString},
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use anyhow::{Context, Result, bail};
use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, openat2, unlinkat},
    io::Errno,
};

/// Directories below one another; more are nobody's of ours, and each holds a descriptor open.
const DEEPEST: usize = 400;

/// Removes what is in `dir`, and `dir` itself unless it is a mount. Returns how many entries went.
pub(super) fn tree(dir: &Path) -> Result<u64> {
    let open = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    let mut removed = 0;
    empty(open.as_fd(), dir, 0, &mut removed)?;
    match unlinkat(CWD, dir, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(removed + 1),
        Err(Errno::BUSY) => Ok(removed),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", dir.display())),
    }
}

fn empty(dir: BorrowedFd<'_>, path: &Path, depth: usize, removed: &mut u64) -> Result<()> {
    if depth > DEEPEST {
        bail!("{} lies too deep; remove it yourself, and try again", path.display());
    }
    let doing =
        |name: &CStr| format!("cannot remove {}", path.join(&*name.to_string_lossy()).display());
    for name in names(dir).with_context(|| format!("cannot read {}", path.display()))? {
        match unlinkat(dir, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => *removed += 1,
            Err(Errno::ISDIR) => {
                let below = enter(dir, &name).map_err(|error| match error {
                    Errno::XDEV => {
                        anyhow::anyhow!("something is mounted there; unmount it, and try again")
                    }
                    error => error.into(),
                });
                let below = below.with_context(|| doing(&name))?;
                empty(below.as_fd(), &path.join(&*name.to_string_lossy()), depth + 1, removed)?;
                unlinkat(dir, &name, AtFlags::REMOVEDIR).with_context(|| doing(&name))?;
                *removed += 1;
            }
            Err(error) => return Err(error).with_context(|| doing(&name)),
        }
    }
    Ok(())
}

fn enter(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(dir, name, flags, Mode::empty(), resolve)
}

/// All names at once: entries go while they are read.
fn names(dir: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_tree_goes_and_what_links_lead_to_stays() {
        let root = tempfile::tempdir().unwrap();
        let precious = root.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "").unwrap();
        let state = root.path().join("state");
        fs::create_dir_all(state.join("a/b/c")).unwrap();
        fs::write(state.join("a/b/file"), "").unwrap();
        symlink(&precious, state.join("a/link")).unwrap();
        assert_eq!(tree(&state).unwrap(), 6);
        assert!(!state.exists() && precious.join("file").exists());
    }

    #[test]
    fn a_tree_that_is_too_deep_is_said() {
        let root = tempfile::tempdir().unwrap();
        let deep = (0..=DEEPEST + 1).fold(root.path().join("state"), |path, _| path.join("d"));
        fs::create_dir_all(deep).unwrap();
        let told = format!("{:#}", tree(&root.path().join("state")).unwrap_err());
        assert!(told.contains("lies too deep"), "{told}");
    }
}
