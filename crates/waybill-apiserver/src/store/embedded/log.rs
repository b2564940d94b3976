//! The log: every write since a revision, in order.
//!
//! Room is made ahead of the writes, filled with zeros. A write into it changes nothing but data, so
//! the disk is asked for one thing per commit and not for two; measured, this doubles the commits
//! that a disk with a limited rate of requests performs. On a disk that is full, the last part of the
//! room is for deletions, so that users can still make room themselves.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use waybill_core::id::ResourceVersion;

use super::{
    directory::{Directory, Kind, failed},
    frame::{self, FrameBuilder, Record},
    reader::{FrameReader, Next},
};
use crate::store::StoreError;

const TITLE: &[u8] = b"waybill log 1";

/// How much room is made at a time.
const ROOM: u64 = 1 << 20;

/// How much of it only deletions may use.
const FOR_DELETIONS: u64 = 1 << 18;

/// The log file that takes new writes.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
    /// Where the next frame goes.
    end: u64,
    /// The size of the file.
    size: u64,
}

impl Log {
    /// Starts an empty log after `base`.
    pub(super) fn create(directory: &Directory, base: ResourceVersion) -> Result<Self, StoreError> {
        let title = FrameBuilder::title(base, TITLE).finish();
        let (file, path) = directory.create(Kind::Log, base, |file| file.write_all(&title))?;
        let end = title.len() as u64;
        Ok(Self { file, path, end, size: end })
    }

    /// Adds a frame; it is on disk when this returns.
    pub(super) fn append(&mut self, frame: &[u8], holds: Holds) -> Result<(), AppendError> {
        let end = self.end + frame.len() as u64;
        if let Err(error) = self.make_room_until(end)
            && (holds == Holds::AnyWrites || end > self.size)
        {
            return Err(error);
        }
        if let Err(error) = self.file.write_all_at(frame, self.end) {
            // The frame is not needed; without its remains, the log can go on.
            let zeros = vec![0; frame.len()];
            self.file.write_all_at(&zeros, self.end).map_err(AppendError::Unknown)?;
            return Err(AppendError::Undone(error));
        }
        // After a failed sync the kernel may have dropped the data and forgotten the failure, so
        // nothing that follows could be trusted.
        self.file.sync_data().map_err(AppendError::Unknown)?;
        self.end = end;
        Ok(())
    }

    /// Makes room for so many bytes of frames, if there is less.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<(), AppendError> {
        self.make_room_until(self.end.saturating_add(bytes))
    }

    /// Gives back the room that no frame uses yet, also that for deletions.
    pub(super) fn give_up_room(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.size = self.end;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes in use.
    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// The bytes of the file that no frame uses yet.
    pub(super) fn room(&self) -> u64 {
        self.size.saturating_sub(self.end)
    }

    /// Makes room for frames up to `end`, and for deletions after them.
    fn make_room_until(&mut self, end: u64) -> Result<(), AppendError> {
        let wanted = end + FOR_DELETIONS;
        if wanted <= self.size {
            return Ok(());
        }
        match self.grow(wanted.next_multiple_of(ROOM)) {
            // There may be less than that.
            Err(AppendError::Undone(_)) => self.grow(wanted),
            grown => grown,
        }
    }

    fn grow(&mut self, size: u64) -> Result<(), AppendError> {
        let zeros = vec![0; usize::try_from(size - self.size).unwrap_or(0)];
        if let Err(error) = self.file.write_all_at(&zeros, self.size) {
            // The room that was there before stays.
            self.file.set_len(self.size).map_err(AppendError::Unknown)?;
            return Err(AppendError::Undone(error));
        }
        self.size = size;
        Ok(())
    }
}

/// What is in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    AnyWrites,
    /// It may use the last room.
    OnlyDeletions,
}

/// Why a frame was not added.
#[derive(Debug)]
pub(super) enum AppendError {
    /// The log is as it was.
    Undone(io::Error),
    /// Nobody knows what the log holds on disk.
    Unknown(io::Error),
}

/// Reads an older log, which must be whole, and passes its records on. They end at `until`, where the
/// next log begins: what follows is of a commit that failed, and nobody was told of it.
pub(super) fn replay(
    directory: &Directory,
    base: ResourceVersion,
    until: ResourceVersion,
    each: impl FnMut(Record),
) -> Result<Replayed, StoreError> {
    let (reader, replayed, ended) = read(directory, base, Some(until), each)?;
    if ended {
        return Ok(replayed);
    }
    Err(reader.damaged_at(reader.offset(), "the frame is broken"))
}

/// Reads the newest log, passes its records on, cuts off what a crash left unfinished, and makes
/// sure that what was read is on disk before anyone sees it.
pub(super) fn resume(
    directory: &Directory,
    base: ResourceVersion,
    each: impl FnMut(Record),
) -> Result<(Log, Replayed), StoreError> {
    let (mut reader, replayed, ended) = read(directory, base, None, each)?;
    if !ended {
        check_torn(&mut reader, replayed.newest)?;
    }
    let (path, end) = (reader.path().to_owned(), reader.offset());
    let file = reader.into_file();
    let cut = || {
        if !ended {
            file.set_len(end)?;
        }
        file.sync_all()?;
        file.metadata()
    };
    // Room that is there stays; on a full disk there would be no other.
    let size = cut().map_err(failed("truncating", &path))?.len();
    Ok((Log { file, path, end, size }, replayed))
}

/// What was read of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replayed {
    /// The revision of the last record.
    pub(super) newest: ResourceVersion,
    /// The bytes in use.
    pub(super) bytes: u64,
}

/// Passes on the records of all whole frames, up to `until`; the flag says whether the log ends after
/// them.
fn read(
    directory: &Directory,
    base: ResourceVersion,
    until: Option<ResourceVersion>,
    mut each: impl FnMut(Record),
) -> Result<(FrameReader, Replayed, bool), StoreError> {
    let mut reader = FrameReader::open(&directory.path(Kind::Log, base), TITLE, base)?;
    let mut newest = base;
    loop {
        let offset = reader.offset();
        if until == Some(newest) {
            return Ok((reader, Replayed { newest, bytes: offset }, true));
        }
        let payload = match reader.next()? {
            Next::Frame(_, payload) => payload,
            Next::End => return Ok((reader, Replayed { newest, bytes: offset }, true)),
            Next::Broken => return Ok((reader, Replayed { newest, bytes: offset }, false)),
        };
        for record in frame::records(&payload) {
            let record =
                record.ok_or_else(|| reader.damaged_at(offset, "a record is malformed"))?;
            if record.revision.get() != newest.get() + 1 {
                return Err(reader.damaged_at(offset, "a revision is missing"));
            }
            newest = record.revision;
            each(record);
        }
    }
}

/// Refuses a broken frame unless a crash explains it, in which case nobody was told of its writes.
fn check_torn(reader: &mut FrameReader, newest: ResourceVersion) -> Result<(), StoreError> {
    let (tail, offset) = (reader.tail()?, reader.offset());
    if frame::holds_later_frame(&tail, newest) {
        return Err(reader.damaged_at(offset, "the frame is broken, and whole ones follow it"));
    }
    if !frame::looks_torn(&tail, offset) {
        return Err(reader.damaged_at(offset, "the frame is broken, and not by a crash"));
    }
    tracing::warn!(
        path = %reader.path().display(),
        offset,
        bytes = tail.len(),
        "removing an unfinished commit from the log"
    );
    Ok(())
}
