//! What is mounted below a state directory: ours, which is unmounted, or somebody else's, which stops everything.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};

/// Below the state directory, what runtime and node mount. A mount elsewhere is not ours.
const OUR_PLACES: &[&str] = &["run/runtime", "node/pods"];

/// What they mount there. The disk of somebody is none of these, nor is a directory that is bound there.
const OUR_KINDS: &[&str] =
    &["tmpfs", "nsfs", "overlay", "proc", "sysfs", "cgroup", "cgroup2", "mqueue"];

pub(super) struct Mounts {
    dir: PathBuf,
    /// In the order in which they were mounted.
    all: Vec<Mount>,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    place: PathBuf,
    kind: String,
}

impl Mounts {
    pub(super) fn below(dir: &Path) -> Result<Self> {
        let text = fs::read("/proc/self/mountinfo").context("cannot read what is mounted")?;
        Ok(Self { dir: dir.to_owned(), all: parse(&text, dir) })
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(|mount| mount.place.as_path())
    }

    /// Refuses what is not ours.
    pub(super) fn check(&self) -> Result<()> {
        let is_ours = |mount: &Mount| {
            OUR_KINDS.contains(&mount.kind.as_str())
                && OUR_PLACES.iter().any(|place| mount.place.starts_with(self.dir.join(place)))
        };
        match self.all.iter().find(|mount| !is_ours(mount)) {
            None => Ok(()),
            Some(Mount { place, kind }) => bail!(
                "{0} is a mount ({kind}) that is not ours, and what is in it stays; unmount it first: umount {0}",
                place.display()
            ),
        }
    }

    /// The last first: it may lie in an earlier one.
    pub(super) fn unmount(&self) -> Result<()> {
        for place in self.all.iter().rev().map(|mount| &mount.place) {
            unmount(place, UnmountFlags::NOFOLLOW).with_context(|| {
                format!("cannot unmount {}; end what uses it, and try again", place.display())
            })?;
        }
        Ok(())
    }
}

/// The mounts strictly below `dir`: `36 35 98:0 /root /place rw,noatime master:1 - kind source rw`.
fn parse(mountinfo: &[u8], dir: &Path) -> Vec<Mount> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let place = PathBuf::from(OsString::from_vec(unescaped(words.get(4)?)));
            let dash = words.iter().position(|word| *word == b"-")?;
            let kind = String::from_utf8_lossy(words.get(dash + 1)?).into_owned();
            (place.starts_with(dir) && place != dir).then_some(Mount { place, kind })
        })
        .collect()
}

/// The kernel writes blanks and the like as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(lines: &str) -> Mounts {
        Mounts { dir: "/s".into(), all: parse(lines.as_bytes(), Path::new("/s")) }
    }

    #[test]
    fn mounts_of_ours_are_known_by_place_and_kind() {
        let ours = mounts(
            "1 0 0:9 / /s rw - ext4 /dev/a rw\n\
             2 1 0:1 / /s/run/runtime rw shared:1 - tmpfs waybill rw\n\
             3 1 0:2 / /s/node/pods/a/volumes/b rw - tmpfs tmpfs rw\n\
             4 1 0:3 / /state rw - ext4 /dev/b rw\n",
        );
        assert_eq!(ours.places().count(), 2, "neither the directory itself nor a neighbour");
        ours.check().unwrap();
    }

    #[test]
    fn a_mount_of_others_is_refused_wherever_it_lies() {
        for line in [
            "5 1 8:1 / /s/runtime rw - tmpfs x rw",
            "5 1 8:1 /home /s/node/pods/a rw - ext4 /dev/sda1 rw",
            "5 1 8:1 / /s/my\\040disk rw - xfs /dev/sdb rw",
        ] {
            let told = mounts(line).check().unwrap_err().to_string();
            assert!(told.contains("is not ours"), "{told}");
        }
        let named = mounts("5 1 8:1 / /s/my\\040disk rw - xfs /dev/sdb rw").check().unwrap_err();
        assert!(named.to_string().contains("/s/my disk is a mount (xfs)"), "{named}");
    }

    #[test]
    fn only_octal_escapes_are_read() {
        assert_eq!(unescaped(b"a\\040b\\134\\9"), b"a b\\\\9");
    }
}
