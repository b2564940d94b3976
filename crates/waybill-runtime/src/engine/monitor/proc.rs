//! What lies at the container's `/proc`, once everything is mounted: we and others believe what is written there.
//!
//! The runtime refuses volumes below `/proc` before, but a link in another volume may lead one there, and may be swapped
//! while somebody looks. So the kernel's own table is read when nothing can be mounted any more.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2, stat};

use crate::{
    engine::volume::EMULATED_IN_PROC,
    procfs::{Mount, MountTable},
};

const PROC: &str = "/proc";
const PROC_SUPER_MAGIC: i128 = 0x9fa0;
/// The number of the inode that every `proc` has as its root.
const PROC_ROOT: u64 = 1;

/// Refuses a `/proc` that is none, or with something in it that is neither of the kernel nor there to hide it. Runs in
/// the container's root file system.
pub(super) fn check() -> Result<(), String> {
    let unread = |error: io::Error| format!("cannot read the container's /proc: {error}");
    let proc = open_proc().map_err(unread)?;
    if !is_root(&proc) {
        return Err("a link in a volume leads another volume to /proc; mount it elsewhere".into());
    }
    let table = read_table(&proc).map_err(unread)?;
    match strange_mounts(&table, is_null).next() {
        None => Ok(()),
        Some(point) => Err(format!(
            "a link in a volume leads another volume to {point:?}, which is inside /proc; mount it elsewhere"
        )),
    }
}

/// Whether an open file or directory is of a `proc` file system.
pub(super) fn is_proc(file: &OwnedFd) -> bool {
    fstatfs(file).is_ok_and(|found| i128::from(found.f_type) == PROC_SUPER_MAGIC)
}

/// The `/proc` that is to be seen here, if it is one.
pub(super) fn open_checked() -> io::Result<OwnedFd> {
    let proc = open_proc()?;
    if is_root(&proc) { Ok(proc) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

fn is_root(proc: &OwnedFd) -> bool {
    is_proc(proc) && fstat(proc).is_ok_and(|stat| stat.st_ino == PROC_ROOT)
}

fn open_proc() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(PROC, flags, Mode::empty())?)
}

/// Does not cross into what is mounted in there.
fn read_table(proc: &OwnedFd) -> io::Result<MountTable> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat2(proc, "self/mountinfo", flags, Mode::empty(), resolve)?;
    let mut table = Vec::new();
    File::from(file).read_to_end(&mut table)?;
    Ok(MountTable::from_mountinfo(table))
}

/// Where something is mounted below `/proc` that does not belong there.
fn strange_mounts(
    table: &MountTable,
    is_null: impl Fn(&Path) -> bool,
) -> impl Iterator<Item = PathBuf> {
    table.mounts().filter_map(move |mount| {
        let inside = mount.point.strip_prefix(PROC).ok()?;
        // The `/proc` itself was looked at before.
        let belongs = inside.as_os_str().is_empty()
            || EMULATED_IN_PROC.iter().any(|name| inside == Path::new(name))
            || !is_of_a_process(inside)
                && (is_the_same(&mount, inside) || hides(&mount) || is_null(&mount.point));
        (!belongs).then_some(mount.point)
    })
}

/// Nothing of ours is mounted over a process.
fn is_of_a_process(inside: &Path) -> bool {
    inside.as_os_str().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
}

/// A part of `/proc` that is bound to its own place, to be read-only.
fn is_the_same(mount: &Mount<'_>, inside: &Path) -> bool {
    mount.kind == b"proc" && mount.root.strip_prefix("/") == Ok(inside)
}

/// An empty directory that nobody can write to.
fn hides(mount: &Mount<'_>) -> bool {
    mount.kind == b"tmpfs"
        && mount.root == Path::new("/")
        && mount.options().any(|option| option == b"ro")
}

/// Files are hidden by the null device.
fn is_null(point: &Path) -> bool {
    stat(point).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode).is_char_device()
            && rustix::fs::major(found.st_rdev) == 1
            && rustix::fs::minor(found.st_rdev) == 3
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "\
657 656 0:137 / /proc rw,nosuid - proc proc rw
202 657 0:137 /sys /proc/sys ro,nosuid - proc proc rw
205 657 0:125 / /proc/acpi ro,relatime - tmpfs tmpfs ro
206 657 0:138 /null /proc/keys rw,nosuid - tmpfs tmpfs rw,size=65536k
207 657 254:0 /lxcfs/meminfo /proc/meminfo rw - ext4 /dev/vda rw
208 656 254:0 /v /process rw - ext4 /dev/vda rw
";

    fn strange(more: &str) -> Vec<PathBuf> {
        let table = MountTable::from_mountinfo(format!("{OURS}{more}\n").into());
        let null = ["/proc/keys", "/proc/1/attr/exec"].map(Path::new);
        strange_mounts(&table, |point| null.contains(&point)).collect()
    }

    #[test]
    fn what_every_container_has_belongs_to_proc() {
        assert!(strange("").is_empty());
    }

    #[test]
    fn volumes_do_not_belong_to_proc() {
        for (point, rest) in [
            ("/proc/1/attr", "rw shared:7 - ext4 /dev/vda rw"),
            ("/proc/sys", "ro - ext4 /dev/vda rw"),
            ("/proc/irq", "ro - proc proc rw"),
            ("/proc/1/attr", "ro - tmpfs tmpfs ro"),
            ("/proc/1/attr/exec", "rw - devtmpfs devtmpfs rw"),
            ("/proc/fs", "ro - tmpfs tmpfs rw,size=1k"),
        ] {
            assert_eq!(strange(&format!("9 657 0:1 / {point} {rest}")), [Path::new(point)]);
        }
        let named = strange(r"9 657 0:1 / /proc/a\012b rw - ext4 /dev/vda rw");
        assert_eq!(named, [Path::new("/proc/a\nb")]);
    }

    #[test]
    fn the_machine_itself_passes() {
        assert!(is_proc(&open_proc().unwrap()));
        let table = read_table(&open_proc().unwrap()).unwrap();
        assert!(table.mounts().any(|mount| mount.kind == b"proc"));
    }
}
