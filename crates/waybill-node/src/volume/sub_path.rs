//! A part of a volume as a mount of its own.
//!
//! Pods write in their volumes while we look, so no path is used twice: the kernel resolves it once,
//! inside the volume, and what it gave us a handle to is what gets mounted.
//!
//! Runtimes want a path, so it is mounted below the directory of the pod, and only until the container has it:
//! a part of the machine must not be found there by whoever deletes the state directory.

use std::{
    ffi::OsStr,
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat2, statat,
    },
    io::Errno,
    mount::mount_bind,
};

use super::{
    error::{Doing, VolumeFault},
    mount,
};

/// A walk is begun again when something in its way was renamed meanwhile, so often at most.
const TRIES: usize = 1000;

/// Links in a volume lead to places in the volume, whatever they say.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Refuses what is no path inside a volume.
pub(super) fn check(path: &str) -> Result<(), VolumeFault> {
    let refuse = |why| Err(VolumeFault::Path { path: path.to_owned(), why });
    if Path::new(path).is_absolute() {
        return refuse("a subPath must not be an absolute path");
    }
    if Path::new(path).components().any(|part| part == Component::ParentDir) {
        return refuse("a subPath must not contain '..'");
    }
    Ok(())
}

/// Mounts `path` inside `volume` at `target`, in place of what is mounted there. A part of the path that
/// is missing becomes a directory.
pub(super) fn bind(volume: &Path, path: &str, target: &Path) -> Result<(), VolumeFault> {
    let root =
        openat2(CWD, volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())
            .doing("opening", volume)?;
    let found = open_or_make(&root, path).map_err(|error| match why_not(error) {
        Some(why) => VolumeFault::Path { path: path.to_owned(), why },
        None => VolumeFault::Io {
            doing: format!("resolving the subPath {path:?}"),
            error: error.into(),
        },
    })?;
    make_target(target, &found)?;
    mount_bind(handle_path(&found), target).doing("mounting a subPath at", target)
}

/// Undoes [`bind`] for every target in `directory`. What was not mounted is fine.
pub(super) fn release(directory: &Path) -> Result<(), VolumeFault> {
    let targets = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        targets => targets.doing("listing", directory)?,
    };
    for target in targets {
        mount::unmount_all_at(&target.doing("listing", directory)?.path())?;
    }
    Ok(())
}

/// What is wrong with a path, for those who wrote it or put links in its way.
fn why_not(error: Errno) -> Option<&'static str> {
    Some(match error {
        Errno::NOENT => "a symbolic link in it leads to something that the volume does not have",
        Errno::LOOP => "it leads through too many symbolic links, or around in a circle",
        Errno::NOTDIR => "a part of it is a file and not a directory",
        Errno::AGAIN => "parts of it were replaced again and again while it was looked for",
        _ => return None,
    })
}

/// By this path a handle is reached without another walk.
fn handle_path(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// A place of the same type as what is to be mounted there, with nothing mounted on it.
fn make_target(target: &Path, found: &OwnedFd) -> Result<(), VolumeFault> {
    if fs::symlink_metadata(target).is_ok() {
        mount::unmount_all_at(target)?;
        // What was there is ours and empty: an empty file, or an empty directory.
        let removed = match fs::symlink_metadata(target).doing("looking at", target)?.is_dir() {
            true => fs::remove_dir(target),
            false => fs::remove_file(target),
        };
        removed.doing("removing", target)?;
    }
    if let Some(parent) = target.parent() {
        mount::make_directory(parent)?;
    }
    let stat = fstat(found).doing("looking at the subPath for", target)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        fs::create_dir(target).doing("making", target)
    } else {
        fs::File::create_new(target).map(drop).doing("making", target)
    }
}

fn open_or_make(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    for _ in 0..TRIES {
        let found = match open_inside(root, path) {
            Err(Errno::NOENT) => match make_directories(root, path)? {
                Made::All(found) => Ok(found),
                // Nothing changes as long as nobody touches the link.
                Made::UpToLink => return Err(Errno::NOENT),
                Made::TooLate => Err(Errno::AGAIN),
            },
            found => found,
        };
        match found {
            // Renamed while the kernel walked, or removed or made between two of our steps.
            Err(Errno::AGAIN) => {}
            found => return found,
        }
    }
    Err(Errno::AGAIN)
}

fn open_inside(root: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), INSIDE)
}

/// What came of making the parts of a path.
enum Made {
    All(OwnedFd),
    /// In place of a part stands a link that leads nowhere.
    UpToLink,
    /// Somebody else made or removed a part meanwhile.
    TooLate,
}

/// Makes what is missing, each part in the directory that is held open above it. New directories get the
/// mode of the volume, so that whoever may write there may write here.
fn make_directories(root: &OwnedFd, path: &str) -> Result<Made, Errno> {
    let mode = Mode::from_raw_mode(fstat(root)?.st_mode & 0o7777);
    let mut walked = std::path::PathBuf::new();
    let mut above: Option<OwnedFd> = None;
    for part in Path::new(path).components() {
        let Component::Normal(name) = part else { continue };
        walked.push(name);
        let parent = above.as_ref().unwrap_or(root);
        let next = match open_inside(root, &*walked) {
            Err(Errno::NOENT) => match make_directory(parent, name, mode) {
                Err(Errno::EXIST) if is_link(parent, name) => return Ok(Made::UpToLink),
                Err(Errno::AGAIN | Errno::EXIST | Errno::NOENT) => return Ok(Made::TooLate),
                made => made?,
            },
            Err(Errno::AGAIN) => return Ok(Made::TooLate),
            found => found?,
        };
        above = Some(next);
    }
    Ok(above.map_or(Made::TooLate, Made::All))
}

/// Fails if something of that name is there by now: a link that leads nowhere, for one.
fn make_directory(parent: &OwnedFd, name: &OsStr, mode: Mode) -> Result<OwnedFd, Errno> {
    mkdirat(parent, name, Mode::from_raw_mode(0o700))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let made = openat2(parent, name, flags, Mode::empty(), resolve)?;
    fchmod(&made, mode)?;
    Ok(made)
}

fn is_link(parent: &OwnedFd, name: &OsStr) -> bool {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}
