//! Requests to services of AWS, signed or not.

use std::{collections::BTreeMap, time::SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::Value;
use waybill_core::secret::SecretBytes;

use super::class::{AwsClass, Item, Service};
use crate::{
    driver::{Answer, FetchError},
    http::{HttpClient, Question, Reply},
};

/// Twenty secrets of 64 KiB, and what is around them.
const ANSWER_BYTES: usize = 4 << 20;

const JSON: HeaderValue = HeaderValue::from_static("application/x-amz-json-1.1");
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const TARGET: HeaderName = HeaderName::from_static("x-amz-target");

/// What was read, or why it was not.
pub(super) type Found = BTreeMap<Item, Answer>;

/// AWS, as one class describes it.
pub(super) struct AwsApi<'a> {
    client: HttpClient,
    pub(super) class: &'a AwsClass,
    clock: &'a (dyn Fn() -> SystemTime + Send + Sync),
}

impl<'a> AwsApi<'a> {
    pub(super) fn new(
        client: HttpClient,
        class: &'a AwsClass,
        clock: &'a (dyn Fn() -> SystemTime + Send + Sync),
    ) -> Self {
        Self { client, class, clock }
    }

    /// The same with credentials.
    pub(super) fn with(&'a self, credentials: &'a Credentials) -> SignedApi<'a> {
        SignedApi { api: self, credentials }
    }

    /// Sends a form without a signature, as web identities do.
    pub(super) async fn form(
        &self,
        service: Service,
        form: SecretBytes,
    ) -> Result<SecretBytes, AwsError> {
        let uri = self.uri(service)?;
        let question = Question::new(Method::POST, uri, form).header(CONTENT_TYPE, FORM);
        let reply = self.client.ask(question, ANSWER_BYTES).await.map_err(FetchError::from)?;
        if reply.status == StatusCode::OK {
            return Ok(reply.body);
        }
        Err(AwsError::Refused { status: reply.status, code: xml_code(&reply) })
    }

    fn uri(&self, service: Service) -> Result<Uri, FetchError> {
        self.class.address(service).join("", &[])
    }
}

/// AWS, with credentials.
pub(super) struct SignedApi<'a> {
    api: &'a AwsApi<'a>,
    credentials: &'a Credentials,
}

impl SignedApi<'_> {
    /// Calls the operation `target`.
    pub(super) async fn call(
        &self,
        service: Service,
        target: &'static str,
        body: &Value,
    ) -> Result<SecretBytes, AwsError> {
        let (uri, body) = (self.api.uri(service)?, body.to_string());
        let headers = [(CONTENT_TYPE, JSON), (TARGET, HeaderValue::from_static(target))];
        let signature = self.signature(service, &uri, &headers, body.as_bytes())?;
        let question = Question::new(Method::POST, uri, body.into_bytes().into());
        let all = headers.into_iter().chain(signature);
        let question = all.fold(question, |question, (name, value)| question.header(name, value));
        let reply = self.api.client.ask(question, ANSWER_BYTES).await.map_err(FetchError::from)?;
        if reply.status == StatusCode::OK {
            return Ok(reply.body);
        }
        Err(AwsError::Refused { status: reply.status, code: json_code(&reply) })
    }

    fn signature(
        &self,
        service: Service,
        uri: &Uri,
        headers: &[(HeaderName, HeaderValue)],
        body: &[u8],
    ) -> Result<Vec<(HeaderName, HeaderValue)>, FetchError> {
        let unsignable = || FetchError::backend("the request to AWS cannot be signed");
        let identity = self.credentials.clone().into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.api.class.region)
            .name(service.name())
            .time((self.api.clock)())
            .settings(SigningSettings::default())
            .build()
            .map_err(|_| unsignable())?
            .into();
        let uri = uri.to_string();
        let text =
            headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let request = SignableRequest::new("POST", uri, text, SignableBody::Bytes(body))
            .map_err(|_| unsignable())?;
        let signed = sign(request, &parameters).map_err(|_| unsignable())?;
        let header = |(name, value): (&str, &str)| {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            Some((name.parse().ok()?, value))
        };
        signed.output().headers().map(header).collect::<Option<_>>().ok_or_else(unsignable)
    }
}

/// Why AWS did not do what it was asked for. Its codes are a closed list; what it says besides may name
/// what is nobody's business, and is left out.
#[derive(Clone, Debug)]
pub(super) enum AwsError {
    /// There was no answer.
    Unanswered(FetchError),
    /// The answer was no.
    Refused { status: StatusCode, code: String },
}

impl From<FetchError> for AwsError {
    fn from(error: FetchError) -> Self {
        Self::Unanswered(error)
    }
}

impl AwsError {
    pub(super) fn is_denied(&self) -> bool {
        match self {
            Self::Refused { status, code } if code.is_empty() => is_bare_denial(*status),
            Self::Refused { code, .. } => is_denied(code),
            Self::Unanswered(_) => false,
        }
    }

    /// The same for the driver; `what` was asked for.
    pub(super) fn about(self, what: &str) -> FetchError {
        match self {
            Self::Unanswered(error) => error,
            Self::Refused { status, code } => refusal(status, &code, what),
        }
    }
}

/// What a code means that came for a single item.
pub(super) fn refusal(status: StatusCode, code: &str, what: &str) -> FetchError {
    match code {
        "ResourceNotFoundException" | "ParameterNotFound" | "ParameterVersionNotFound" => {
            FetchError::not_found(format!("AWS has no {what}"))
        }
        _ if is_denied(code) => FetchError::denied(format!("AWS refused {what} ({code})")),
        "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "TooManyRequestsException"
        | "ServiceUnavailable"
        | "IDPCommunicationError" => {
            FetchError::unavailable(format!("AWS cannot answer for {what} now ({code})"))
        }
        "InvalidParameterException"
        | "InvalidRequestException"
        | "ValidationException"
        | "ValidationError" => {
            FetchError::invalid(format!("AWS does not understand {what} ({code})"))
        }
        // What is no code of AWS may be anything.
        _ if status.is_redirection() => FetchError::backend(format!(
            "the address of AWS for {what} leads elsewhere ({}); name the right endpoint",
            status.as_u16()
        )),
        "" => bare_refusal(status, what),
        _ => FetchError::backend(format!("AWS failed at {what} ({})", status.as_u16())),
    }
}

/// Whoever stands between us and AWS has no codes.
fn bare_refusal(status: StatusCode, what: &str) -> FetchError {
    let number = status.as_u16();
    match number {
        _ if is_bare_denial(status) => {
            FetchError::denied(format!("the way to {what} of AWS is refused ({number})"))
        }
        429 | 502..=504 => {
            FetchError::unavailable(format!("AWS cannot answer for {what} now ({number})"))
        }
        _ => FetchError::backend(format!("AWS failed at {what} ({number})")),
    }
}

fn is_bare_denial(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Among them what is said of credentials that have ended, with which a new session helps.
fn is_denied(code: &str) -> bool {
    matches!(
        code,
        "AccessDenied"
            | "AccessDeniedException"
            | "DecryptionFailure"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "IDPRejectedClaim"
            | "InvalidClientTokenId"
            | "InvalidIdentityToken"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "UnrecognizedClientException"
    )
}

/// Which of the two it is depends on the service.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    #[serde(rename = "__type")]
    kind: Value,
    code: Value,
}

/// A code may have a namespace and `#` before it, and `:` and an address after it.
fn json_code(reply: &Reply) -> String {
    let body: ErrorBody = serde_json::from_slice(reply.body.expose()).unwrap_or_default();
    let code = body.kind.as_str().or(body.code.as_str()).unwrap_or_default();
    let code = code.split(':').next().unwrap_or_default();
    plain(code.rsplit('#').next().unwrap_or_default())
}

fn xml_code(reply: &Reply) -> String {
    let body = str::from_utf8(reply.body.expose()).unwrap_or_default();
    plain(super::sts::element(body, "Code").unwrap_or_default())
}

/// Codes have letters only; anything else is not one.
fn plain(code: &str) -> String {
    if code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        code.into()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::FailureKind;

    #[track_caller]
    fn check(status: u16, body: &str, code: &str, kind: FailureKind) {
        let status = StatusCode::from_u16(status).unwrap();
        let reply = Reply { status, body: body.as_bytes().to_vec().into() };
        let found = json_code(&reply);
        assert_eq!(found, code);
        let refused = AwsError::Refused { status, code: found };
        assert_eq!(refused.is_denied(), kind == FailureKind::Denied);
        assert_eq!(refused.about("secret a").kind, kind);
    }

    #[test]
    fn codes_are_read_wherever_services_put_them() {
        let (code, kind) = ("AccessDeniedException", FailureKind::Denied);
        check(400, r#"{"__type":"AccessDeniedException"}"#, code, kind);
        check(400, r#"{"__type":"com.amazon#AccessDeniedException"}"#, code, kind);
        check(400, r#"{"__type":"a#AccessDeniedException:http://b"}"#, code, kind);
        check(400, r#"{"code":"AccessDeniedException"}"#, code, kind);
        check(400, r#"{"__type":"AccessDeniedException","code":5}"#, code, kind);
    }

    /// Whoever stands in between has no codes of AWS.
    #[test]
    fn an_answer_without_a_code_counts_by_its_status() {
        check(403, "<html>hunter2</html>", "", FailureKind::Denied);
        check(429, "", "", FailureKind::Unavailable);
        check(503, "", "", FailureKind::Unavailable);
        check(500, r#"{"__type":5}"#, "", FailureKind::Backend);
    }
}
