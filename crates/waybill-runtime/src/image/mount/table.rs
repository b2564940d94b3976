//! The mount table, by which mounts are found that a runtime before us made.

use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt, path::PathBuf};

use crate::image::error::{Doing, Result};

const TABLE: &str = "/proc/self/mountinfo";

/// Where overlays of that source are mounted, the last one first.
pub(super) fn mounted_at(source: &str) -> Result<Vec<PathBuf>> {
    let table = fs::read(TABLE).doing(|| format!("reading {TABLE}"))?;
    Ok(points(&table, source))
}

fn points(table: &[u8], source: &str) -> Vec<PathBuf> {
    let mut points: Vec<_> = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            // Optional fields end with a dash; then come type and source.
            let dash = words.iter().position(|word| *word == b"-")?;
            let is_ours =
                *words.get(dash + 1)? == b"overlay" && *words.get(dash + 2)? == source.as_bytes();
            is_ours.then_some(())?;
            Some(PathBuf::from(OsString::from_vec(unescape(words.get(4)?))))
        })
        .collect();
    points.reverse();
    points
}

/// Spaces, tabs, newlines and backslashes are written as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) =
            (first, tail)
        {
            plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_source() {
        let table = b"22 1 0:20 / /proc rw - proc proc rw\n\
            31 1 0:40 / /run/a\\040b rw,relatime shared:5 - overlay waybill:one rw,lowerdir=/x\n\
            32 1 0:41 / /run/c rw - overlay waybill:two rw\n\
            33 1 0:40 / /run/d rw - overlay waybill:one rw\n";
        let found = points(table, "waybill:one");
        assert_eq!(found, [PathBuf::from("/run/d"), PathBuf::from("/run/a b")]);
        assert!(points(table, "waybill:on").is_empty());
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(br"a\040b\134c\9\04"), br"a b\c\9\04");
    }
}
