//! How large images may be. Generous: they are against bombs and slips, not against use.

use std::io::{self, Read};

use super::error::ImageError;

/// What an archive or a registry may make us store.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one archive, after decompression.
    pub archive_bytes: u64,
    /// Files in one archive, and layers of one image.
    pub archive_entries: u64,
    /// Bytes of one layer's files, after decompression.
    pub layer_bytes: u64,
    /// Files, directories and links of one layer.
    pub layer_entries: u64,
    /// Bytes of one manifest, index or configuration.
    pub metadata_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            archive_bytes: 64 << 30,
            archive_entries: 100_000,
            layer_bytes: 32 << 30,
            layer_entries: 4_000_000,
            metadata_bytes: 4 << 20,
        }
    }
}

/// The bytes that one tar header may claim for itself, by long names and extended attributes.
pub(super) const HEADER_BYTES: u64 = 1 << 20;

/// Refuses to read more than a limit, which may be set anew on the way.
pub(super) struct Limited<R> {
    inner: R,
    left: u64,
    limit: u64,
    what: String,
}

impl<R> Limited<R> {
    pub(super) fn new(inner: R, limit: u64, what: impl Into<String>) -> Self {
        Self { inner, left: limit, limit, what: what.into() }
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => {
                let what = self.what.clone();
                return Err(ImageError::Limit { what, limit: self.limit, unit: "bytes" }.into());
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_but_not_passed() {
        let read = |limit| {
            let mut reader = Limited::new(&b"abc"[..], limit, "the text");
            io::copy(&mut reader, &mut io::sink())
        };
        assert_eq!(read(3).unwrap(), 3);
        assert_eq!(
            read(2).unwrap_err().to_string(),
            "the text has more than 2 bytes, which is the limit"
        );
    }
}
