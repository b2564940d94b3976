//! The text of a review. Room for it is asked for before it is read, so that what strangers send cannot fill the
//! memory of the gate.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{BODY_BYTES, JudgeError, peers::Peer};

/// Every connection may hold this much without asking: ordinary reviews never wait for large ones.
const SMALL: usize = 32 << 10;

/// How much text of larger reviews is in memory at once: one of the largest from each of four addresses.
const LARGE_AT_ONCE: usize = 4 * BODY_BYTES;

/// How long a large one waits for room. API servers wait ten seconds for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a body may take.
const BODY: Duration = Duration::from_secs(10);

/// Room for the text of large reviews.
pub(super) struct Room {
    /// In KiB.
    large: Semaphore,
    patience: Duration,
}

/// The text of a review, and the room that it takes.
pub(super) struct Text<'a> {
    pub(super) bytes: Bytes,
    _held: Option<[SemaphorePermit<'a>; 2]>,
}

impl Default for Room {
    fn default() -> Self {
        Self { large: Semaphore::new(kibibytes(LARGE_AT_ONCE)), patience: PATIENCE }
    }
}

impl Room {
    /// Reads a body; nothing of a large one is taken from the connection before there is room for all of it.
    pub(super) async fn read<'a, B>(
        &'a self,
        peer: &'a Peer,
        body: B,
    ) -> Result<Text<'a>, JudgeError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // Whoever does not say how long it is may send the most.
        let bytes = body.size_hint().exact().map_or(Ok(BODY_BYTES), usize::try_from);
        let bytes = bytes.ok().filter(|bytes| *bytes <= BODY_BYTES).ok_or(JudgeError::Body)?;
        let held = if bytes > SMALL { Some(self.hold(peer, bytes).await?) } else { None };
        let read = timeout(BODY, Limited::new(body, bytes).collect()).await;
        let read = read.map_err(|_| JudgeError::SlowBody)?.map_err(|_| JudgeError::Body)?;
        Ok(Text { bytes: read.to_bytes(), _held: held })
    }

    /// First the share of the peer, so that no address queues more than that for everybody's room.
    async fn hold<'a>(
        &'a self,
        peer: &'a Peer,
        bytes: usize,
    ) -> Result<[SemaphorePermit<'a>; 2], JudgeError> {
        let number = u32::try_from(kibibytes(bytes)).unwrap_or(u32::MAX);
        // Nobody closes them.
        let hold = async {
            let share = peer.large.acquire_many(number).await.ok()?;
            Some([share, self.large.acquire_many(number).await.ok()?])
        };
        timeout(self.patience, hold).await.ok().flatten().ok_or(JudgeError::Busy)
    }
}

/// Rounded up.
pub(super) fn kibibytes(bytes: usize) -> usize {
    bytes.div_ceil(1 << 10)
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        pin::Pin,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        task::{Context, Poll},
    };

    use hyper::body::{Frame, SizeHint};

    use super::{super::peers::Peers, *};

    /// A body that says how long it is, and never comes. It notices whether anybody wants it.
    struct Stuck {
        bytes: Option<u64>,
        wanted: Arc<AtomicBool>,
    }

    impl Body for Stuck {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.wanted.store(true, Ordering::Relaxed);
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            self.bytes.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    /// Begins to read a body that never comes, as far as that goes; true if it was wanted.
    async fn begin<'a>(
        room: &'a Room,
        peer: &'a Peer,
        bytes: Option<u64>,
    ) -> (Pin<Box<dyn Future<Output = Result<Text<'a>, JudgeError>> + 'a>>, bool) {
        let wanted = Arc::new(AtomicBool::new(false));
        let body = Stuck { bytes, wanted: Arc::clone(&wanted) };
        let mut reading: Pin<Box<dyn Future<Output = _>>> = Box::pin(room.read(peer, body));
        let over = futures_util::poll!(reading.as_mut()).is_ready();
        assert!(!over, "it never comes");
        (reading, wanted.load(Ordering::Relaxed))
    }

    fn peers(number: u8) -> Vec<Peer> {
        let peers = Arc::new(Peers::default());
        (0..number).map(|it| peers.admit([10, 0, 0, it].into()).unwrap()).collect()
    }

    const LARGE: Option<u64> = Some(BODY_BYTES as u64);

    /// CSI-22: a flood of large bodies whose end is held back takes no memory, and stops nobody else.
    #[tokio::test]
    async fn a_body_is_read_when_there_is_room_for_it_csi_22() {
        let room = Room { patience: Duration::from_millis(10), ..Room::default() };
        let peers = peers(6);
        let mut held = Vec::new();
        for peer in &peers[..4] {
            let (reading, wanted) = begin(&room, peer, LARGE).await;
            assert!(wanted, "the first of each address");
            held.push(reading);
            for bytes in [LARGE, None, Some(SMALL as u64 + 1)] {
                let (reading, wanted) = begin(&room, peer, bytes).await;
                assert!(!wanted, "its share is taken: {bytes:?}");
                assert!(matches!(reading.await, Err(JudgeError::Busy)));
            }
            let (_, wanted) = begin(&room, peer, Some(SMALL as u64)).await;
            assert!(wanted, "a small one is always read");
        }
        let (reading, wanted) = begin(&room, &peers[4], LARGE).await;
        assert!(!wanted, "everybody's room is taken");
        assert!(matches!(reading.await, Err(JudgeError::Busy)));
        held.pop();
        assert!(begin(&room, &peers[5], LARGE).await.1, "there is room again");
    }

    /// CSI-22
    #[tokio::test]
    async fn what_is_too_long_is_not_begun_csi_22() {
        let (room, peers) = (Room::default(), peers(1));
        let wanted = Arc::new(AtomicBool::new(false));
        let body = Stuck { bytes: Some(BODY_BYTES as u64 + 1), wanted: Arc::clone(&wanted) };
        assert!(matches!(room.read(&peers[0], body).await, Err(JudgeError::Body)));
        assert!(!wanted.load(Ordering::Relaxed));
        let body = http_body_util::Full::new(Bytes::from_static(b"{}"));
        assert_eq!(room.read(&peers[0], body).await.unwrap().bytes, "{}");
    }
}
