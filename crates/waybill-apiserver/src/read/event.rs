//! One event of a watch on its way to a client that may not read it.
//!
//! A large event goes in pieces, each made when the last one was taken. Between them a watch holds no
//! object, only a pointer that lets go: what is neither in the cache nor in its history any more is gone,
//! and the watch with it. So watches that nobody reads take no more memory than the history does, however
//! many they are and whatever is changed meanwhile.

use std::sync::{Arc, Weak};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cache::{CachedObject, ChangeKind, line_head};

/// Longer events are sent in pieces of this size. HTTP/1 connections hold up to 16 of them that are not sent.
pub(super) const PIECE: usize = 8 << 10;

/// So many kibibytes of long events may wait that were made for one watch alone, as rows of tables are.
const ROOM: usize = 64 << 10;

/// Room for events that cannot be looked up again while they are sent.
#[derive(Clone, Debug)]
pub(crate) struct EventRoom(Arc<Semaphore>);

impl Default for EventRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

/// What has not been sent of an event.
pub(super) enum Unsent {
    /// Of an object as it is stored, after so many bytes of it.
    Object { object: Weak<CachedObject>, sent: usize },
    /// Of a line that was made for this watch.
    Line { line: Bytes, sent: usize, _room: OwnedSemaphorePermit },
}

/// Too much has changed since the event began: the rest of it is no longer known.
#[derive(Debug, thiserror::Error)]
#[error("the watch fell behind in the midst of an event")]
pub(super) struct FellBehind;

impl Unsent {
    /// Begins the event of a large object.
    pub(super) fn object(kind: ChangeKind, object: &Arc<CachedObject>) -> (Bytes, Self) {
        let mut piece = BytesMut::with_capacity(PIECE + 64);
        line_head(kind, &mut piece);
        object.put_json_part(0, PIECE, &mut piece);
        (piece.freeze(), Self::Object { object: Arc::downgrade(object), sent: PIECE })
    }

    /// Keeps `line` until it is sent; nothing if too many others are kept.
    pub(super) fn line(line: Bytes, room: &EventRoom) -> Option<Self> {
        let kibibytes = u32::try_from(line.len().div_ceil(1024)).ok()?;
        let room = Arc::clone(&room.0).try_acquire_many_owned(kibibytes).ok()?;
        Some(Self::Line { line, sent: 0, _room: room })
    }

    /// The next piece, and what is left after it.
    pub(super) fn next(self) -> Result<(Bytes, Option<Self>), FellBehind> {
        match self {
            Self::Object { object, sent } => {
                let found = object.upgrade().ok_or(FellBehind)?;
                let mut piece = BytesMut::with_capacity(PIECE + 2);
                found.put_json_part(sent, PIECE, &mut piece);
                let sent = sent + PIECE;
                if sent < found.json_len() {
                    return Ok((piece.freeze(), Some(Self::Object { object, sent })));
                }
                piece.put_slice(b"}\n");
                Ok((piece.freeze(), None))
            }
            Self::Line { line, sent, _room } => {
                let rest = line.get(sent..).unwrap_or_default();
                // A copy: a part of the line would keep all of it.
                let piece = Bytes::copy_from_slice(rest.get(..PIECE).unwrap_or(rest));
                let is_last = rest.len() <= PIECE;
                let sent = sent + PIECE;
                Ok((piece, (!is_last).then_some(Self::Line { line, sent, _room })))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{cache::object_line, document::to_bytes};

    fn object(bytes: usize) -> Arc<CachedObject> {
        let document = json!({"metadata": {"name": "a"}, "data": "x".repeat(bytes)});
        Arc::new(
            CachedObject::new(crate::registry::named("configmaps"), to_bytes(&document), 7.into())
                .unwrap(),
        )
    }

    fn rest(mut unsent: Option<Unsent>) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(part) = unsent.take() {
            let (piece, rest) = part.next().unwrap();
            all.extend_from_slice(&piece);
            unsent = rest;
        }
        all
    }

    #[test]
    fn the_pieces_of_an_event_are_the_event() {
        let room = EventRoom::default();
        for bytes in [PIECE, PIECE + 1, 2 * PIECE - 77, 2 * PIECE, 10 * PIECE + 3] {
            let object = object(bytes);
            let line = object_line(ChangeKind::Added, &object);
            let (first, unsent) = Unsent::object(ChangeKind::Added, &object);
            assert_eq!([first.to_vec(), rest(Some(unsent))].concat(), line, "{bytes}");
            let event: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(event["object"]["metadata"]["resourceVersion"], "7");
            assert_eq!(rest(Unsent::line(line.clone(), &room)), line, "{bytes}");
        }
        assert_eq!(room.0.available_permits(), ROOM, "what is sent makes room");
    }

    #[test]
    fn an_event_that_nobody_reads_holds_no_object() {
        let object = object(4 * PIECE);
        let (_, unsent) = Unsent::object(ChangeKind::Added, &object);
        let (_, unsent) = unsent.next().unwrap();
        drop(object);
        assert!(unsent.unwrap().next().is_err());
    }

    #[test]
    fn events_made_for_one_watch_share_a_room() {
        let (room, line) = (EventRoom::default(), Bytes::from(vec![b'x'; 3 << 20]));
        let kept: Vec<_> = (0..100).map_while(|_| Unsent::line(line.clone(), &room)).collect();
        assert_eq!(kept.len(), 21);
        drop(kept);
        assert!(Unsent::line(line, &room).is_some());
    }
}
