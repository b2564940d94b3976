//! Why a node could not be asked, in the words that Kubernetes uses.
//!
//! Every refusal reaches the client as a `Status`. No text holds a query, since one may carry values
//! of variables.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use serde_json::json;
use waybill_api::status::Status;
use waybill_stream::websocket::handshake::HandshakeError;

use super::{ProxyBody, connect::ConnectError};

/// A request that a node did not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ProxyError {
    /// The client did not ask for an upgrade, or came over HTTP/2, which has none.
    #[error("Upgrade request required")]
    UpgradeRequired,
    /// The client asked for a WebSocket in a way that is none.
    #[error("{0}")]
    Handshake(HandshakeError),
    /// The client wants a log in messages of a kind that we do not know.
    #[error("the log can be had as binary.k8s.io or base64.binary.k8s.io, or without a protocol")]
    LogProtocol,
    /// The node could not be reached; upstream's text, known to users of kubectl.
    #[error("error dialing backend: {0}")]
    Dial(ConnectError),
    /// The same for a plain request.
    #[error("Get \"{url}\": {cause}")]
    Get {
        /// Without the query.
        url: String,
        cause: ConnectError,
    },
    /// The node was reached and did not complete an answer.
    #[error("error sending request to the node")]
    Exchange(#[source] hyper::Error),
    /// The node was reached and did not answer in time.
    #[error("error sending request to the node: timed out waiting for its answer")]
    Silent,
    /// We are about to stop.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The node answered with something else than what was asked for.
    #[error("{}", .0.message)]
    Node(NodeRefusal),
}

impl ProxyError {
    /// The answer to the client.
    pub(crate) fn into_response(self) -> Response<ProxyBody> {
        let (code, reason) = self.code_and_reason();
        let mut response = status_response(code, reason, &self.to_string());
        if let Self::Node(NodeRefusal { accepted_protocols, .. }) = self {
            for version in accepted_protocols {
                response.headers_mut().append(ACCEPTED_PROTOCOLS, version);
            }
        }
        response
    }

    /// Upstream gives no reason for an error that it did not make itself.
    fn code_and_reason(&self) -> (StatusCode, &str) {
        match self {
            Self::UpgradeRequired | Self::Handshake(_) | Self::LogProtocol => {
                (StatusCode::BAD_REQUEST, "BadRequest")
            }
            Self::Dial(_) | Self::Get { .. } | Self::Exchange(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "")
            }
            Self::Silent => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::Node(refusal) => (refusal.code, &refusal.reason),
        }
    }
}

/// How a node refused.
#[derive(Debug)]
pub(crate) struct NodeRefusal {
    code: StatusCode,
    reason: String,
    message: String,
    accepted_protocols: Vec<HeaderValue>,
}

impl NodeRefusal {
    /// Reads what a node answered; `body` is cut at the caller's limit.
    pub(super) fn new(head: &http::response::Parts, body: &[u8]) -> Self {
        let accepted_protocols = head.headers.get_all(ACCEPTED_PROTOCOLS);
        let accepted_protocols = accepted_protocols.iter().cloned().collect();
        let (reason, message) = match serde_json::from_slice::<Status>(body) {
            Ok(status) => (status.reason().to_owned(), status.message().to_owned()),
            Err(_) => (reason(head.status).to_owned(), text(head.status, body)),
        };
        match head.status {
            // It is the API server that the node does not know, and no fault of the user's: a 401
            // would send the client for new credentials.
            StatusCode::UNAUTHORIZED => Self {
                code: StatusCode::INTERNAL_SERVER_ERROR,
                reason: "InternalError".to_owned(),
                message: format!("the node does not accept the API server: {message}"),
                accepted_protocols,
            },
            code if code.is_client_error() || code.is_server_error() => {
                Self { code, reason, message, accepted_protocols }
            }
            // We follow no redirect, and a success without upgrade is none.
            code => Self {
                code: StatusCode::INTERNAL_SERVER_ERROR,
                reason: "InternalError".to_owned(),
                message: format!("the node gave an unexpected answer: {code}"),
                accepted_protocols,
            },
        }
    }
}

/// Names the versions that a SPDY server knows when it refuses those of the client.
const ACCEPTED_PROTOCOLS: &str = "x-accepted-stream-protocol-versions";

fn status_response(code: StatusCode, reason: &str, message: &str) -> Response<ProxyBody> {
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    if let (true, Some(fields)) = (reason.is_empty(), status.as_object_mut()) {
        fields.remove("reason");
    }
    let body = Full::new(Bytes::from(status.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The reasons of upstream's `NewGenericServerResponse`.
fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        code if code.is_server_error() => "InternalError",
        _ => "",
    }
}

fn text(code: StatusCode, body: &[u8]) -> String {
    match String::from_utf8_lossy(body).trim() {
        "" => format!("the node answered {code}"),
        text => text.to_owned(),
    }
}
