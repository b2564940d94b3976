//! The store's directory: who owns it, what lies in it, and how a file gets there for good.
//!
//! A file appears under its final name only when it is whole and on disk; a crash leaves at most a
//! file that ends in `.new`, which the next start removes. Only the owner can read any of it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use waybill_core::id::ResourceVersion;

use crate::store::StoreError;

/// A directory that belongs to one store of one process for as long as this value lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Open for its `fsync`: a name is on disk when its directory is.
    handle: File,
    /// The lock goes with the file, also when the process is killed.
    lock: File,
}

impl Directory {
    /// Takes `path`, which is made if it is missing.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        make(path)?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(failed("opening", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: path.into() }),
            Err(TryLockError::Error(source)) => return Err(failed("locking", &lock_path)(source)),
        }
        let handle = File::open(path).map_err(failed("opening", path))?;
        Ok(Self { path: path.into(), handle, lock })
    }

    /// Writes a new file of this kind and puts it in its place when it is on disk. The file is
    /// returned open for reading and writing, at its end.
    pub(super) fn create(
        &self,
        kind: Kind,
        revision: ResourceVersion,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(File, PathBuf), StoreError> {
        let path = self.path(kind, revision);
        let unfinished = path.with_added_extension("new");
        let options =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).clone();
        let write_all = || {
            // What a failed attempt could not remove.
            match fs::remove_file(&unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = options.open(&unfinished)?;
            write(&mut file)?;
            file.flush()?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            Ok(file)
        };
        match write_all() {
            Ok(file) => {
                self.sync()?;
                Ok((file, path))
            }
            Err(source) => {
                // What is left of it would be in the way of the next attempt.
                let _ = fs::remove_file(&unfinished);
                Err(write_failed(&unfinished, source))
            }
        }
    }

    /// Removes a file that is no longer needed. That it is gone need not survive a crash.
    pub(super) fn remove(&self, kind: Kind, revision: ResourceVersion) -> Result<(), StoreError> {
        let path = self.path(kind, revision);
        fs::remove_file(&path).map_err(failed("removing", &path))
    }

    /// Removes what a crash left unfinished.
    pub(super) fn remove_unfinished(&self) -> Result<(), StoreError> {
        for path in self.entries()? {
            if path.extension().is_some_and(|extension| extension == "new") {
                fs::remove_file(&path).map_err(failed("removing", &path))?;
            }
        }
        Ok(())
    }

    /// How many bytes the disk still takes, where it says so.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::fstatvfs(&self.handle).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// The revisions of the files of this kind, in order.
    pub(super) fn list(&self, kind: Kind) -> Result<Vec<ResourceVersion>, StoreError> {
        let revision = |path: PathBuf| {
            let number = path.file_name()?.to_str()?.strip_prefix(kind.prefix())?;
            number.parse::<u64>().ok().map(ResourceVersion::from)
        };
        let mut found: Vec<_> = self.entries()?.into_iter().filter_map(revision).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Where the file of this kind and revision lies.
    pub(super) fn path(&self, kind: Kind, revision: ResourceVersion) -> PathBuf {
        self.path.join(format!("{}{:020}", kind.prefix(), revision.get()))
    }

    fn entries(&self) -> Result<Vec<PathBuf>, StoreError> {
        let paths = fs::read_dir(&self.path)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        paths.map_err(failed("listing", &self.path))
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.handle.sync_all().map_err(failed("syncing", &self.path))
    }
}

/// Gives the lock back. To close the file would not do if a process is being forked at the moment,
/// because that one holds the file too until it executes its program.
impl Drop for Directory {
    fn drop(&mut self) {
        // If this fails, the lock still goes with the process.
        let _ = self.lock.unlock();
    }
}

/// What a file is, as its name tells; the number after it is the revision that it starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The writes after the revision.
    Log,
    /// All objects at the revision.
    Snapshot,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Log => "log.",
            Self::Snapshot => "snapshot.",
        }
    }
}

/// Gives an IO error its place.
pub(super) fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { step, path: path.into(), source }
}

/// The same for a write, of which a full disk is the usual cause.
pub(super) fn write_failed(path: &Path, source: io::Error) -> StoreError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full { path: path.into(), source }
        }
        _ => failed("writing", path)(source),
    }
}

fn make(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("making", path))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed("syncing", parent))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_owner_can_read_the_files() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/store");
        let directory = Directory::take(&path).unwrap();
        let (_, log) = directory.create(Kind::Log, 7.into(), |file| file.write_all(b"x")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&log), mode(&path.join("lock"))), (0o700, 0o600, 0o600));
    }

    #[test]
    fn a_second_owner_is_refused_until_the_first_is_gone() {
        let outer = tempfile::tempdir().unwrap();
        let first = Directory::take(outer.path()).unwrap();
        let refusal = Directory::take(outer.path()).unwrap_err();
        assert!(matches!(refusal, StoreError::Locked { .. }), "{refusal}");
        drop(first);
        assert!(Directory::take(outer.path()).is_ok());
    }

    #[test]
    fn files_are_listed_in_order_and_unfinished_ones_removed() {
        let outer = tempfile::tempdir().unwrap();
        let directory = Directory::take(outer.path()).unwrap();
        for revision in [100, 20, 3] {
            directory.create(Kind::Log, revision.into(), |_| Ok(())).unwrap();
        }
        let unfinished = directory.path(Kind::Log, 4.into()).with_added_extension("new");
        fs::write(&unfinished, b"").unwrap();
        directory.remove_unfinished().unwrap();
        assert!(!unfinished.exists());
        assert_eq!(directory.list(Kind::Log).unwrap(), [3.into(), 20.into(), 100.into()]);
        assert_eq!(directory.list(Kind::Snapshot).unwrap(), []);
    }
}
