//! Reads tar archives as registries and `docker save` write them: ustar, GNU long names, PAX.
//!
//! The `tar` crate decodes the 512-byte headers. The rest is ours, because its reader splits PAX
//! records at newlines: an extended attribute that holds one would be read as other records, such
//! as the path of the file. It also takes names of any length into memory.

mod extensions;

use std::{
    io::{self, Read},
    ops::Range,
};

use tar::{EntryType, Header};

use self::extensions::Extensions;
use super::{
    error::{Doing, ImageError, Result},
    limits::HEADER_BYTES,
};

const BLOCK: u64 = 512;

/// The entries of an archive, in order. Reading gives the content of the entry last returned.
pub(super) struct Entries<R> {
    source: R,
    /// Content of the current entry that nobody has read yet.
    content: u64,
    /// What fills its last block.
    padding: u64,
    ended: bool,
}

/// One entry without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) path: Vec<u8>,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Mtime,
    /// Extended attributes, in order.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an entry makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink { target: Vec<u8> },
    HardLink { target: Vec<u8> },
    Character { major: u32, minor: u32 },
    Block { major: u32, minor: u32 },
    Fifo,
}

/// A time of modification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mtime {
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
}

impl<R: Read> Entries<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, content: 0, padding: 0, ended: false }
    }

    /// The next entry; what was not read of the one before is skipped.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        while let Some(header) = self.next_header()? {
            match header.entry_type() {
                EntryType::XHeader => extensions.read_records(&self.extension(&header)?)?,
                EntryType::GNULongName => extensions.long_path = Some(self.long_name(&header)?),
                EntryType::GNULongLink => extensions.long_link = Some(self.long_name(&header)?),
                // Defaults for what follows; docker and containerd look at none of them either.
                EntryType::XGlobalHeader => drop(self.extension(&header)?),
                _ => return self.entry(&header, extensions).map(Some),
            }
        }
        if extensions == Extensions::default() {
            return Ok(None);
        }
        Err(broken("it ends after the long name or the attributes of a file, without the file"))
    }

    /// Reads what follows the archive, so that everything has been hashed.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        io::copy(&mut self.source, &mut io::sink()).map(drop)
    }

    pub(super) fn into_source(self) -> R {
        self.source
    }

    fn next_header(&mut self) -> Result<Option<Header>> {
        self.skip_content()?;
        let mut header = Header::new_old();
        let read = read_full(&mut self.source, header.as_mut_bytes()).doing(|| READING)?;
        if self.ended || read == 0 || header.as_bytes().iter().all(|byte| *byte == 0) {
            self.ended = true;
            return Ok(None);
        }
        if read < header.as_bytes().len() {
            return Err(broken("it ends in the middle of a header"));
        }
        if !has_right_sum(&header) {
            return Err(broken("a header has a wrong checksum, so this is no tar archive"));
        }
        fill_blanks(&mut header);
        Ok(Some(header))
    }

    fn skip_content(&mut self) -> Result<()> {
        let left = self.content.saturating_add(self.padding);
        let mut content = self.source.by_ref().take(left);
        let skipped = io::copy(&mut content, &mut io::sink()).doing(|| READING)?;
        (self.content, self.padding) = (0, 0);
        if skipped < left { Err(broken("it ends in the middle of a file")) } else { Ok(()) }
    }

    /// The content of an entry that tells about the next one.
    fn extension(&mut self, header: &Header) -> Result<Vec<u8>> {
        let size = header.entry_size().map_err(|_| broken("the size of a header is no number"))?;
        if size > HEADER_BYTES {
            let what = "a name or the attributes of a file in a tar archive".into();
            return Err(ImageError::Limit { what, limit: HEADER_BYTES, unit: "bytes" });
        }
        self.set_content(size);
        let mut content = Vec::new();
        self.read_to_end(&mut content).doing(|| READING)?;
        if self.content > 0 {
            Err(broken("it ends in the middle of a header"))
        } else {
            Ok(content)
        }
    }

    fn long_name(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut name = self.extension(header)?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    fn set_content(&mut self, size: u64) {
        self.content = size;
        self.padding = size.next_multiple_of(BLOCK) - size;
    }

    fn entry(&mut self, header: &Header, extensions: Extensions) -> Result<Entry> {
        let Extensions { path, link, long_path, long_link, size, uid, gid, mtime, xattrs } =
            extensions;
        let path = path.or(long_path).unwrap_or_else(|| header.path_bytes().into_owned());
        let target = || {
            let of_header = || header.link_name_bytes().unwrap_or_default().into_owned();
            link.or(long_link).unwrap_or_else(of_header)
        };
        let number = |value: io::Result<u64>, what| {
            value.map_err(|_| broken(format!("the {what} of {} is no number", Shown(&path))))
        };
        let kind = match header.entry_type() {
            // Archives older than POSIX mark a directory by its last slash alone.
            EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink { target: target() },
            EntryType::Link => Kind::HardLink { target: target() },
            EntryType::Char => {
                let (major, minor) = device(header, &path)?;
                Kind::Character { major, minor }
            }
            EntryType::Block => {
                let (major, minor) = device(header, &path)?;
                Kind::Block { major, minor }
            }
            EntryType::Fifo => Kind::Fifo,
            other => {
                let letter = char::from(other.as_byte()).escape_default();
                let path = Shown(&path);
                return Err(broken(format!(
                    "{path} is of the type `{letter}`, which is not supported"
                )));
            }
        };
        let size = match kind {
            // Others have none, whatever their header says.
            Kind::File => size.map_or_else(|| number(header.entry_size(), "size"), Ok)?,
            _ => 0,
        };
        if size > i64::MAX as u64 {
            return Err(broken(format!("the size of {} is too large", Shown(&path))));
        }
        self.set_content(size);
        let owner = |own: Option<u64>, of_header, what| {
            let id = own.map_or_else(|| number(of_header, what), Ok)?;
            // The largest number means "leave it" to the kernel.
            u32::try_from(id)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| broken(format!("the {what} of {} is too large", Shown(&path))))
        };
        Ok(Entry {
            uid: owner(uid, header.uid(), "owner")?,
            gid: owner(gid, header.gid(), "group")?,
            mode: header.mode().map_err(|_| broken("a mode is no number"))? & 0o7777,
            mtime: mtime.unwrap_or_else(|| Mtime {
                seconds: header.mtime().ok().and_then(|time| i64::try_from(time).ok()).unwrap_or(0),
                nanoseconds: 0,
            }),
            kind,
            size,
            xattrs,
            path,
        })
    }
}

impl<R: Read> Read for Entries<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.by_ref().take(self.content).read(buffer)?;
        if count == 0 && self.content > 0 && !buffer.is_empty() {
            return Err(broken("it ends in the middle of a file").into());
        }
        self.content -= count as u64;
        Ok(count)
    }
}

fn device(header: &Header, path: &[u8]) -> Result<(u32, u32)> {
    let major = header.device_major().ok().flatten();
    let minor = header.device_minor().ok().flatten();
    let bad = || broken(format!("the device numbers of {} are malformed", Shown(path)));
    Ok((major.ok_or_else(bad)?, minor.ok_or_else(bad)?))
}

/// A number that is left blank means zero; the `tar` crate takes it for a fault.
fn fill_blanks(header: &mut Header) {
    /// Mode, owner, group, size, time, and the two numbers of a device.
    const NUMBERS: [Range<usize>; 7] =
        [100..108, 108..116, 116..124, 124..136, 136..148, 329..337, 337..345];
    for range in NUMBERS {
        let field = header.as_mut_bytes().get_mut(range).unwrap_or_default();
        if field.iter().all(|byte| matches!(byte, 0 | b' ')) {
            field.fill(b'0');
        }
    }
}

fn has_right_sum(header: &Header) -> bool {
    let bytes = header.as_bytes();
    // The field of the sum itself counts as spaces.
    let sum = bytes.iter().enumerate().map(|(at, byte)| match at {
        148..156 => u32::from(b' '),
        _ => u32::from(*byte),
    });
    header.cksum().is_ok_and(|claimed| claimed == sum.sum::<u32>())
}

fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

const READING: &str = "reading a tar archive";

fn broken(what: impl std::fmt::Display) -> ImageError {
    ImageError::archive(format_args!("the tar archive is broken: {what}"))
}

/// A path of somebody else's, for a message.
pub(super) struct Shown<'a>(pub(super) &'a [u8]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LONGEST: usize = 200;
        let start = self.0.get(..LONGEST).unwrap_or(self.0);
        let more = if self.0.len() > LONGEST { "…" } else { "" };
        write!(f, "`{}{more}`", start.escape_ascii())
    }
}

#[cfg(test)]
mod tests;
