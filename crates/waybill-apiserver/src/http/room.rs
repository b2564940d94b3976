//! What one HTTP/2 connection may make us hold.
//!
//! A hundred requests may be open on it at once, each with a body of three megabytes, and a hundred answers of the same size
//! that nobody reads. So bodies wait for each other before any of them is read, and answers that are whole have a room together. What is made
//! while it is sent takes next to nothing until it is asked for, one piece each.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use waybill_api::status::Status;

use super::{
    answer::{Answer, PIECE},
    body::{Body, BodyError, LIMIT, keeping},
};

/// Bodies of requests that are read or worked on at once, in bytes: one of the largest, or very many of the usual.
const BODIES: usize = LIMIT + LIMIT / 4;

/// Answers that wait for their client, in bytes.
const ANSWERS: usize = 12 * 1024 * 1024;

/// How long a request waits for those before it on its connection.
const PATIENCE: Duration = Duration::from_secs(60);

/// The room of one connection.
#[derive(Clone, Debug)]
pub(super) struct Room {
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

    /// The answer, if there is room for it until its client takes it. A client that leaves much unread is told to come back;
    /// one that changed something has to look what became of it, as after any answer that was lost.
    pub(super) fn admit(&self, method: &Method, response: Response<Body>) -> Response<Body> {
        let Some(size) = response.body().size_hint().exact() else {
            let answers = Arc::clone(&self.answers);
            return response.map(|body| PieceByPiece { body, answers, last: None }.boxed_unsync());
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size <= PIECE {
            return response;
        }
        match Arc::clone(&self.answers).try_acquire_many_owned(places(size.min(ANSWERS))) {
            Ok(place) => response.map(|body| keeping(body, place)),
            Err(_) => {
                let status = if matches!(*method, Method::GET | Method::HEAD) {
                    Status::too_many_requests()
                } else {
                    Status::timeout("the connection has too many answers that were not read")
                };
                let id = response.headers().get("audit-id").and_then(|id| id.to_str().ok());
                Answer::status(&status).into_response(id.unwrap_or_default())
            }
        }
    }
}

fn places(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A body of pieces, of which large ones need room; it breaks off if there is none.
struct PieceByPiece {
    body: Body,
    answers: Arc<Semaphore>,
    /// For the piece that is on its way.
    last: Option<OwnedSemaphorePermit>,
}

impl hyper::body::Body for PieceByPiece {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(next) = &polled {
            this.last = None;
            let data = next.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            let size = data.map_or(0, Bytes::len);
            // A little over is what pieces are whose last object is small.
            if size > 2 * PIECE {
                let places = places(size.min(ANSWERS));
                match Arc::clone(&this.answers).try_acquire_many_owned(places) {
                    Ok(place) => this.last = Some(place),
                    Err(_) => {
                        return Poll::Ready(Some(Err(
                            "the connection has too many answers that were not read".into(),
                        )));
                    }
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http::StatusCode;

    use super::*;
    use crate::http::body::{stream_body, whole_body};

    const LARGE: usize = 3 * 1024 * 1024;

    fn large() -> Response<Body> {
        Response::new(whole_body(Bytes::from(vec![b'x'; LARGE])))
    }

    #[test]
    fn whole_answers_have_a_room_together_until_they_are_taken() {
        let room = Room::new();
        let held: Vec<_> = (0..4).map(|_| room.admit(&Method::GET, large())).collect();
        assert!(held.iter().all(|answer| answer.status() == StatusCode::OK));
        let refused = room.admit(&Method::GET, large());
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.body().size_hint().exact().unwrap() < 1_000, "what was made is gone");
        let refused = room.admit(&Method::PUT, large());
        assert_eq!(refused.status(), StatusCode::GATEWAY_TIMEOUT);
        let small = Response::new(whole_body(Bytes::from_static(b"{}")));
        assert_eq!(room.admit(&Method::GET, small).status(), StatusCode::OK);
        drop(held);
        assert_eq!(room.admit(&Method::GET, large()).status(), StatusCode::OK);
        let whole = vec![b'x'; ANSWERS + 1];
        let alone = Response::new(whole_body(Bytes::from(whole)));
        assert_eq!(room.admit(&Method::GET, alone).status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn large_pieces_need_room_and_small_ones_none() {
        let room = Room::new();
        let body = |sizes: Vec<usize>| {
            let pieces = sizes.into_iter().map(|size| Ok(Bytes::from(vec![b'x'; size])));
            room.admit(&Method::GET, Response::new(stream_body(stream::iter(pieces)))).into_body()
        };
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut body = body(vec![LARGE, 1]);
            assert!(body.frame().await.unwrap().is_ok());
            held.push(body);
        }
        assert!(body(vec![LARGE]).frame().await.unwrap().is_err());
        assert!(body(vec![PIECE]).frame().await.unwrap().is_ok());
        // The next piece is asked for when the one before is gone.
        assert!(held[0].frame().await.unwrap().is_ok());
        assert!(body(vec![LARGE]).frame().await.unwrap().is_ok());
    }
}
