//! `/run/waybill`: memory that the wrapper reads. Everything in it is root's alone, and every file is replaced by rename.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{statfs, statvfs},
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use serde::Serialize;
use waybill_api::stock::{Layout, MARKER_SECONDS};

/// From `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Room for all of it; records are a few hundred bytes.
const SIZE: u64 = 64 << 20;

/// The directory of a node.
#[derive(Clone, Debug)]
pub(super) struct RunDirectory {
    layout: Layout,
}

/// Why there is no such directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It cannot be made.
    #[error("cannot make {path}")]
    Make {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It would be on a disk.
    #[error(
        "{path} is not on a tmpfs and none can be mounted there, so private keys would reach a disk"
    )]
    Disk {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl RunDirectory {
    /// Makes what is missing at `path`, on a tmpfs of its own.
    pub(super) fn open(path: &Path) -> Result<Self, DirectoryError> {
        let made = |path: &Path| {
            let at = path.to_owned();
            closed_folder(path).map_err(|source| DirectoryError::Make { path: at, source })
        };
        made(path)?;
        if !is_mount_point(path) || !is_tmpfs(path) {
            mount_tmpfs(path).or_else(|source| match is_tmpfs(path) {
                true => {
                    tracing::warn!(%source, "no tmpfs of its own: values may be swapped out");
                    Ok(())
                }
                false => Err(DirectoryError::Disk { path: path.to_owned(), source }),
            })?;
        }
        let layout = Layout::new(path);
        for folder in [layout.seals(), layout.used(), layout.pods(), layout.sessions()] {
            made(&folder)?;
        }
        Ok(Self { layout })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes all of it away, keys and records with it.
    pub(super) fn remove(&self) {
        let path = self.layout.root();
        if is_mount_point(path) && is_tmpfs(path) {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
        let layout = &self.layout;
        for folder in [layout.seals(), layout.used(), layout.pods(), layout.sessions()] {
            let _ = fs::remove_dir_all(folder);
        }
        let _ = fs::remove_file(layout.keys());
        // Only if nothing of others is in it.
        let _ = fs::remove_dir(path);
    }

    /// Replaces a file by one for root alone.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!(".{name}.new"));
        let _ = fs::remove_file(&new);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        drop(file);
        fs::rename(&new, path)
    }

    /// The same with an object as JSON.
    pub(super) fn write_json(&self, path: &Path, object: &impl Serialize) -> io::Result<()> {
        self.write(path, &serde_json::to_vec(object)?)
    }

    /// Removes markers that guard against nothing any more. That of a debug container guards for as long as its pod lives.
    pub(super) fn sweep(&self, now: SystemTime) {
        let age = Duration::from_secs(MARKER_SECONDS);
        let old = now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        for (path, _) in by_age(&self.layout.used()).iter().filter(|(_, made)| *made < old) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let pod = Layout::pod_of_debug(&name).map(|pod| self.layout.pod(&pod));
            if !pod.is_some_and(|pod| pod.exists()) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Whether half of its own tmpfs is used. A file system that is larger than ours is shared with others, and how full it is
    /// says nothing about us.
    pub(super) fn is_scarce(&self) -> bool {
        let is_scarce = |free: u64, all: u64| all > 0 && free < all / 2;
        statvfs(self.layout().root()).is_ok_and(|room| {
            let is_own = room.f_blocks.saturating_mul(room.f_frsize) <= SIZE;
            let blocks = is_scarce(room.f_bavail, room.f_blocks);
            is_own && (blocks || is_scarce(room.f_favail, room.f_files))
        })
    }

    /// Records of sessions and when they were last written, the oldest first.
    pub(super) fn records(&self) -> Vec<(PathBuf, SystemTime)> {
        by_age(&self.layout.sessions())
    }

    /// A directory that need not be in memory.
    #[cfg(test)]
    pub(super) fn for_test(folder: &Path) -> Self {
        let layout = Layout::new(folder);
        for folder in [layout.seals(), layout.used(), layout.pods(), layout.sessions()] {
            closed_folder(&folder).expect("the folder is ours");
        }
        Self { layout }
    }
}

/// Files and when they were made, the oldest first.
fn by_age(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let dated =
        entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)));
    let is_whole =
        |path: &Path| !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    let mut files: Vec<_> = dated.filter(|(path, _)| is_whole(path)).collect();
    files.sort_by_key(|(_, made)| *made);
    files
}

fn closed_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

fn is_tmpfs(path: &Path) -> bool {
    statfs(path)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| kind == TMPFS_MAGIC))
}

fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    path.parent().is_some_and(|parent| device(parent) != device(path))
}

fn mount_tmpfs(path: &Path) -> io::Result<()> {
    let flags = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOSUID;
    let mounted = |options: String| {
        let options = std::ffi::CString::new(options).unwrap_or_default();
        mount("waybill", path, "tmpfs", flags, Some(options.as_c_str()))
    };
    // Kernels before 6.4 do not know `noswap`.
    mounted(format!("mode=0700,size={SIZE},noswap"))
        .or_else(|_| mounted(format!("mode=0700,size={SIZE}")))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use waybill_api::stock::SessionId;
    use waybill_core::id::PodUid;

    use super::*;

    #[test]
    fn markers_go_when_they_are_old_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::for_test(folder.path());
        let marker = directory.layout().used().join("a");
        directory.write(&marker, b"").unwrap();
        let now = fs::metadata(&marker).unwrap().modified().unwrap();
        directory.sweep(now + Duration::from_secs(MARKER_SECONDS - 60));
        assert!(marker.exists());
        directory.sweep(now + Duration::from_secs(MARKER_SECONDS + 60));
        assert!(!marker.exists());
    }

    /// Its token has no end of its own, and could be used again otherwise.
    #[test]
    fn the_marker_of_a_debug_container_stays_for_as_long_as_its_pod_lives() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::for_test(folder.path());
        let (pod, session) = (PodUid::parse("u-1").unwrap(), SessionId::from_random([1; 16]));
        let marker = directory.layout().used_debug(&pod, &session);
        directory.write(&marker, b"").unwrap();
        directory.write(&directory.layout().pod(&pod), b"{}").unwrap();
        let now = fs::metadata(&marker).unwrap().modified().unwrap();
        let late = now + Duration::from_secs(30 * 24 * 3600);
        directory.sweep(late);
        assert!(marker.exists());
        fs::remove_file(directory.layout().pod(&pod)).unwrap();
        directory.sweep(now + Duration::from_secs(MARKER_SECONDS - 60));
        assert!(marker.exists(), "the pod may not be known yet");
        directory.sweep(late);
        assert!(!marker.exists());
    }

    #[test]
    fn nothing_is_left_of_a_directory_that_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::for_test(&folder.path().join("run"));
        directory.write(&directory.layout().keys(), b"1").unwrap();
        directory.write(&directory.layout().seals().join("k"), b"1").unwrap();
        directory.remove();
        assert!(!folder.path().join("run").exists());
    }

    #[test]
    fn files_are_for_root_alone() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::for_test(folder.path());
        let keys = directory.layout().keys();
        directory.write(&keys, b"1").unwrap();
        directory.write(&keys, b"2").unwrap();
        assert_eq!(fs::read(&keys).unwrap(), b"2");
        assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(directory.layout().used()).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
}
