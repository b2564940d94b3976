//! A disk that is small enough to be filled.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::skip::skip;

/// A file system of its own in memory. Unmounted on drop.
#[derive(Debug)]
pub struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// One of so many megabytes; `None`, with a word about it, where it cannot be mounted.
    pub fn mount(megabytes: u32) -> Option<Self> {
        if fs::metadata("/proc/self").is_ok_and(|found| found.uid() != 0) {
            skip("root", "only root may mount a small disk");
            return None;
        }
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(dir.path())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            skip("mount", "a small disk is a tmpfs, which this machine does not mount");
            return None;
        }
        Some(Self { dir })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Takes all the room that is left.
    pub fn fill(&self) {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.filling())
            .expect("the disk takes another file");
        for size in [1 << 20, 4096, 1] {
            let piece = vec![b'x'; size];
            loop {
                match file.write_all(&piece) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("the disk cannot be filled: {error}"),
                }
            }
        }
    }

    /// Gives back what [`fill`](Self::fill) took.
    pub fn free(&self) {
        fs::remove_file(self.filling()).expect("the disk was filled");
    }

    fn filling(&self) -> PathBuf {
        self.path().join("filling")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that ends at the moment may still use it.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
