//! What is memory and what is a disk.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{MemfdFlags, memfd_create, statfs},
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
};

/// Whether what is written to `directory` stays in memory.
pub(crate) fn is_memory(directory: &Path) -> bool {
    // From linux/magic.h; the type of the field depends on the machine.
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    #[allow(
        clippy::useless_conversion,
        clippy::allow_attributes,
        reason = "i64 here, i32 or u32 elsewhere"
    )]
    let kind = statfs(directory).map(|found| i64::from(found.f_type));
    kind.is_ok_and(|kind| kind == TMPFS || kind == RAMFS)
}

/// A file that has no name anywhere, which the runtime opens as `path`.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    pub(crate) path: PathBuf,
    _open: OwnedFd,
}

impl MemoryFile {
    /// Holds `content` and stays open over `execve`, above all descriptors that the process is to get;
    /// runtimes close the rest before the program of a user runs.
    pub(crate) fn new(content: &[u8], preserved: u32) -> io::Result<Self> {
        let mut file = File::from(memfd_create("waybill-process", MemfdFlags::CLOEXEC)?);
        file.write_all(content)?;
        let lowest = i32::try_from(preserved).unwrap_or(i32::MAX).saturating_add(LOWEST);
        let open = fcntl_dupfd_cloexec(&file, lowest)?;
        fcntl_setfd(&open, FdFlags::empty())?;
        let path = format!("/proc/self/fd/{}", open.as_raw_fd()).into();
        Ok(Self { path, _open: open })
    }
}

/// Above the standard streams and what systemd passes on.
const LOWEST: i32 = 64;
