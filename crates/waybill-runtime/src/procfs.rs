//! What the kernel writes about processes and mounts in `/proc`. Nobody else in this crate parses it.
//!
//! Bytes, not text: a process chooses its own name, and whoever mounts something the name of the place. Neither may hide
//! anything behind it.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// A table of mounts, in the order in which they came.
pub(crate) struct MountTable(Vec<u8>);

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// Which part of the file system is to be seen there.
    pub(crate) root: PathBuf,
    /// Where it is.
    pub(crate) point: PathBuf,
    /// What is mounted below it is so in its peers, too.
    pub(crate) is_shared: bool,
    /// What is mounted below its peers is so here, too.
    pub(crate) is_slave: bool,
    /// Such as `tmpfs`.
    pub(crate) kind: &'a [u8],
    pub(crate) source: Vec<u8>,
    /// Of the file system; those of the mount itself are others.
    options: &'a [u8],
}

impl MountTable {
    pub(crate) const PATH: &'static str = "/proc/self/mountinfo";

    /// Those that this process sees.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self(fs::read(Self::PATH)?))
    }

    /// From a `mountinfo` that was read otherwise.
    pub(crate) fn from_mountinfo(content: Vec<u8>) -> Self {
        Self(content)
    }

    pub(crate) fn mounts(&self) -> impl Iterator<Item = Mount<'_>> {
        self.0.split(|byte| *byte == b'\n').filter_map(Mount::parse)
    }
}

impl<'a> Mount<'a> {
    /// proc(5): number, parent, device, root, point, options, any number of optional fields, a dash, kind, source, options.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ').skip(3);
        let (root, point) = (path(words.next()?), path(words.next()?));
        let mut optional = words.by_ref().skip(1).take_while(|word| *word != b"-");
        let (mut is_shared, mut is_slave) = (false, false);
        for word in &mut optional {
            is_shared |= word.starts_with(b"shared:");
            is_slave |= word.starts_with(b"master:");
        }
        let (kind, source) = (words.next()?, unescape(words.next()?));
        let options = words.next().unwrap_or_default();
        Some(Self { root, point, is_shared, is_slave, kind, source, options })
    }

    /// Options of the file system, such as `ro`.
    pub(crate) fn options(&self) -> impl Iterator<Item = &'a [u8]> {
        self.options.split(|byte| *byte == b',')
    }
}

fn path(word: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(word)))
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

/// From `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    flags: u64,
    /// When it was started, in clock ticks after boot; with its number it names one process for ever.
    pub(crate) start: u64,
}

impl ProcessStat {
    pub(crate) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?)
    }

    /// The name in brackets may hold anything, and brackets too; there are none after it.
    fn parse(stat: &[u8]) -> Option<Self> {
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(stat.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let flags = fields.nth(6)?.parse().ok()?;
        let start = fields.nth(12)?.parse().ok()?;
        Some(Self { flags, start })
    }

    /// The kernel marks a process as the first thing when it exits.
    pub(crate) fn is_exiting(self) -> bool {
        const PF_EXITING: u64 = 0x4;
        self.flags & PF_EXITING != 0
    }
}

/// The capabilities that this process and its children can ever have.
pub(crate) fn own_bounding_set() -> io::Result<Option<u64>> {
    Ok(bounding_set(&fs::read(OWN_STATUS)?))
}

/// Where they stand.
pub(crate) const OWN_STATUS: &str = "/proc/self/status";

/// From `/proc/PID/status`, in which the kernel escapes newlines in names.
fn bounding_set(status: &[u8]) -> Option<u64> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let set = lines.find_map(|line| line.strip_prefix(b"CapBnd:"))?;
    u64::from_str_radix(str::from_utf8(set).ok()?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn mount(line: &str) -> Option<Mount<'_>> {
        Mount::parse(line.as_bytes())
    }

    #[test]
    fn a_mount_is_told_by_its_fields_however_many_there_are() {
        let found =
            mount("31 1 0:40 /a /run/b rw,relatime shared:5 master:2 x:1 - ext4 /dev/vda rw,ro")
                .unwrap();
        assert_eq!((&*found.root, &*found.point), (Path::new("/a"), Path::new("/run/b")));
        assert!(found.is_shared && found.is_slave);
        assert_eq!((found.kind, &*found.source), (&b"ext4"[..], &b"/dev/vda"[..]));
        assert!(found.options().eq([&b"rw"[..], b"ro"]));
        let plain = mount("31 1 0:40 / /b ro - proc proc rw").unwrap();
        assert!(!plain.is_shared && !plain.is_slave);
    }

    /// A directory of a volume may have any name, and something may be mounted there.
    #[test]
    fn names_with_blanks_newlines_and_backslashes_are_read_as_they_are() {
        let line =
            r"31 1 0:40 /a\011b /run/a\040-\040proc\012c\134040 rw shared:1 - overlay a\040b rw";
        let found = mount(line).unwrap();
        assert_eq!(found.root, Path::new("/a\tb"));
        assert_eq!(found.point, Path::new("/run/a - proc\nc\\040"));
        assert_eq!((found.kind, &*found.source), (&b"overlay"[..], &b"a b"[..]));
        assert_eq!(unescape(br"a\040b\134c\9\04\400"), br"a b\c\9\04\400");
        let strange = Mount::parse(b"1 0 0:1 / /\xff\xfe) rw - tmpfs tmpfs rw").unwrap();
        assert_eq!(strange.point.as_os_str().as_bytes(), b"/\xff\xfe)");
    }

    #[test]
    fn a_line_that_is_none_is_left_out_and_hides_no_other() {
        for line in
            ["", "31 1", "31 1 0:40 / /a rw", "31 1 0:40 / /a rw - ", "31 1 0:40 / /a rw - ext4"]
        {
            assert_eq!(mount(line), None, "{line:?}");
        }
        let table = b"nonsense\n\xff\n1 0 0:1 / /a rw - tmpfs tmpfs rw\n".to_vec();
        assert_eq!(MountTable::from_mountinfo(table).mounts().count(), 1);
        assert!(MountTable::read().unwrap().mounts().any(|it| it.point == Path::new("/proc")));
    }

    #[test]
    fn a_process_cannot_hide_behind_its_name() {
        let rest = "S 1 7 7 0 -1 4194564 1 2 3 4 5 6 7 8 20 0 1 0 4711 9";
        for name in [&b"sh"[..], b"a) S 1 (b", b"x y", b")", b"\n7 (b) R", b"\xff\xfe", b""] {
            let stat = [b"7 (", name, b") ", rest.as_bytes()].concat();
            let found = ProcessStat::parse(&stat).unwrap();
            assert_eq!((found.start, found.is_exiting()), (4711, true), "{name:?}");
        }
        for none in ["", "7 (sh", "7 (sh) S 1", "7 (sh) S 1 7 7 0 -1 x"] {
            assert_eq!(ProcessStat::parse(none.as_bytes()), None, "{none:?}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_number_and_start() {
        let own = ProcessStat::read(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.start > 0 && !own.is_exiting());
        assert_eq!(ProcessStat::read(i32::MAX), None);
    }

    #[test]
    fn capabilities_are_read_whatever_the_process_is_called() {
        let status = b"Name:\t\xff\\nCapBnd:\t1\nUmask:\t0022\nCapBnd:\t000001fffeffffff\n";
        assert_eq!(bounding_set(status), Some(0x01ff_feff_ffff));
        assert_eq!(bounding_set(b"Name:\tx\n"), None);
        assert!(own_bounding_set().unwrap().is_some());
    }
}
