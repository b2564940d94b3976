//! Bodies of requests and answers.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body_util::{BodyExt, LengthLimitError, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::timeout;
use waybill_api::status::Status;

use super::pace::Pace;

/// The body of an answer: as a whole, or in pieces as they come. It keeps what must live until all of it was taken, or it was
/// given up.
pub(crate) struct Body {
    content: Content,
    /// That of its connection, for what is made while it is sent.
    pace: Option<Pace>,
    kept: Option<Box<dyn Send>>,
}

enum Content {
    /// Empty once it was taken.
    Whole(Bytes),
    Pieces(Pieces),
}

type Pieces = UnsyncBoxBody<Bytes, BodyError>;

/// Why the body of an answer broke off.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Largest body that is read, as upstream.
pub(super) const LIMIT: usize = 3 * 1024 * 1024;

impl Body {
    /// A body that is known as a whole.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { content: Content::Whole(bytes), pace: None, kept: None }
    }

    /// A body that comes in pieces, as long as there are any, or breaks off.
    pub(crate) fn pieces(
        pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
    ) -> Self {
        Self::from(StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync())
    }

    /// The same body, with which `more` lives.
    pub(crate) fn keeping(self, more: impl Send + 'static) -> Self {
        let kept: Box<dyn Send> = match self.kept {
            None => Box::new(more),
            Some(kept) => Box::new((kept, more)),
        };
        Self { kept: Some(kept), ..self }
    }

    /// The same body, made at the pace of its connection.
    pub(crate) fn at(self, pace: Pace) -> Self {
        Self { pace: Some(pace), ..self }
    }

    /// The same body as `make` gives it away: of pieces, or of a rest alone that is longer than `most`.
    pub(super) fn in_pieces<B>(
        self,
        most: usize,
        make: impl FnOnce(Option<Pieces>, Bytes) -> B,
    ) -> Self
    where
        B: hyper::body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
    {
        let made = match self.content {
            Content::Whole(bytes) if bytes.len() <= most => {
                return Self { content: Content::Whole(bytes), ..self };
            }
            Content::Whole(bytes) => make(None, bytes),
            Content::Pieces(pieces) => make(Some(pieces), Bytes::new()),
        };
        Self { content: Content::Pieces(made.boxed_unsync()), ..self }
    }
}

/// The body of a node's answer, which is passed on.
impl From<Pieces> for Body {
    fn from(pieces: Pieces) -> Self {
        Self { content: Content::Pieces(pieces), pace: None, kept: None }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match &mut this.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Pieces(pieces) => loop {
                if this.pace.as_ref().is_some_and(|pace| !pace.take_piece()) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                match ready!(Pin::new(&mut *pieces).poll_frame(context)) {
                    // Worked on, but not complete.
                    Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                    other => return Poll::Ready(other),
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Pieces(pieces) => pieces.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Pieces(pieces) => pieces.size_hint(),
        }
    }
}

/// Reads the whole body of a request, for which the client has as long as `patience`.
pub(crate) async fn read_body(body: Incoming, patience: Duration) -> Result<Bytes, Status> {
    let limited = Limited::new(body, LIMIT).collect();
    match timeout(patience, limited).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Status::entity_too_large(format!("the request body is larger than {LIMIT} bytes")))
        }
        Ok(Err(_)) => Err(Status::bad_request("the request body could not be read")),
        Err(_) => Err(Status::timeout("the request body took too long")),
    }
}
