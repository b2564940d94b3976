//! The far end of gRPC in tests, written by hand: a service of tonic would need all the calls that nobody
//! makes there.

use std::{convert::Infallible, path::Path};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Code, Status};

/// Answers calls with one message in each direction, at a socket, until the guard is dropped. `answer` gets the
/// name of a call and its message.
pub(crate) fn serve<F>(
    socket: &Path,
    answer: impl Fn(String, Bytes) -> F + Clone + Send + 'static,
) -> DropGuard
where
    F: Future<Output = Result<Vec<u8>, Status>> + Send,
{
    serve_raw(socket, move |call, body| {
        let answer = answer.clone();
        async move { response(answer(call, body).await) }
    })
}

/// What goes back to a caller.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// As [`serve`], with answers that need not be good ones. Connections end with the guard, in the middle of
/// whatever they are at.
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
pub(crate) fn serve_raw<F>(
    socket: &Path,
    answer: impl Fn(String, Bytes) -> F + Clone + Send + 'static,
) -> DropGuard
where
    F: Future<Output = Reply> + Send,
{
    let listener = UnixListener::bind(socket).unwrap();
    let stop = CancellationToken::new();
    let connections = stop.clone();
    let serving = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let call = request.uri().path().rsplit('/').next().unwrap().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    // One message, not compressed: a zero, four bytes of length, the message.
                    Ok::<_, Infallible>(answer(call, body.slice(5..)).await)
                }
            });
            let builder = http2::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connections.clone().run_until_cancelled_owned(connection));
        }
    };
    tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
    stop.drop_guard()
}

/// One message, or a status instead.
pub(crate) fn response(answer: Result<Vec<u8>, Status>) -> Reply {
    let (frames, code, text) = match answer {
        Ok(message) => {
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(u32::try_from(message.len()).unwrap());
            frame.extend_from_slice(&message);
            (vec![Frame::data(frame.freeze())], Code::Ok, String::new())
        }
        Err(status) => (Vec::new(), status.code(), status.message().to_owned()),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(i32::from(code)));
    trailers.insert("grpc-message", HeaderValue::from_str(&text).unwrap());
    let frames = frames.into_iter().chain([Frame::trailers(trailers)]);
    let body = StreamBody::new(stream::iter(frames.map(Ok))).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
