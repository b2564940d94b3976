//! Answers, and every way to say no. Refusals are plain text, as a kubelet's are: the API server
//! passes the text on to the user.

use std::io;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde::Serialize;
use tonic::Code;

use super::{
    authn::User,
    session::{SessionFault, SessionRefusal},
};

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// An answer.
pub(super) type Answer = Response<Body>;

pub(super) fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    full(code, HeaderValue::from_static("text/plain; charset=utf-8"), text.into())
}

pub(super) fn json(value: &impl Serialize) -> Result<Answer, Refusal> {
    let bytes = serde_json::to_vec(value).map_err(Refusal::Json)?;
    Ok(full(StatusCode::OK, HeaderValue::from_static("application/json"), bytes.into()))
}

/// In the format of OpenMetrics.
pub(super) fn metrics(text: String) -> Answer {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    full(StatusCode::OK, HeaderValue::from_static(kind), text.into())
}

/// The client and whoever it talks to change to another protocol.
pub(super) fn switching(headers: HeaderMap) -> Answer {
    let mut answer = Response::new(body(Bytes::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = headers;
    answer
}

/// Why a request is not served. No text holds a value, a token or a query.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Busy(String),
    /// The words that users of kubectl know.
    #[error("container not found ({0:?})")]
    ContainerNotFound(String),
    /// OP-9
    #[error("container runtime does not support ExecRequest.envs")]
    ExecEnvUnsupported,
    #[error(
        "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)={subresources:?})",
        user.name
    )]
    Forbidden { user: Box<User>, verb: &'static str, subresources: &'static [&'static str] },
    #[error("cannot write the answer as JSON")]
    Json(#[source] serde_json::Error),
    #[error("cannot read the log: {0}")]
    Log(#[source] io::Error),
    #[error("the method is not allowed here")]
    Method,
    #[error("no collector answers on this node, so what runs in its sessions is not told")]
    NoCollector,
    #[error("404 page not found")]
    NoSuchPath,
    #[error("{0}")]
    NotFound(String),
    #[error("pod does not exist")]
    PodNotFound,
    #[error("{what}: {fault}")]
    Review { what: &'static str, fault: String },
    /// The runtime refused, in its own words.
    #[error("{}", .0.message())]
    Runtime(Box<tonic::Status>),
    #[error("{0}")]
    Session(#[from] SessionRefusal),
    #[error("{0}")]
    Stream(#[from] super::stream::StreamError),
    #[error(
        "what ran in sessions is told to the API server alone, as nodes/trace, where it is on record who reads it"
    )]
    TraceElsewhere,
    #[error("Unauthorized")]
    Unauthorized,
    #[error("Upgrade request required")]
    UpgradeRequired,
    /// The request was understood, and asks for what cannot be.
    #[error("{0}")]
    Unprocessable(String),
}

impl Refusal {
    pub(super) fn answer(&self) -> Answer {
        if let Self::Stream(super::stream::StreamError::Refused(refused)) = self {
            return refused.answer();
        }
        let code = self.code();
        let mut answer = text(code, self.to_string());
        let headers = answer.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if code == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if code == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }

    fn code(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::UpgradeRequired => StatusCode::BAD_REQUEST,
            Self::ContainerNotFound(_)
            | Self::NoSuchPath
            | Self::NotFound(_)
            | Self::PodNotFound => StatusCode::NOT_FOUND,
            Self::ExecEnvUnsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Session(SessionRefusal { fault: SessionFault::TooMany, .. }) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Forbidden { .. } | Self::Session(_) | Self::TraceElsewhere => {
                StatusCode::FORBIDDEN
            }
            Self::Json(_) | Self::Log(_) | Self::Stream(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoCollector | Self::Review { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Runtime(status) => match status.code() {
                Code::InvalidArgument => StatusCode::BAD_REQUEST,
                Code::NotFound => StatusCode::NOT_FOUND,
                Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
                Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl From<tonic::Status> for Refusal {
    fn from(status: tonic::Status) -> Self {
        Self::Runtime(Box::new(status))
    }
}

fn full(code: StatusCode, kind: HeaderValue, bytes: Bytes) -> Answer {
    let mut answer = Response::new(body(bytes));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
