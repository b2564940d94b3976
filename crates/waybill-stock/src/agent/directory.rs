//! `/run/waybill`: memory that the wrapper reads. Everything in it is root's alone, and every file is replaced by rename.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::statfs,
    mount::{MountFlags, mount},
};
use serde::Serialize;
use waybill_api::stock::{CGROUP_PREFIX, Layout, MARKER_SECONDS, SessionRecord};

/// From `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Room for all of it; records are a few hundred bytes.
const SIZE: &str = "64m";

/// No more records than these are kept.
const RECORDS: usize = 20_000;

/// Nor older ones.
const RECORD_AGE: Duration = Duration::from_secs(24 * 3600);

/// An exec that has begun has left its cgroup empty for less than this.
const CGROUP_AGE: Duration = Duration::from_secs(30);

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

    /// Removes markers that guard against nothing any more, cgroups of sessions that ended, and the oldest records.
    pub(super) fn sweep(&self, now: SystemTime) {
        let old = |age: Duration| now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let markers = old(Duration::from_secs(MARKER_SECONDS));
        for (path, _) in by_age(&self.layout.used()).iter().filter(|(_, made)| *made < markers) {
            let _ = fs::remove_file(path);
        }
        let records = by_age(&self.layout.sessions());
        let surplus = records.len().saturating_sub(RECORDS);
        let (oldest, idle) = (old(RECORD_AGE), old(CGROUP_AGE));
        for (place, (path, made)) in records.iter().enumerate() {
            if *made < idle {
                remove_cgroup(path);
            }
            if place < surplus || *made < oldest {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The kernel refuses to remove one in which there is somebody.
fn remove_cgroup(record: &Path) {
    let Some(record) = fs::read(record).ok() else { return };
    let Ok(record) = serde_json::from_slice::<SessionRecord>(&record) else { return };
    let cgroup = Path::new(&record.cgroup);
    let name = cgroup.file_name().unwrap_or_default().to_string_lossy();
    if cgroup.starts_with("/sys/fs/cgroup") && name.starts_with(CGROUP_PREFIX) {
        let _ = fs::remove_dir(cgroup);
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
    use super::*;

    fn directory(folder: &Path) -> RunDirectory {
        let layout = Layout::new(folder);
        for folder in [layout.seals(), layout.used(), layout.pods(), layout.sessions()] {
            closed_folder(&folder).unwrap();
        }
        RunDirectory { layout }
    }

    #[test]
    fn markers_and_records_go_when_they_are_old_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let directory = directory(folder.path());
        let marker = directory.layout().used().join("a");
        let record = directory.layout().sessions().join("b.json");
        directory.write(&marker, b"").unwrap();
        directory.write(&record, b"{}").unwrap();
        let now = fs::metadata(&marker).unwrap().modified().unwrap();
        directory.sweep(now + Duration::from_secs(MARKER_SECONDS - 60));
        assert!(marker.exists() && record.exists());
        directory.sweep(now + Duration::from_secs(MARKER_SECONDS + 60));
        assert!(!marker.exists() && record.exists());
        directory.sweep(now + RECORD_AGE + Duration::from_secs(60));
        assert!(!record.exists());
    }

    #[test]
    fn files_are_for_root_alone() {
        let folder = tempfile::tempdir().unwrap();
        let directory = directory(folder.path());
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
