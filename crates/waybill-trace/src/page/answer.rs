//! Answers, and the headers that every one of them has.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, SET_COOKIE},
};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde::Serialize;

use super::assets::Asset;
use crate::TraceSourceError;

/// A body, whole or piece by piece. One that breaks off ends its connection, so that nobody takes half of it for all.
pub(super) type PageBody = UnsyncBoxBody<Bytes, TraceSourceError>;

/// What browsers are told about every answer: scripts, styles and connections of our own origin alone, nothing inline, no frame around us,
/// no way from text to markup, no guessing of types, no word to other sites.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    // Of sessions nothing is to stay behind, and files of the page change with the program.
    ("cache-control", "no-store"),
];

/// Adds what every answer has.
pub(super) fn guarded(mut response: Response<PageBody>) -> Response<PageBody> {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    debug_assert!(headers.contains_key(CACHE_CONTROL), "the list has it");
    response
}

fn full(content: impl Into<Bytes>) -> PageBody {
    Full::new(content.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn of_kind(kind: &'static str, body: PageBody) -> Response<PageBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A sentence.
pub(super) fn text(status: StatusCode, sentence: &str) -> Response<PageBody> {
    let mut response = of_kind("text/plain; charset=utf-8", full(sentence.to_owned()));
    *response.status_mut() = status;
    response
}

/// Another method is wanted.
pub(super) fn wrong_method(allowed: &'static str) -> Response<PageBody> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "this is not the method for it\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A file of the page.
pub(super) fn asset(asset: &'static Asset) -> Response<PageBody> {
    of_kind(asset.kind, full(asset.content))
}

/// A document.
pub(super) fn json(document: &impl Serialize) -> Response<PageBody> {
    match serde_json::to_vec(document) {
        Ok(bytes) => of_kind("application/json", full(bytes)),
        Err(error) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("the answer cannot be written: {error}\n"),
        ),
    }
}

/// The key for a browser that is let in, with its cookie.
pub(super) fn ticket(key: String, cookie: &str) -> Response<PageBody> {
    let mut response = of_kind("text/plain; charset=utf-8", full(key));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// Events, for as long as the stream has some.
pub(super) fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Response<PageBody> {
    of_kind("text/event-stream", pieces(stream.map(Ok)))
}

/// A file to keep.
pub(super) fn download(
    kind: &'static str,
    disposition: &'static str,
    stream: impl Stream<Item = Result<Bytes, TraceSourceError>> + Send + 'static,
) -> Response<PageBody> {
    let mut response = of_kind(kind, pieces(stream));
    response.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    response
}

fn pieces(
    stream: impl Stream<Item = Result<Bytes, TraceSourceError>> + Send + 'static,
) -> PageBody {
    StreamBody::new(stream.map(|piece| piece.map(Frame::data))).boxed_unsync()
}
