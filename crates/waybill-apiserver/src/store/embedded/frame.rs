//! How bytes lie in the files: frames of records, each frame with checksums.
//!
//! A frame is written at once, so a crash leaves it whole or not; all writes of one commit are one
//! frame. The first frame of a file says what the file is. This module knows no files.
//!
//! ```text
//! frame:  magic 4 | payload length 4 | revision 8 | payload crc 4 | header crc 4 | payload
//! record: operation 1 | revision 8 | key length 4 | value length 4 | key | value
//! ```
//!
//! Numbers are little-endian, checksums CRC-32 (IEEE).

use bytes::Bytes;
use waybill_core::id::ResourceVersion;

use crate::store::kept;

/// The size of everything before the payload.
pub(super) const HEADER: usize = 24;

/// The largest value that the store takes. The API's limit is far below it; this one keeps a damaged
/// length from asking for all memory.
pub(super) const LARGEST_VALUE: usize = 32 << 20;

/// A commit of this size takes no further write.
pub(super) const FULL: usize = 4 << 20;

/// The last record of a frame may pass [`FULL`] by its own size, and records have headers.
const LARGEST_PAYLOAD: usize = 2 * FULL + LARGEST_VALUE;

/// No UTF-8 text holds these bytes, so no JSON document holds what looks like a frame.
const MAGIC: [u8; 4] = [0xFF, b'w', b'b', 0xFE];

/// A frame being filled.
#[derive(Debug)]
pub(super) struct FrameBuilder {
    /// The header's place, then the payload.
    bytes: Vec<u8>,
    revision: ResourceVersion,
}

impl FrameBuilder {
    pub(super) fn new(revision: ResourceVersion) -> Self {
        Self { bytes: vec![0; HEADER], revision }
    }

    /// A frame that says what its file is.
    pub(super) fn title(revision: ResourceVersion, title: &[u8]) -> Self {
        let mut frame = Self::new(revision);
        frame.bytes.extend_from_slice(title);
        frame
    }

    /// Adds a record. Its key and value are within [`LARGEST_VALUE`].
    pub(super) fn push(&mut self, record: RecordRef<'_>) {
        let (operation, value) = match record.value {
            Some(value) => (PUT, value),
            None => (DELETE, &[][..]),
        };
        self.bytes.push(operation);
        self.bytes.extend_from_slice(&record.revision.get().to_le_bytes());
        self.bytes.extend_from_slice(&length(record.key.as_bytes()));
        self.bytes.extend_from_slice(&length(value));
        self.bytes.extend_from_slice(record.key.as_bytes());
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER
    }

    /// The bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The finished frame.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let payload = self.bytes.get(HEADER..).unwrap_or_default();
        let header = encode_header(payload, self.revision);
        for (to, from) in self.bytes.iter_mut().zip(header) {
            *to = from;
        }
        self.bytes
    }
}

/// A record to be written.
#[derive(Clone, Copy)]
pub(super) struct RecordRef<'a> {
    pub(super) key: &'a str,
    pub(super) revision: ResourceVersion,
    /// `None` deletes.
    pub(super) value: Option<&'a [u8]>,
}

/// A record that was read.
pub(super) struct Record {
    pub(super) key: String,
    pub(super) revision: ResourceVersion,
    /// `None` deletes.
    pub(super) value: Option<Bytes>,
}

/// What a frame's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) revision: ResourceVersion,
    pub(super) length: usize,
    crc: u32,
}

impl FrameHeader {
    /// Reads a header; `None` if these bytes are none.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let (checked, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(checked) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (magic, rest) = checked.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (revision, crc) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        (*magic == MAGIC && length <= LARGEST_PAYLOAD).then_some(())?;
        let crc = u32::from_le_bytes(*crc.first_chunk()?);
        Some(Self { revision: u64::from_le_bytes(*revision).into(), length, crc })
    }

    /// Whether `payload` is what was written.
    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && crc32fast::hash(payload) == self.crc
    }
}

/// The records of a payload whose checksum is right; `None` in place of one that is malformed.
pub(super) fn records(mut payload: &[u8]) -> impl Iterator<Item = Option<Record>> {
    std::iter::from_fn(move || {
        if payload.is_empty() {
            return None;
        }
        let record = decode_record(payload);
        payload = record.as_ref().map_or(&[], |(_, rest)| rest);
        Some(record.map(|(record, _)| record))
    })
}

/// Whether a whole frame with a later revision than `revision` begins anywhere in `bytes`. If one
/// does, what comes before it was on disk once, because commits do not overlap.
pub(super) fn holds_later_frame(bytes: &[u8], revision: ResourceVersion) -> bool {
    let starts = bytes.windows(MAGIC.len()).enumerate().filter(|(_, window)| *window == MAGIC);
    let mut frames = starts.filter_map(|(at, _)| {
        let (header, rest) = bytes.get(at..)?.split_first_chunk()?;
        let header = FrameHeader::decode(header)?;
        header.matches(rest.get(..header.length)?).then_some(header.revision)
    });
    frames.any(|found| found > revision)
}

/// Whether the end of a file, from `offset`, can be what a crash leaves of a frame: too short for
/// it, or with a sector that was never written. Anything else once was whole and was changed since.
pub(super) fn looks_torn(tail: &[u8], offset: u64) -> bool {
    let Some((header, rest)) = tail.split_first_chunk::<HEADER>() else { return true };
    match FrameHeader::decode(header) {
        Some(header) => match tail.get(..HEADER + header.length) {
            Some(frame) => sectors(frame, offset).any(is_empty),
            None => rest.len() < header.length,
        },
        // Without a length, only the sectors that hold the header are known to belong to the frame.
        None => sectors(tail, offset).scan(0, next_start).any(is_empty),
    }
}

/// The unit in which a disk writes or does not write.
const SECTOR: usize = 512;

/// Cuts `bytes`, which lie at `offset` of their file, where sectors end.
fn sectors(bytes: &[u8], offset: u64) -> impl Iterator<Item = &[u8]> {
    let into_sector = usize::try_from(offset % SECTOR as u64).unwrap_or(0);
    let (first, rest) = bytes.split_at_checked(SECTOR - into_sector).unwrap_or((bytes, &[]));
    std::iter::once(first).chain(rest.chunks(SECTOR))
}

/// Passes a sector on if it begins before the header ends.
fn next_start<'a>(start: &mut usize, sector: &'a [u8]) -> Option<&'a [u8]> {
    let begins = *start;
    *start += sector.len();
    (begins < HEADER).then_some(sector)
}

fn is_empty(sector: &[u8]) -> bool {
    sector.iter().all(|byte| *byte == 0)
}

const PUT: u8 = 1;
const DELETE: u8 = 2;

fn encode_header(payload: &[u8], revision: ResourceVersion) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let crc = crc32fast::hash(payload).to_le_bytes();
    let fields = MAGIC.into_iter().chain(length(payload)).chain(revision.get().to_le_bytes());
    for (to, from) in header.iter_mut().zip(fields.chain(crc)) {
        *to = from;
    }
    if let Some((checked, crc)) = header.split_last_chunk_mut::<4>() {
        *crc = crc32fast::hash(checked).to_le_bytes();
    }
    header
}

fn decode_record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (operation, rest) = bytes.split_first()?;
    let (revision, rest) = rest.split_first_chunk::<8>()?;
    let (key, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*key)).ok()?)?;
    let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*value)).ok()?)?;
    let record = Record {
        key: str::from_utf8(key).ok()?.into(),
        revision: u64::from_le_bytes(*revision).into(),
        value: match *operation {
            PUT => Some(kept(value)),
            DELETE => None,
            _ => return None,
        },
    };
    Some((record, rest))
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(revision: u64, records: &[(&str, Option<&[u8]>)]) -> Vec<u8> {
        let mut frame = FrameBuilder::new(revision.into());
        for (at, (key, value)) in records.iter().enumerate() {
            let revision = (revision + at as u64).into();
            frame.push(RecordRef { key, revision, value: *value });
        }
        frame.finish()
    }

    type Plain = (String, u64, Option<Vec<u8>>);

    fn decode(bytes: &[u8]) -> Option<Vec<Plain>> {
        let (header, payload) = bytes.split_first_chunk()?;
        FrameHeader::decode(header)?.matches(payload).then_some(())?;
        let plain = |record: Record| {
            (record.key, record.revision.get(), record.value.map(|value| value.to_vec()))
        };
        records(payload).map(|record| record.map(plain)).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            records in prop::collection::vec((".{0,20}", any::<Option<Vec<u8>>>()), 0..5),
            first in 0..u64::MAX / 2,
        ) {
            let borrowed: Vec<_> =
                records.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
            let expected: Vec<_> = records
                .iter()
                .zip(first..)
                .map(|((key, value), revision)| (key.clone(), revision, value.clone()))
                .collect();
            prop_assert_eq!(decode(&frame(first, &borrowed)), Some(expected));
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0usize..60, change in 1u8..) {
            let mut bytes = frame(7, &[("/some/key", Some(b"some value, thirty bytes long"))]);
            let at = at % bytes.len();
            bytes[at] ^= change;
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = records(&bytes).take(1000).count();
            let _ = looks_torn(&bytes, 0);
            let _ = holds_later_frame(&bytes, 0.into());
        }
    }

    #[test]
    fn a_short_end_and_an_empty_sector_are_torn_and_a_changed_byte_is_not() {
        let whole = frame(7, &[("/k", Some(&[b'x'; 2000]))]);
        for length in 0..whole.len() {
            assert!(looks_torn(&whole[..length], 100), "{length}");
        }
        let mut changed = whole.clone();
        changed[30] ^= 1;
        assert!(!looks_torn(&changed, 100));
        let mut unwritten = whole;
        unwritten[924..1436].fill(0);
        assert!(looks_torn(&unwritten, 100));
    }

    #[test]
    fn only_a_whole_and_later_frame_counts_as_one() {
        let later = frame(9, &[("/k", None)]);
        let mut bytes = b"garbage".to_vec();
        bytes.extend_from_slice(&later);
        assert!(holds_later_frame(&bytes, 8.into()));
        assert!(!holds_later_frame(&bytes, 9.into()));
        bytes.pop();
        assert!(!holds_later_frame(&bytes, 8.into()));
    }
}
