//! The disks of a machine: one with the file system that users have, and one to swap to. Both end with the machine.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::process;

/// They take room as they are written to.
const STATE_BYTES: u64 = 4 << 30;
const SWAP_BYTES: u64 = 128 << 20;

/// Files of this machine that are disks of the other.
pub(super) struct Disks {
    /// ext4.
    pub(super) state: PathBuf,
    /// Nothing is on it yet.
    pub(super) swap: PathBuf,
}

impl Disks {
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let disks = Self { state: folder.join("state"), swap: folder.join("swap") };
        for (disk, bytes) in [(&disks.state, STATE_BYTES), (&disks.swap, SWAP_BYTES)] {
            let made = File::create(disk).and_then(|file| file.set_len(bytes));
            made.with_context(|| format!("cannot make {}", disk.display()))?;
        }
        // Written here at once, not by the machine while tests run.
        let options = ["-q", "-F", "-N", "131072", "-E", "lazy_itable_init=0"];
        process::run(Command::new("mkfs.ext4").args(options).arg(&disks.state))?;
        Ok(disks)
    }
}
