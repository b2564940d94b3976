//! Reads a file frame by frame, and tells its end from its damage.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use waybill_core::id::ResourceVersion;

use super::{
    directory::failed,
    frame::{FrameHeader, HEADER},
};
use crate::store::StoreError;

/// A file of frames, open at the beginning of one.
#[derive(Debug)]
pub(super) struct FrameReader {
    file: BufReader<File>,
    path: PathBuf,
    offset: u64,
}

impl FrameReader {
    /// Opens `path`, which must begin with this title and revision.
    pub(super) fn open(
        path: &Path,
        title: &[u8],
        revision: ResourceVersion,
    ) -> Result<Self, StoreError> {
        let file = File::options().read(true).write(true).open(path);
        let file = BufReader::with_capacity(1 << 18, file.map_err(failed("opening", path))?);
        let mut reader = Self { file, path: path.into(), offset: 0 };
        match reader.next()? {
            Next::Frame(header, payload) if payload == title && header.revision == revision => {
                Ok(reader)
            }
            _ => Err(reader.damaged_at(0, "the file does not begin with its title")),
        }
    }

    /// Reads on. After an end or a broken frame the offset stays there.
    pub(super) fn next(&mut self) -> Result<Next, StoreError> {
        self.try_next().map_err(failed("reading", &self.path))
    }

    /// Everything from the offset on.
    pub(super) fn tail(&mut self) -> Result<Vec<u8>, StoreError> {
        self.try_tail().map_err(failed("reading", &self.path))
    }

    /// The file, for writing at its end.
    pub(super) fn into_file(self) -> File {
        self.file.into_inner()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next frame begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Says that the frame at `offset` is not what was written.
    pub(super) fn damaged_at(&self, offset: u64, reason: &'static str) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), offset, reason }
    }

    fn try_next(&mut self) -> io::Result<Next> {
        let mut header = [0; HEADER];
        let found = read_up_to(&mut self.file, &mut header)?;
        if found == 0 || header == [0; HEADER] {
            let rest_is_empty = self.try_tail()?.iter().all(|byte| *byte == 0);
            return Ok(if rest_is_empty { Next::End } else { Next::Broken });
        }
        let Some(header) = FrameHeader::decode(&header).filter(|_| found == HEADER) else {
            return Ok(Next::Broken);
        };
        let mut payload = vec![0; header.length];
        if read_up_to(&mut self.file, &mut payload)? < header.length || !header.matches(&payload) {
            return Ok(Next::Broken);
        }
        self.offset += (HEADER + header.length) as u64;
        Ok(Next::Frame(header, payload))
    }

    fn try_tail(&mut self) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut tail = Vec::new();
        self.file.read_to_end(&mut tail)?;
        Ok(tail)
    }
}

/// What comes next in a file.
#[derive(Debug)]
pub(super) enum Next {
    Frame(FrameHeader, Vec<u8>),
    /// The file ends here, or only room for more follows.
    End,
    /// What follows is no frame, or not all of one.
    Broken,
}

/// Fills `buffer` as far as the file reaches.
fn read_up_to(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let limit = buffer.len() as u64;
    let mut unfilled = buffer;
    let copied = io::copy(&mut file.take(limit), &mut unfilled)?;
    Ok(usize::try_from(copied).unwrap_or(usize::MAX))
}
