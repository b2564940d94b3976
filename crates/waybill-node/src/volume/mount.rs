//! Mounts of the node: file systems in memory, and the table of all mounts.

use std::{
    ffi::{CString, OsString},
    fs,
    os::unix::{ffi::OsStringExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx},
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use super::error::{Doing, VolumeFault};

const TABLE: &str = "/proc/self/mountinfo";

/// How long something that is busy is waited for.
const BUSY_TRIES: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// More mounts than this on one place nobody made by mistake.
const STACKED: usize = 16;

/// Room for what the node writes into one volume: several Secrets of the largest size, old and new.
const SECRET_BYTES: u64 = 64 << 20;

/// So much of it may be new: while it is written the old is still there.
pub(super) const NEW_SECRET_BYTES: u64 = SECRET_BYTES / 2;

/// Makes a directory and those above it; nobody but root needs to pass through them.
pub(super) fn make_directory(path: &Path) -> Result<(), VolumeFault> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path).doing("making", path)
}

/// A file system in memory for content that must not reach a disk, unless there is one already.
pub(super) fn mount_for_secrets(directory: &Path) -> Result<(), VolumeFault> {
    if is_mounted(directory)? {
        return Ok(());
    }
    // Scripts in volumes are run, as on kubelets. Neither devices nor other users' rights come from there.
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    // Memory can be written to swap, which is a disk. A tmpfs can say no to that from Linux 6.4 on; a ramfs never gets there, and has no
    // limit of its own.
    let options = format!("size={SECRET_BYTES},mode=0755,noswap");
    match mount_memory_file_system(directory, "tmpfs", flags, &options) {
        Err(Errno::INVAL) => mount_memory_file_system(directory, "ramfs", flags, "mode=0755"),
        mounted => mounted,
    }
    .doing("mounting a file system in memory at", directory)
}

/// A file system in memory for the pod's own use.
pub(super) fn mount_memory(
    directory: &Path,
    size: Option<u64>,
    mode: u32,
) -> Result<(), VolumeFault> {
    let size = size.map_or_else(String::new, |size| format!("size={size},"));
    let options = format!("{size}mode={mode:04o}");
    mount_memory_file_system(directory, "tmpfs", MountFlags::empty(), &options)
        .doing("mounting a tmpfs at", directory)
}

fn mount_memory_file_system(
    directory: &Path,
    kind: &str,
    flags: MountFlags,
    options: &str,
) -> Result<(), Errno> {
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    mount(kind, directory, kind, flags, &*options)
}

/// Whether something is mounted right at `path`.
pub(super) fn is_mounted(path: &Path) -> Result<bool, VolumeFault> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, path, flags, StatxFlags::empty()).doing("looking at", path)?;
    if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Kernels before 5.8 do not tell.
    let path = path.canonicalize().doing("looking at", path)?;
    Ok(mounted_at_or_below(&path)?.contains(&path))
}

/// Where something is mounted at `path` or below it, the deepest and latest first. `path` must be
/// without links.
pub(super) fn mounted_at_or_below(path: &Path) -> Result<Vec<PathBuf>, VolumeFault> {
    let table = fs::read(TABLE).doing("reading", Path::new(TABLE))?;
    Ok(points_at_or_below(&table, path))
}

fn points_at_or_below(table: &[u8], path: &Path) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let points = points.map(|word| PathBuf::from(OsString::from_vec(unescape(word))));
    let mut points: Vec<_> = points.filter(|point| point.starts_with(path)).collect();
    points.reverse();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    points
}

/// Spaces, tabs, newlines and backslashes are written as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => plain.push(*first),
        }
    }
    plain
}

/// Unmounts everything that is mounted right at `point`, one over the other.
pub(super) fn unmount_all_at(point: &Path) -> Result<(), VolumeFault> {
    for _ in 0..STACKED {
        if !is_mounted(point)? {
            return Ok(());
        }
        unmount_at(point)?;
    }
    Err(VolumeFault::StillMounted { path: point.display().to_string() })
}

/// Unmounts the last thing mounted at `point`. What is in use is tried again for a moment, then taken
/// out of the tree, and goes when its last user does.
pub(super) fn unmount_at(point: &Path) -> Result<(), VolumeFault> {
    for _ in 0..BUSY_TRIES {
        match unmount(point, UnmountFlags::NOFOLLOW) {
            // Not mounted any more, or not there.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) => thread::sleep(BUSY_PAUSE),
            Err(error) => return Err(error).doing("unmounting", point),
        }
    }
    tracing::warn!(path = %point.display(), "a mount is busy and is detached");
    match unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(error) => Err(error).doing("detaching", point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_path_are_found_deepest_and_latest_first() {
        let table = b"22 1 0:20 / /p rw - proc proc rw\n\
            30 1 0:40 / /pods/u/a rw - tmpfs tmpfs rw\n\
            31 1 0:41 / /pods/u/a\\040b/c rw,relatime shared:5 - tmpfs tmpfs rw\n\
            32 1 0:42 / /pods/u/a rw - tmpfs tmpfs rw\n\
            33 1 0:43 / /pods/ux/a rw - tmpfs tmpfs rw\n\
            34 1 0:44 / /pods/u rw - tmpfs tmpfs rw\n";
        assert_eq!(
            points_at_or_below(table, Path::new("/pods/u")),
            ["/pods/u/a b/c", "/pods/u/a", "/pods/u/a", "/pods/u"].map(PathBuf::from)
        );
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(br"a\040b\134c\9\04"), br"a b\c\9\04");
    }
}
