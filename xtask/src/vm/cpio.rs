//! Archives as the kernel unpacks them at its start: cpio in its "newc" form.
//!
//! The form is that of the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::{collections::HashSet, io::Write, path::Path};

use anyhow::{Context, Result};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Writes an archive; all that is in it belongs to root.
pub(super) struct Archive<W: Write> {
    writer: W,
    entries: u32,
    known: HashSet<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { writer, entries: 0, known: HashSet::new() }
    }

    /// Adds a folder, and those that it is in.
    pub(super) fn folder(&mut self, path: &str) -> Result<()> {
        if path.is_empty() || !self.known.insert(path.to_owned()) {
            return Ok(());
        }
        self.folder(path.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        self.entry(path, FOLDER, &[])
    }

    /// Adds a file that can be run, and the folders that it is in.
    pub(super) fn program(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.folder(path.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        self.entry(path, PROGRAM, content)
    }

    /// Adds a copy of a file of this machine, unless there is something at `path` already.
    pub(super) fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        if !self.known.insert(path.to_owned()) {
            return Ok(());
        }
        let content =
            std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.program(path, &content)
    }

    pub(super) fn finish(mut self) -> Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.writer.flush()?;
        Ok(self.writer)
    }

    /// `path` is relative to the root.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entries += 1;
        let size = u32::try_from(content.len()).context("a file of this form is below 4 GiB")?;
        let name = u32::try_from(path.len())? + 1;
        // Inode, mode, owner, group, links, time, size, four numbers of devices, length of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0];
        let mut header = String::from("070701");
        fields.iter().for_each(|field| header.push_str(&format!("{field:08X}")));
        header.push_str(path);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(content)
    }

    /// Everything begins at a multiple of four.
    fn padded(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes)?;
        let rest = bytes.len().next_multiple_of(4) - bytes.len();
        Ok(self.writer.write_all(&vec![0; rest])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_as_the_kernel_reads_it() {
        let mut archive = Archive::new(Vec::new());
        archive.program("a/b", b"hello").unwrap();
        archive.folder("a").unwrap();
        let bytes = archive.finish().unwrap();
        let zeros = "00000000";
        let header = |inode: &str, mode: &str, size: &str, name: &str| {
            let middle = format!("{zeros}{zeros}00000001{zeros}{size}{}", zeros.repeat(4));
            format!("070701{inode}{mode}{middle}{name}{zeros}")
        };
        let expected = [
            header("00000001", "000041ED", zeros, "00000002"),
            "a\0".into(),
            header("00000002", "000081ED", "00000005", "00000004"),
            "a/b\0\0\0".into(),
            "hello\0\0\0".into(),
            header("00000003", zeros, zeros, "0000000B"),
            "TRAILER!!!\0\0\0\0".into(),
        ];
        assert_eq!(String::from_utf8(bytes).unwrap(), expected.concat());
    }
}
