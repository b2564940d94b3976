//! Bodies of requests and answers.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http_body_util::{
    BodyExt, Full, LengthLimitError, Limited, StreamBody, combinators::UnsyncBoxBody,
};
use hyper::body::{Frame, Incoming};
use tokio::time::timeout;
use waybill_api::status::Status;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Why the body of an answer broke off.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Largest body that is read, as upstream.
const LIMIT: usize = 3 * 1024 * 1024;

/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body that is known as a whole.
pub(crate) fn whole_body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(never).boxed_unsync()
}

/// A body that comes in pieces, as long as there are any.
pub(crate) fn stream_body(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    StreamBody::new(frames).map_err(never).boxed_unsync()
}

/// Reads the whole body of a request.
pub(crate) async fn read_body(body: Incoming) -> Result<Bytes, Status> {
    let limited = Limited::new(body, LIMIT).collect();
    match timeout(PATIENCE, limited).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Status::entity_too_large(format!("the request body is larger than {LIMIT} bytes")))
        }
        Ok(Err(_)) => Err(Status::bad_request("the request body could not be read")),
        Err(_) => Err(Status::timeout("the request body took too long")),
    }
}

fn never(impossible: Infallible) -> BodyError {
    match impossible {}
}
