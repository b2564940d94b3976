//! Answers: a status code, a type, and bytes or a stream of them.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use waybill_api::status::Status;

use super::body::{Body, BodyError};

/// What is sent back.
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: AnswerBody,
    pub(crate) warnings: Vec<String>,
    /// When to try again, in seconds; 0 means not said.
    pub(crate) retry_after: u32,
}

pub(crate) enum AnswerBody {
    Bytes(Bytes),
    /// Made while it is sent: as much of it is in memory as the client takes.
    Pieces(Pieces),
    Stream(Body),
}

/// The pieces of a large answer, each made when it is asked for. One that is not complete yet may be empty.
pub(crate) type Pieces = Box<dyn Iterator<Item = Bytes> + Send>;

/// How large a piece of a large answer is about.
pub(crate) const PIECE: usize = 64 * 1024;

/// By what name a request is on record.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Smaller answers gain nothing from compression; upstream's limit.
pub(crate) const WORTH_COMPRESSING: usize = 128 * 1024;

impl Answer {
    pub(crate) fn json(code: StatusCode, bytes: Bytes) -> Self {
        Self {
            code,
            content_type: "application/json",
            body: AnswerBody::Bytes(bytes),
            warnings: Vec::new(),
            retry_after: 0,
        }
    }

    pub(crate) fn pieces(pieces: Pieces) -> Self {
        Self { body: AnswerBody::Pieces(pieces), ..Self::json(StatusCode::OK, Bytes::new()) }
    }

    pub(crate) fn value(value: &Value) -> Self {
        Self::json(StatusCode::OK, Bytes::from(value.to_string()))
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self {
            content_type: "text/plain; charset=utf-8",
            ..Self::json(StatusCode::OK, text.into())
        }
    }

    pub(crate) fn stream(
        pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
    ) -> Self {
        let empty = Self::json(StatusCode::OK, Bytes::new());
        Self { body: AnswerBody::Stream(Body::pieces(pieces)), ..empty }
    }

    pub(crate) fn status(status: &Status) -> Self {
        let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = status.details().map_or(0, |details| details.retry_after_seconds);
        // A status is made of texts and numbers; it can always be written.
        let body = Bytes::from(serde_json::to_vec(status).unwrap_or_default());
        Self { retry_after, ..Self::json(code, body) }
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub(crate) fn into_response(self, audit_id: &str) -> Response<Body> {
        let body = match self.body {
            AnswerBody::Bytes(bytes) => Body::whole(bytes),
            AnswerBody::Pieces(pieces) => Body::pieces(stream::iter(pieces).map(Ok)),
            AnswerBody::Stream(body) => body,
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Ok(id) = HeaderValue::from_str(audit_id) {
            headers.insert(AUDIT_ID, id);
        }
        if self.retry_after > 0 {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after));
        }
        for warning in &self.warnings {
            if let Some(value) = warning_header(warning) {
                headers.append(header::WARNING, value);
            }
        }
        response
    }
}

/// `299 - "text"`, without what a header cannot carry.
fn warning_header(text: &str) -> Option<HeaderValue> {
    let safe: String = text
        .chars()
        .map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' })
        .flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] })
        .collect();
    HeaderValue::from_str(&format!("299 - \"{safe}\"")).ok()
}

/// Compresses a large answer if the client can read it.
pub(crate) fn compress(mut answer: Answer, request: &HeaderMap) -> (Answer, bool) {
    let accepts = request
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|coding| coding.trim().starts_with("gzip")));
    if !accepts {
        return (answer, false);
    }
    match answer.body {
        AnswerBody::Bytes(bytes) if bytes.len() >= WORTH_COMPRESSING => {
            let all = GzipPieces::new(Box::new([bytes].into_iter())).flatten().collect::<Vec<u8>>();
            answer.body = AnswerBody::Bytes(Bytes::from(all));
            (answer, true)
        }
        AnswerBody::Pieces(pieces) => {
            answer.body = AnswerBody::Pieces(Box::new(GzipPieces::new(pieces)));
            (answer, true)
        }
        AnswerBody::Bytes(_) | AnswerBody::Stream(_) => (answer, false),
    }
}

/// Pieces, compressed as they come.
struct GzipPieces {
    pieces: Pieces,
    /// Nothing after the last piece.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl GzipPieces {
    fn new(pieces: Pieces) -> Self {
        Self { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl Iterator for GzipPieces {
    type Item = Bytes;

    /// Compresses one piece, so that others are not kept waiting for many.
    fn next(&mut self) -> Option<Bytes> {
        let Some(piece) = self.pieces.next() else {
            let rest = self.encoder.take()?.finish().ok()?;
            return Some(Bytes::from(rest));
        };
        let encoder = self.encoder.as_mut()?;
        // Writing to memory does not fail.
        encoder.write_all(&piece).ok()?;
        let is_complete = encoder.get_ref().len() >= PIECE;
        let made = if is_complete { std::mem::take(encoder.get_mut()) } else { Vec::new() };
        Some(Bytes::from(made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_fit_into_a_header() {
        let value = warning_header("unknown field \"spec.x\"\r\nX: y é").unwrap();
        assert_eq!(value, "299 - \"unknown field \\\"spec.x\\\"??X: y ?\"");
    }

    #[test]
    fn large_answers_are_compressed_for_who_can_read_them() {
        let large = || Answer::json(StatusCode::OK, Bytes::from(vec![b'x'; 200_000]));
        let mut gzip = HeaderMap::new();
        gzip.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("deflate, gzip;q=1"));
        assert!(compress(large(), &gzip).1);
        assert!(!compress(large(), &HeaderMap::new()).1);
        assert!(!compress(Answer::text("small"), &gzip).1);
    }

    #[test]
    fn pieces_are_compressed_as_they_come() {
        use std::io::Read;

        let text: Vec<u8> = (0..500_000_u32).flat_map(|n| (n % 977).to_le_bytes()).collect();
        let pieces: Vec<Bytes> = text.chunks(10_000).map(Bytes::copy_from_slice).collect();
        let compressed: Vec<Bytes> = GzipPieces::new(Box::new(pieces.into_iter())).collect();
        let mut read = Vec::new();
        let whole = compressed.concat();
        flate2::read::GzDecoder::new(&whole[..]).read_to_end(&mut read).unwrap();
        assert_eq!(read, text);
    }
}
