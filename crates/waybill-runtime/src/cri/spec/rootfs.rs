//! Looks into a container's root file system without being led out of it by symbolic links.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{
        CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, fchown, fstat, mkdirat, openat2,
        readlinkat,
    },
    io::Errno,
};

/// Accounts of any real image fit; more would be memory that an image chooses.
const LONGEST_FILE: u64 = 4 << 20;

/// A root file system, and what is below it.
pub(crate) struct Rootfs(OwnedFd);

impl Rootfs {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())?))
    }

    /// The content of a text file; empty if there is none. A link that leads out of the root ends
    /// inside it, as it would for the container.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match openat2(&self.0, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(String::new()),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
        }
        let mut content = Vec::new();
        file.take(LONGEST_FILE).read_to_end(&mut content)?;
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    /// Makes `path` and what is missing above it, for who has the id `owner` on the machine.
    pub(crate) fn make_directory(&self, path: &Path, owner: u32) -> io::Result<()> {
        let mut above: Option<OwnedFd> = None;
        let mut walked = PathBuf::from("/");
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let parent = above.as_ref().map_or(self.0.as_fd(), AsFd::as_fd);
            walked.push(name);
            let made = match self.directory(&walked) {
                Err(Errno::NOENT) => {
                    mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
                    let made = self.directory(&walked)?;
                    fchown(&made, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
                    made
                }
                found => found?,
            };
            above = Some(made);
        }
        Ok(())
    }

    /// Where `path` leads when all links of this root file system are followed, of which some of the end may not exist.
    pub(crate) fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        /// As many as the kernel follows.
        const MOST_LINKS: usize = 40;
        let mut left: VecDeque<OsString> = names(path).collect();
        let (mut reached, mut links) = (PathBuf::from("/"), 0);
        while let Some(name) = left.pop_front() {
            if name == ".." {
                reached.pop();
                continue;
            }
            let next = reached.join(&name);
            let Some(target) = self.link(&next)? else {
                reached = next;
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            if target.is_absolute() {
                reached = PathBuf::from("/");
            }
            names(&target).rev().for_each(|name| left.push_front(name));
        }
        Ok(reached)
    }

    /// Where a link points to; `None` if there is none of that name.
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(&self.0, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            Ok(found) if FileType::from_raw_mode(fstat(&found)?.st_mode).is_symlink() => {
                let target = readlinkat(&found, "", Vec::new())?;
                Ok(Some(PathBuf::from(OsString::from_vec(target.into_bytes()))))
            }
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn directory(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(&self.0, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
    }
}

/// The names of a path, and `..`.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let kept = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(kept).map(|part| part.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_do_not_lead_out_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("passwd"), "outside").unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        symlink(outside.path().join("passwd"), root.path().join("etc/passwd")).unwrap();
        symlink("../../../../../real", root.path().join("etc/group")).unwrap();
        fs::write(root.path().join("real"), "inside").unwrap();
        symlink(outside.path(), root.path().join("srv")).unwrap();

        let rootfs = Rootfs::open(root.path()).unwrap();
        assert_eq!(rootfs.read("etc/passwd").unwrap(), "");
        assert_eq!(rootfs.read("/etc/group").unwrap(), "inside");
        assert_eq!(rootfs.read("none/at/all").unwrap(), "");
        // The link leads to a place that does not exist inside, and nothing is made outside.
        assert!(rootfs.make_directory(Path::new("/srv/app"), 0).is_err());
        assert!(!outside.path().join("app").exists());
    }

    #[test]
    fn missing_directories_are_made_and_others_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let rootfs = Rootfs::open(root.path()).unwrap();
        for _ in 0..2 {
            rootfs.make_directory(Path::new("/a/b/c"), 0).unwrap();
            assert!(root.path().join("a/b/c").is_dir());
        }
        rootfs.make_directory(Path::new("/"), 0).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        assert!(rootfs.make_directory(Path::new("/file/x"), 0).is_err());
    }

    #[test]
    fn only_regular_files_are_read() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let rootfs = Rootfs::open(root.path()).unwrap();
        assert!(rootfs.read("etc").is_err());
        symlink("/dev/zero", root.path().join("etc/passwd")).unwrap();
        assert_eq!(rootfs.read("etc/passwd").unwrap(), "");
    }
}
