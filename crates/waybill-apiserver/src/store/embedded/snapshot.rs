//! Snapshots: all objects in one file, so that the log before it can go.
//!
//! A snapshot is written beside the writers. It holds the lock for a piece at a time, so its pieces
//! may see later writes than its base. That does no harm: the log after the base has all of them,
//! and performing a write again leaves the same state. The last frame says how far the latest piece
//! reaches, which the log must reach too.

use std::{
    fs::File,
    io::{self, Write},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use waybill_core::id::ResourceVersion;

use super::{
    directory::{Directory, Kind},
    frame::{self, FrameBuilder, RecordRef},
    reader::{FrameReader, Next},
    state::State,
};
use crate::store::StoreError;

const TITLE: &[u8] = b"waybill snapshot 1";
const END: &[u8] = b"end";

/// More than a record takes besides its key and value.
const RECORD: u64 = 64;

/// More than the frames take, with what file systems round up.
const OVERHEAD: u64 = 1 << 16;

/// How many bytes of values are copied under one lock.
const PIECE: usize = 1 << 18;

/// Writes all objects of `state`, whose log continues after `base`. Gives up when told to stop.
pub(super) fn write(
    directory: &Directory,
    base: ResourceVersion,
    state: &RwLock<State>,
    stop: &AtomicBool,
) -> Result<(), StoreError> {
    directory.create(Kind::Snapshot, base, |file| write_frames(file, base, state, stop))?;
    Ok(())
}

/// No less than the bytes that a snapshot of `state` takes on disk, and a new log beside it.
pub(super) fn size(state: &State) -> u64 {
    state.bytes() + state.count() * RECORD + OVERHEAD
}

/// Reads the snapshot taken at `base` into an empty state.
pub(super) fn read(directory: &Directory, base: ResourceVersion) -> Result<Restored, StoreError> {
    let mut reader = FrameReader::open(&directory.path(Kind::Snapshot, base), TITLE, base)?;
    let mut state = State::empty();
    loop {
        let offset = reader.offset();
        let (header, payload) = match reader.next()? {
            Next::Frame(header, payload) => (header, payload),
            Next::End | Next::Broken => {
                return Err(reader.damaged_at(offset, "the frame is broken"));
            }
        };
        if payload == END {
            state.set_revision(base);
            return Ok(Restored { state, reaches: header.revision });
        }
        for record in frame::records(&payload) {
            let record =
                record.ok_or_else(|| reader.damaged_at(offset, "a record is malformed"))?;
            state.restore(record);
        }
    }
}

/// What a snapshot held.
pub(super) struct Restored {
    pub(super) state: State,
    /// The latest revision that any piece of the snapshot may have seen.
    pub(super) reaches: ResourceVersion,
}

fn write_frames(
    file: &mut File,
    base: ResourceVersion,
    state: &RwLock<State>,
    stop: &AtomicBool,
) -> io::Result<()> {
    file.write_all(&FrameBuilder::title(base, TITLE).finish())?;
    let mut after: Option<Box<str>> = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (piece, last, reaches) = piece(state, base, after.as_deref());
        let Some(last) = last else {
            return file.write_all(&FrameBuilder::title(reaches, END).finish());
        };
        file.write_all(&piece.finish())?;
        after = Some(last);
    }
}

/// The next objects after `after`, the key of the last of them, and the revision they were seen at.
fn piece(
    state: &RwLock<State>,
    base: ResourceVersion,
    after: Option<&str>,
) -> (FrameBuilder, Option<Box<str>>, ResourceVersion) {
    let state = state.read().unwrap_or_else(PoisonError::into_inner);
    let mut frame = FrameBuilder::new(base);
    let mut last = None;
    for (key, object) in state.range_after(after) {
        frame.push(RecordRef { key, revision: object.revision, value: Some(&object.value) });
        last = Some(key);
        if frame.len() >= PIECE {
            break;
        }
    }
    (frame, last.map(Into::into), state.revision())
}
