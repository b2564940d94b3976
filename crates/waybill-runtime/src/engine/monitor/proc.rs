//! What lies at the container's `/proc`, once everything is mounted: we and others believe what is written there.
//!
//! The runtime refuses volumes below `/proc` before, but a link in another volume may lead one there, and may be swapped
//! while somebody looks. So the kernel's own table is read when nothing can be mounted any more.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2, stat};

use crate::engine::volume::EMULATED_IN_PROC;

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
fn read_table(proc: &OwnedFd) -> io::Result<String> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat2(proc, "self/mountinfo", flags, Mode::empty(), resolve)?;
    let mut table = Vec::new();
    File::from(file).read_to_end(&mut table)?;
    Ok(String::from_utf8_lossy(&table).into_owned())
}

/// Where something is mounted below `/proc` that does not belong there.
fn strange_mounts(table: &str, is_null: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
    table.lines().filter_map(Entry::parse).filter_map(move |entry| {
        let inside = entry.point.strip_prefix("/proc/")?;
        let belongs = EMULATED_IN_PROC.contains(&inside)
            || !is_of_a_process(inside)
                && (entry.is_the_same() || entry.hides() || is_null(entry.point));
        (!belongs).then_some(entry.point)
    })
}

/// Nothing of ours is mounted over a process.
fn is_of_a_process(inside: &str) -> bool {
    inside.starts_with(|letter: char| letter.is_ascii_digit())
}

/// One mount, of `/proc/self/mountinfo`.
struct Entry<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Entry<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (head, tail) = line.split_once(" - ")?;
        let (mut head, mut tail) = (head.split(' ').skip(3), tail.split(' '));
        let (root, point) = (head.next()?, head.next()?);
        Some(Self { root, point, kind: tail.next()?, options: tail.nth(1)? })
    }

    /// A part of `/proc` that is bound to its own place, to be read-only.
    fn is_the_same(&self) -> bool {
        self.kind == "proc" && self.point.strip_prefix(PROC) == Some(self.root)
    }

    /// An empty directory that nobody can write to.
    fn hides(&self) -> bool {
        self.kind == "tmpfs" && self.root == "/" && self.options.split(',').any(|it| it == "ro")
    }
}

/// Files are hidden by the null device.
fn is_null(point: &str) -> bool {
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

    fn strange(more: &str) -> Vec<String> {
        let table = format!("{OURS}{more}\n");
        let null = |point: &str| ["/proc/keys", "/proc/1/attr/exec"].contains(&point);
        strange_mounts(&table, null).map(str::to_owned).collect()
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
            assert_eq!(strange(&format!("9 657 0:1 / {point} {rest}")), [point]);
        }
    }

    #[test]
    fn the_machine_itself_passes() {
        assert!(is_proc(&open_proc().unwrap()));
        assert!(read_table(&open_proc().unwrap()).unwrap().contains(" - proc "));
    }
}
