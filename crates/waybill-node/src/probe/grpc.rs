//! The health check of gRPC servers: `grpc.health.v1.Health/Check`.
//!
//! Its two messages have one field each, so they are written and read here without generated code.

use bytes::{BufMut, Bytes, BytesMut};
use http::{
    HeaderValue, Request, StatusCode,
    header::{CONTENT_TYPE, TE},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::dial::{Connection, with};

/// `SERVING` of `HealthCheckResponse.ServingStatus`.
const SERVING: u64 = 1;

const ANSWER_BYTES: usize = 64 * 1024;

/// Why a server is not healthy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error("the connection broke")]
    Http(#[source] hyper::Error),
    #[error("the server answered {0}")]
    Status(StatusCode),
    #[error("the server answered with gRPC code {0}")]
    Code(String),
    #[error("the answer cannot be read")]
    Answer,
    #[error("service unhealthy (responded with {0})")]
    NotServing(&'static str),
}

/// Asks whether `service` is served; the empty name stands for the server.
pub(super) async fn check(connection: Connection, service: &str) -> Result<(), CheckError> {
    let mut request = Request::new(Full::new(question(service)));
    *request.method_mut() = http::Method::POST;
    // Requests of HTTP/2 name scheme and authority.
    *request.uri_mut() = http::Uri::from_static("http://localhost/grpc.health.v1.Health/Check");
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    connection
        .drive(async |io| {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(io))
                .await
                .map_err(CheckError::Http)?;
            let asked = async {
                let answer = sender.send_request(request).await.map_err(CheckError::Http)?;
                if answer.status() != StatusCode::OK {
                    return Err(CheckError::Status(answer.status()));
                }
                let mut code = answer.headers().get("grpc-status").cloned();
                let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
                let body = body.map_err(|_| CheckError::Answer)?;
                if let Some(trailers) = body.trailers() {
                    code = trailers.get("grpc-status").cloned().or(code);
                }
                judge(code.as_ref(), &body.to_bytes())
            };
            with(async { drop(connection.await) }, asked).await
        })
        .await
}

fn judge(code: Option<&HeaderValue>, body: &[u8]) -> Result<(), CheckError> {
    match code.and_then(|code| code.to_str().ok()) {
        Some("0") | None => {}
        Some(code) => return Err(CheckError::Code(code.to_owned())),
    }
    match serving_status(body).ok_or(CheckError::Answer)? {
        SERVING => Ok(()),
        2 => Err(CheckError::NotServing("NOT_SERVING")),
        3 => Err(CheckError::NotServing("SERVICE_UNKNOWN")),
        _ => Err(CheckError::NotServing("UNKNOWN")),
    }
}

/// `HealthCheckRequest { service = 1 }` behind the prefix of a gRPC message.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        put_varint(&mut message, service.len());
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&message);
    framed.freeze()
}

fn put_varint(to: &mut BytesMut, mut number: usize) {
    while let Ok(low) = u8::try_from(number & 0x7f) {
        number >>= 7;
        if number == 0 {
            to.put_u8(low);
            return;
        }
        to.put_u8(low | 0x80);
    }
}

/// The field `status = 1` of the one message in `body`, which is 0 if it is left out.
fn serving_status(body: &[u8]) -> Option<u64> {
    let (prefix, message) = body.split_first_chunk::<5>()?;
    let [0, length @ ..] = *prefix else { return None };
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    match message.get(..length)? {
        [] => Some(0),
        [0x08, status] if *status < 0x80 => Some(u64::from(*status)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_the_service() {
        assert_eq!(&question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&question("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = question(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    }

    #[test]
    fn only_serving_is_healthy() {
        let message = |status| [0, 0, 0, 0, 2, 0x08, status];
        assert!(judge(None, &message(1)).is_ok());
        assert!(matches!(judge(None, &message(2)), Err(CheckError::NotServing("NOT_SERVING"))));
        assert!(matches!(judge(None, &[0; 5]), Err(CheckError::NotServing("UNKNOWN"))));
        assert!(matches!(judge(None, &[1, 2]), Err(CheckError::Answer)));
        let code = HeaderValue::from_static("12");
        assert!(matches!(judge(Some(&code), &[]), Err(CheckError::Code(_))));
    }
}
