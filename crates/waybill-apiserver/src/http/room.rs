//! What one HTTP/2 connection may make us hold.
//!
//! A hundred requests may be open on it at once, each with a body of three megabytes, and a hundred answers of the same size
//! that nobody reads. So bodies wait for each other before any of them is read, and answers that are whole have a room together. What is made
//! while it is sent takes next to nothing until it is asked for, one piece each.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, header};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use waybill_api::status::Status;

use super::{
    answer::PIECE,
    body::{Body, BodyError, LIMIT},
};

/// Bodies of requests that are read or worked on at once, in bytes: one of the largest, or very many of the usual.
const BODIES: usize = LIMIT + LIMIT / 4;

/// Answers that wait for their client, in bytes.
const ANSWERS: usize = 12 * 1024 * 1024;

/// How long a request waits for those before it on its connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// The room of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    bodies: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

impl Room {
    pub(super) fn new() -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(BODIES)),
            answers: Arc::new(Semaphore::new(ANSWERS)),
        }
    }

    /// Waits until the body of `request` may come. The place is taken as long as what is returned lives.
    pub(super) async fn for_body(
        &self,
        request: &Request<Incoming>,
    ) -> Result<Option<Arc<OwnedSemaphorePermit>>, Status> {
        if request.body().is_end_stream() {
            return Ok(None);
        }
        let said = request.headers().get(header::CONTENT_LENGTH);
        let said = said.and_then(|value| value.to_str().ok()?.parse().ok());
        let places = places(said.unwrap_or(LIMIT).min(LIMIT));
        let taken = Arc::clone(&self.bodies).acquire_many_owned(places);
        match timeout(PATIENCE, taken).await {
            Ok(Ok(place)) => Ok(Some(Arc::new(place))),
            // Nobody closes it.
            Ok(Err(_)) | Err(_) => Err(Status::too_many_requests()),
        }
    }

    /// The place of an answer of `size` bytes that is whole, until its client takes it; nothing for a small one. A client that
    /// leaves much unread is told to come back; one that changed something has to look what became of it, as after any
    /// answer that was lost.
    pub(crate) fn for_answer(&self, method: &Method, size: usize) -> Result<AnswerPlace, Status> {
        if size <= PIECE {
            return Ok(AnswerPlace(None));
        }
        let taken = Arc::clone(&self.answers).try_acquire_many_owned(places(size.min(ANSWERS)));
        taken.map(|place| AnswerPlace(Some(place))).map_err(|_| {
            if matches!(*method, Method::GET | Method::HEAD) {
                Status::too_many_requests()
            } else {
                Status::timeout("the connection has too many answers that were not read")
            }
        })
    }

    /// The same answer in pieces, each made when the one before is on its way. HTTP/2 takes what it is given, however little
    /// the client lets through, and then we would hold all of it and not know.
    pub(super) fn piece_by_piece(&self, answer: Body) -> Body {
        let answers = Arc::clone(&self.answers);
        answer.in_pieces(PIECE, |body, rest| PieceByPiece { body, rest, answers, place: None })
    }
}

/// Room that is taken as long as this lives.
#[derive(Debug, Default)]
pub(crate) struct AnswerPlace(Option<OwnedSemaphorePermit>);

impl AnswerPlace {
    /// `body`, which holds the place.
    pub(crate) fn hold(self, body: Body) -> Body {
        match self.0 {
            Some(place) => body.keeping(place),
            None => body,
        }
    }
}

fn places(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A body that is given away in small pieces. Larger ones are cut, and need room until the last of them is on its way; the body
/// breaks off if there is none.
struct PieceByPiece<B> {
    /// Nothing if `rest` is all.
    body: Option<B>,
    rest: Bytes,
    answers: Arc<Semaphore>,
    /// For what is left of a large piece.
    place: Option<OwnedSemaphorePermit>,
}

impl<B> PieceByPiece<B> {
    /// The next of what is left. A copy: a part would keep all of it.
    fn cut(&mut self) -> Bytes {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        if self.rest.is_empty() {
            self.rest = Bytes::new();
            self.place = None;
        }
        Bytes::copy_from_slice(&piece)
    }

    /// Begins to cut a large piece.
    fn begin(&mut self, piece: Bytes) -> Result<Bytes, BodyError> {
        let taken = Arc::clone(&self.answers);
        let taken = taken.try_acquire_many_owned(places(piece.len().min(ANSWERS)));
        let unread = |_| "the connection has too many answers that were not read";
        self.place = Some(taken.map_err(unread)?);
        self.rest = piece;
        Ok(self.cut())
    }
}

impl<B> hyper::body::Body for PieceByPiece<B>
where
    B: hyper::body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.cut()))));
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        match ready!(Pin::new(body).poll_frame(context)) {
            // A little over is what pieces are whose last object is small.
            Some(Ok(frame)) if frame.data_ref().is_some_and(|data| data.len() > 2 * PIECE) => {
                let piece = frame.into_data().unwrap_or_default();
                Poll::Ready(Some(this.begin(piece).map(Frame::data)))
            }
            other => Poll::Ready(other),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.as_ref().map(B::size_hint));
        let mut whole = SizeHint::with_exact(rest);
        if let Some(body) = body {
            whole = SizeHint::new();
            whole.set_lower(rest.saturating_add(body.lower()));
            if let Some(upper) = body.upper() {
                whole.set_upper(rest.saturating_add(upper));
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    const LARGE: usize = 3 * 1024 * 1024;

    #[test]
    fn whole_answers_have_a_room_together_until_they_are_taken() {
        let room = Room::new();
        let place = |method: Method, size| room.for_answer(&method, size);
        let large = || place(Method::GET, LARGE).map(|it| it.hold(Body::whole(Bytes::new())));
        let held: Vec<_> = (0..4).map(|_| large().ok().unwrap()).collect();
        assert_eq!(large().err().unwrap().code(), 429);
        assert_eq!(place(Method::PUT, LARGE).unwrap_err().code(), 504);
        assert!(place(Method::GET, 2).is_ok());
        drop(held);
        assert!(large().is_ok());
        assert!(place(Method::GET, ANSWERS + 1).is_ok(), "one alone has all of it");
    }

    #[tokio::test]
    async fn large_pieces_need_room_and_small_ones_none() {
        let room = Room::new();
        let body = |sizes: Vec<usize>| {
            let pieces = sizes.into_iter().map(|size| Ok(Bytes::from(vec![b'x'; size])));
            room.piece_by_piece(Body::pieces(stream::iter(pieces)))
        };
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut body = body(vec![LARGE, 1]);
            assert!(body.frame().await.unwrap().is_ok());
            held.push(body);
        }
        assert!(body(vec![LARGE]).frame().await.unwrap().is_err());
        assert!(body(vec![PIECE]).frame().await.unwrap().is_ok());
        // There is room when the last of a large piece is on its way.
        for _ in 1..LARGE / PIECE {
            let piece = held[0].frame().await.unwrap().unwrap();
            assert_eq!(piece.data_ref().unwrap().len(), PIECE);
        }
        assert!(body(vec![LARGE]).frame().await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn an_answer_is_the_same_in_pieces() {
        let room = Room::new();
        let bytes: Bytes = (0..LARGE / 2 + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let whole = || room.piece_by_piece(Body::whole(bytes.clone()));
        let pieces = || {
            let parts = [bytes.slice(..5), bytes.slice(5..)].map(Ok);
            room.piece_by_piece(Body::pieces(stream::iter(parts)))
        };
        assert_eq!(whole().size_hint().exact(), Some(bytes.len() as u64));
        assert_eq!(whole().collect().await.unwrap().to_bytes(), bytes);
        assert_eq!(pieces().collect().await.unwrap().to_bytes(), bytes);
        assert_eq!(room.answers.available_permits(), ANSWERS);
        let small = room.piece_by_piece(Body::whole(Bytes::from_static(b"{}")));
        assert_eq!(small.collect().await.unwrap().to_bytes(), "{}");
    }
}
