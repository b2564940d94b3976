//! Bodies of requests and answers.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body_util::{
    BodyExt, Full, LengthLimitError, Limited, StreamBody, combinators::UnsyncBoxBody,
};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::timeout;
use waybill_api::status::Status;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Why the body of an answer broke off.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Largest body that is read, as upstream.
pub(super) const LIMIT: usize = 3 * 1024 * 1024;

/// A body that is known as a whole.
pub(crate) fn whole_body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(never).boxed_unsync()
}

/// A body that comes in pieces, as long as there are any, or breaks off.
pub(crate) fn stream_body(
    pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
) -> Body {
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync()
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

/// A body that keeps something until all of it was taken, or it was given up.
struct Keeping<T> {
    body: Body,
    _kept: T,
}

/// `body`, with which `kept` lives.
pub(crate) fn keeping(body: Body, kept: impl Send + Unpin + 'static) -> Body {
    Keeping { body, _kept: kept }.boxed_unsync()
}

impl<T: Unpin> hyper::body::Body for Keeping<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn never(impossible: Infallible) -> BodyError {
    match impossible {}
}
