//! A directory into which a stranger's files are put.
//!
//! The only file of this module's parent that touches the file system. Parents are opened with
//! `RESOLVE_IN_ROOT`; the last component is never followed.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use rustix::{
    fs::{
        self, AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps,
        Uid, XattrFlags,
    },
    io::Errno,
};

use super::bad;
use crate::image::{
    error::{Doing, Result},
    tar_reader::{Entry, Kind, Mtime, Shown},
};

const OPAQUE_ATTRIBUTE: &str = "trusted.overlay.opaque";

/// What a directory gets that the archive uses without holding it.
const IMPLIED_MODE: Mode = Mode::from_raw_mode(0o755);

pub(super) struct Tree {
    root: OwnedFd,
    /// The directory that was used last; archives hold one directory after the other.
    last: Option<(PathBuf, Rc<OwnedFd>)>,
    implied: BTreeSet<PathBuf>,
}

impl Tree {
    pub(super) fn open(root: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat(CWD, root, flags, Mode::empty())
            .doing(|| format!("opening {}", root.display()))?;
        Ok(Self { root, last: None, implied: BTreeSet::from([PathBuf::new()]) })
    }

    pub(super) fn into_implied(self) -> Vec<PathBuf> {
        self.implied.into_iter().collect()
    }

    pub(super) fn forget_implied(&mut self, path: &Path) {
        self.implied.remove(path);
    }

    pub(super) fn create_file(&mut self, parent: &Path, name: &[u8]) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let create = |directory: &OwnedFd| {
            fs::openat(directory, name, flags | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR)
        };
        self.place(parent, name, create).map(File::from)
    }

    /// A directory that is there already stays, as does what is in it.
    pub(super) fn make_directory(&mut self, parent: &Path, name: &[u8]) -> Result<OwnedFd> {
        let above = self.directory(parent)?;
        let made = fs::mkdirat(&above, name, IMPLIED_MODE);
        let is_new = made != Err(Errno::EXIST);
        if is_new {
            made.doing(|| shown("making the directory", parent, name))?;
        } else if !is_directory(&above, name) {
            self.replace_by_directory(&above, parent, name)?;
        }
        open_directory(&above, name).doing(|| shown("opening", parent, name))
    }

    pub(super) fn symlink(&mut self, parent: &Path, name: &[u8], target: &[u8]) -> Result<()> {
        if target.is_empty() || target.contains(&0) {
            return Err(bad(name, "is a symbolic link to nothing"));
        }
        self.place(parent, name, |directory| fs::symlinkat(target, directory, name))
    }

    pub(super) fn link(
        &mut self,
        parent: &Path,
        name: &[u8],
        target_parent: &Path,
        target_name: &[u8],
    ) -> Result<()> {
        if (parent, name) == (target_parent, target_name) {
            return Err(bad(name, "is a hard link to itself"));
        }
        let not_there = |_| bad(name, "is a hard link to a file that does not come before it");
        let target = self.resolve(target_parent).map_err(not_there)?;
        fs::statat(&target, target_name, AtFlags::SYMLINK_NOFOLLOW).map_err(not_there)?;
        self.place(parent, name, |directory| {
            fs::linkat(&target, target_name, directory, name, AtFlags::empty())
        })
    }

    pub(super) fn make_node(&mut self, parent: &Path, name: &[u8], kind: &Kind) -> Result<()> {
        let (file_type, device) = match *kind {
            Kind::Character { major, minor } => {
                (FileType::CharacterDevice, fs::makedev(major, minor))
            }
            Kind::Block { major, minor } => (FileType::BlockDevice, fs::makedev(major, minor)),
            _ => (FileType::Fifo, 0),
        };
        self.place(parent, name, |directory| {
            fs::mknodat(directory, name, file_type, Mode::RUSR | Mode::WUSR, device)
        })
    }

    /// Hides `name` of the layers below. What this layer itself has of that name stays.
    pub(super) fn white_out(&mut self, parent: &Path, name: &[u8]) -> Result<()> {
        let above = self.directory(parent)?;
        let made =
            fs::mknodat(&above, name, FileType::CharacterDevice, Mode::empty(), WHITEOUT_DEVICE);
        if made == Err(Errno::EXIST) {
            if is_directory(&above, name) {
                let directory = open_directory(&above, name);
                let directory = directory.doing(|| shown("opening", parent, name))?;
                make_opaque(&directory).doing(|| shown("marking", parent, name))?;
            }
            return Ok(());
        }
        made.doing(|| shown("hiding", parent, name))
    }

    /// Hides all that the layers below have in `directory`.
    pub(super) fn set_opaque(&mut self, directory: &Path) -> Result<()> {
        let handle = self.directory(directory)?;
        let readable = reopen(&handle).doing(|| format!("opening {}", directory.display()))?;
        make_opaque(&readable).doing(|| format!("marking {}", directory.display()))
    }

    /// Owner, mode and time of what is not a file or directory, without following it.
    pub(super) fn set_attributes(
        &mut self,
        parent: &Path,
        name: &[u8],
        entry: &Entry,
    ) -> Result<()> {
        let directory = self.directory(parent)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let set = || -> rustix::io::Result<()> {
            let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
            fs::chownat(&directory, name, Some(uid), Some(gid), flags)?;
            if !matches!(entry.kind, Kind::Symlink { .. }) {
                let mode = Mode::from_raw_mode(entry.mode);
                fs::chmodat(&directory, name, mode, AtFlags::empty())?;
            }
            fs::utimensat(&directory, name, &timestamps(entry.mtime), flags)
        };
        set().doing(|| shown("setting the attributes of", parent, name))
    }

    pub(super) fn root_for_attributes(&self) -> Result<OwnedFd> {
        reopen(&self.root).doing(|| "opening a layer's root")
    }

    /// A directory that was replaced or whited out since needs no time.
    pub(super) fn set_directory_time(&self, path: &Path, mtime: Mtime) -> Result<()> {
        match self.resolve(path).and_then(|directory| reopen(&directory)) {
            Ok(directory) => set_time(&directory, mtime)
                .doing(|| format!("setting the time of {}", path.display())),
            Err(_) => Ok(()),
        }
    }

    /// Copies mode, owner and time of `path` from the first of `below` that has it as a directory.
    pub(super) fn adopt(&self, path: &Path, below: &[Self]) -> Result<()> {
        let model = below.iter().find_map(|layer| layer.resolve(path).ok());
        // What was replaced since it was implied is no longer there, and needs nothing.
        let (Some(model), Ok(own)) = (model, self.resolve(path)) else { return Ok(()) };
        let adopt = || copy_attributes(&model, &reopen(&own)?);
        adopt().doing(|| format!("setting the attributes of {}", path.display()))
    }

    /// Puts something new at `name`, in place of what was there: the last entry of a name wins.
    fn place<T>(
        &mut self,
        parent: &Path,
        name: &[u8],
        make: impl Fn(&OwnedFd) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let directory = self.directory(parent)?;
        let mut made = make(&directory);
        if matches!(made, Err(Errno::EXIST)) {
            self.remove(&directory, name).doing(|| shown("replacing", parent, name))?;
            made = make(&directory);
        }
        made.doing(|| shown("making", parent, name))
    }

    fn replace_by_directory(&mut self, above: &OwnedFd, parent: &Path, name: &[u8]) -> Result<()> {
        let was_hidden = is_whiteout(above, name);
        let replace = || -> io::Result<()> {
            fs::unlinkat(above, name, AtFlags::empty())?;
            fs::mkdirat(above, name, IMPLIED_MODE)?;
            if was_hidden {
                make_opaque(&open_directory(above, name)?)?;
            }
            Ok(())
        };
        self.last = None;
        replace().doing(|| shown("replacing", parent, name))
    }

    fn remove(&mut self, directory: &OwnedFd, name: &[u8]) -> io::Result<()> {
        match fs::unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                self.last = None;
                let directory = format!("/proc/self/fd/{}", raw(directory));
                std::fs::remove_dir_all(Path::new(&directory).join(as_path(name)))
            }
            other => Ok(other?),
        }
    }

    /// Opens a directory of the layer, and makes it and those above it if they are missing.
    fn directory(&mut self, path: &Path) -> Result<Rc<OwnedFd>> {
        if let Some((last, directory)) = &self.last
            && last == path
        {
            return Ok(Rc::clone(directory));
        }
        let opened = match self.resolve(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => self.imply(path)?,
            other => other.doing(|| format!("opening {}", path.display()))?,
        };
        let opened = Rc::new(opened);
        self.last = Some((path.to_owned(), Rc::clone(&opened)));
        Ok(opened)
    }

    fn imply(&mut self, path: &Path) -> Result<OwnedFd> {
        let Some((parent, name)) = split(path) else {
            return Err(bad(b"/", "cannot be opened"));
        };
        let above = self.directory(parent)?;
        match fs::mkdirat(&above, name, IMPLIED_MODE) {
            Err(Errno::EXIST) if is_whiteout(&above, name) => {
                self.replace_by_directory(&above, parent, name)?;
            }
            Err(Errno::EXIST) => {
                let why = "is used as a directory and is none, or a link to nothing";
                return Err(bad(path.as_os_str().as_bytes(), why));
            }
            other => other.doing(|| shown("making the directory", parent, name))?,
        }
        self.implied.insert(path.to_owned());
        open_directory(&above, name).doing(|| shown("opening", parent, name))
    }

    fn resolve(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        loop {
            // The kernel says so when something was renamed meanwhile, anywhere.
            match fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                other => return other,
            }
        }
    }
}

/// Owner, mode and extended attributes, in the order in which none undoes another.
pub(super) fn set_metadata(file: &impl AsFd, entry: &Entry) -> rustix::io::Result<()> {
    fs::fchown(file, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))?;
    fs::fchmod(file, Mode::from_raw_mode(entry.mode))?;
    for (name, value) in &entry.xattrs {
        if is_welcome(name) {
            fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

pub(super) fn set_time(file: &impl AsFd, mtime: Mtime) -> rustix::io::Result<()> {
    fs::futimens(file, &timestamps(mtime))
}

pub(super) fn copy(from: &mut impl Read, mut to: &File, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        match from.read(buffer)? {
            0 => return Ok(()),
            count => to.write_all(buffer.get(..count).unwrap_or_default())?,
        }
    }
}

/// Parent and name; nothing for the root.
pub(super) fn split(path: &Path) -> Option<(&Path, &[u8])> {
    Some((path.parent()?, path.file_name()?.as_bytes()))
}

pub(super) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Copies mode, owner and time from one directory to another.
pub(in crate::image) fn copy_attributes(
    from: &impl AsFd,
    to: &impl AsFd,
) -> rustix::io::Result<()> {
    let Stat { st_mode, st_uid, st_gid, st_mtime, st_mtime_nsec, .. } =
        fs::statat(from, "", AtFlags::EMPTY_PATH)?;
    fs::fchown(to, Some(Uid::from_raw(st_uid)), Some(Gid::from_raw(st_gid)))?;
    fs::fchmod(to, Mode::from_raw_mode(st_mode & 0o7777))?;
    let time = Timespec { tv_sec: st_mtime, tv_nsec: i64::try_from(st_mtime_nsec).unwrap_or(0) };
    fs::futimens(to, &Timestamps { last_access: time, last_modification: time })
}

/// What an image may set. Not `trusted.*`, by which it would speak to overlayfs, and not the labels
/// of this machine's security modules.
fn is_welcome(attribute: &[u8]) -> bool {
    attribute == b"security.capability"
        || attribute.starts_with(b"user.") && !attribute.starts_with(b"user.overlay.")
}

/// The device number of a whiteout.
const WHITEOUT_DEVICE: u64 = 0;

fn is_whiteout(directory: &OwnedFd, name: &[u8]) -> bool {
    fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && stat.st_rdev == WHITEOUT_DEVICE
    })
}

fn is_directory(directory: &OwnedFd, name: &[u8]) -> bool {
    fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn make_opaque(directory: &OwnedFd) -> rustix::io::Result<()> {
    fs::fsetxattr(directory, OPAQUE_ATTRIBUTE, b"y", XattrFlags::empty())
}

fn open_directory(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(directory, name, flags, Mode::empty())
}

/// A handle for attributes, from one that is a path alone.
fn reopen(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    open_directory(directory, b".")
}

fn timestamps(mtime: Mtime) -> Timestamps {
    let time = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

fn raw(handle: &OwnedFd) -> i32 {
    use std::os::fd::AsRawFd;
    handle.as_raw_fd()
}

fn shown(doing: &str, parent: &Path, name: &[u8]) -> String {
    format!("{doing} {}", Shown(parent.join(as_path(name)).as_os_str().as_bytes()))
}
