//! The `Status` object: the one form in which the API refuses.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use waybill_core::id::ResourceVersion;

use crate::field::FieldError;

/// `v1.Status`, the answer to a request that failed or has no object to show.
///
/// It is one pointer wide, because most functions that return it as an error succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Status(Box<Body>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    // Stream servers send a Status without these three, and without a code.
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Metadata,
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails>,
    #[serde(default, skip_serializing_if = "is_zero")]
    code: u16,
}

const SUCCESS: &str = "Success";

/// The reason and the cause with which stream servers tell an exit code.
const NON_ZERO_EXIT_CODE: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

/// As many faults of one object as are told; nobody reads more, and a client chooses how many there are.
const MOST_CAUSES: usize = 100;

/// What the failure was about, and every single cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's unique id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One cause per offending field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// When to try again, in seconds; 0 means not said.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One reason for the failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCause {
    /// Machine-readable kind of fault, such as `FieldValueInvalid`.
    #[serde(default)]
    pub reason: String,
    /// The fault in words.
    #[serde(default)]
    pub message: String,
    /// Path of the field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// The object that a status speaks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Its API group; empty for the core group.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its name; may be empty when the object has only a `generateName`.
    pub name: &'a str,
}

/// The resource that a status speaks about; refusals before decoding know no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its API group; empty for the core group.
    pub group: &'a str,
    /// Its name in paths, such as `pods`.
    pub resource: &'a str,
    /// Name of the object; empty if it is about all of them.
    pub name: &'a str,
}

impl Target<'_> {
    fn qualified(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// Upstream puts the resource where the kind belongs.
    fn details(&self) -> StatusDetails {
        StatusDetails {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.resource.to_owned(),
            ..StatusDetails::default()
        }
    }
}

/// List metadata that `Status` carries; of it one refusal fills a part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Metadata {
    #[serde(rename = "continue", default, skip_serializing_if = "String::is_empty")]
    continue_token: String,
}

impl Status {
    /// 422: the request was understood, and `errors` say why the object is refused (OP-1).
    pub fn invalid(subject: Subject<'_>, errors: &[FieldError]) -> Self {
        let kind = match subject.group {
            "" => subject.kind.to_owned(),
            group => format!("{}.{group}", subject.kind),
        };
        let message = format!("{kind} {:?} is invalid: {}", subject.name, aggregate(errors));
        let details = StatusDetails {
            name: subject.name.to_owned(),
            group: subject.group.to_owned(),
            kind: subject.kind.to_owned(),
            causes: errors.iter().take(MOST_CAUSES).map(StatusCause::from).collect(),
            ..StatusDetails::default()
        };
        Self::failure(422, "Invalid", message, Some(details))
    }

    /// 200: done, and there is no object to show.
    pub fn success(details: StatusDetails) -> Self {
        let mut status = Self::failure(200, "", String::new(), Some(details));
        status.0.status = SUCCESS.to_owned();
        status
    }

    /// The command of an exec session ended well. Like [`Self::command_exited`] it ends a stream, not
    /// a request, and so it has no HTTP status code.
    pub fn command_succeeded() -> Self {
        let mut status = Self::failure(0, "", String::new(), None);
        status.0.status = SUCCESS.to_owned();
        status
    }

    /// The command of an exec session ended with this code, which is not 0.
    pub fn command_exited(code: i32) -> Self {
        let message = format!("command terminated with non-zero exit code: {code}");
        let cause = StatusCause {
            reason: EXIT_CODE.to_owned(),
            message: code.to_string(),
            field: String::new(),
        };
        let details = StatusDetails { causes: vec![cause], ..StatusDetails::default() };
        Self::failure(0, NON_ZERO_EXIT_CODE, message, Some(details))
    }

    /// 400: the request could not be decoded.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message.into(), None)
    }

    /// 401: nobody knows who is asking.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized".to_owned(), None)
    }

    /// 403: `message` says who may not do what.
    pub fn forbidden(target: Target<'_>, message: impl Into<String>) -> Self {
        Self::failure(403, "Forbidden", message.into(), Some(target.details()))
    }

    /// 404: there is no such object.
    pub fn not_found(target: Target<'_>) -> Self {
        let message = format!("{} {:?} not found", target.qualified(), target.name);
        Self::failure(404, "NotFound", message, Some(target.details()))
    }

    /// 404: `message` says what there is not.
    pub fn not_found_message(message: impl Into<String>) -> Self {
        Self::failure(404, "NotFound", message.into(), None)
    }

    /// 409: `message` says what does not fit together.
    pub fn conflict_message(message: impl Into<String>) -> Self {
        Self::failure(409, "Conflict", message.into(), None)
    }

    /// 404: there is no such path.
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::failure(404, "NotFound", message, Some(StatusDetails::default()))
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed(target: Target<'_>, verb: &str) -> Self {
        let message =
            format!("{verb} is not supported on resources of kind {:?}", target.qualified());
        Self::failure(405, "MethodNotAllowed", message, Some(target.details()))
    }

    /// 406: none of the formats the client accepts can be made.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::failure(406, "NotAcceptable", message.into(), None)
    }

    /// 409: an object of that name exists.
    pub fn already_exists(target: Target<'_>) -> Self {
        let message = format!("{} {:?} already exists", target.qualified(), target.name);
        Self::failure(409, "AlreadyExists", message, Some(target.details()))
    }

    /// 409: the object is not as the client believes.
    pub fn conflict(target: Target<'_>, why: impl Into<String>) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {}",
            target.qualified(),
            target.name,
            why.into()
        );
        Self::failure(409, "Conflict", message, Some(target.details()))
    }

    /// 409: others manage fields that a client wants to apply; each is a message and a field.
    pub fn apply_conflict(
        message: impl Into<String>,
        conflicts: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let cause = |(message, field)| StatusCause {
            reason: "FieldManagerConflict".to_owned(),
            message,
            field,
        };
        let causes = conflicts.into_iter().take(MOST_CAUSES).map(cause).collect();
        let details = StatusDetails { causes, ..StatusDetails::default() };
        Self::failure(409, "Conflict", message.into(), Some(details))
    }

    /// 410: the history that the client asks for is gone; it must list again.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message.into(), None)
    }

    /// 410: the list that the client began is gone; the rest of what there is now begins at `token`.
    pub fn expired_list(message: impl Into<String>, token: String) -> Self {
        let mut status = Self::expired(message);
        status.0.metadata.continue_token = token;
        status
    }

    /// The same refusal in other words.
    #[must_use]
    pub fn reworded(mut self, reword: impl FnOnce(&str) -> String) -> Self {
        self.0.message = reword(&self.0.message);
        self
    }

    /// 413: the request is larger than we take.
    pub fn entity_too_large(message: impl Into<String>) -> Self {
        Self::failure(413, "RequestEntityTooLarge", message.into(), None)
    }

    /// 422: understood, but it does not fit the object.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::failure(422, "Invalid", message.into(), None)
    }

    /// 415: the body has a type that we do not read.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::failure(415, "UnsupportedMediaType", message.into(), None)
    }

    /// 429: too much at once.
    pub fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.".to_owned();
        let details = StatusDetails { retry_after_seconds: 1, ..StatusDetails::default() };
        Self::failure(429, "TooManyRequests", message, Some(details))
    }

    /// 500: something of ours is broken; the cause is in the log, not here.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::failure(500, "InternalError", message, None)
    }

    /// 503: not now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message.into(), None)
    }

    /// 504: it took too long.
    pub fn timeout(message: impl Into<String>) -> Self {
        let details = StatusDetails { retry_after_seconds: 1, ..StatusDetails::default() };
        Self::failure(504, "Timeout", format!("Timeout: {}", message.into()), Some(details))
    }

    /// 504: the client has seen a state of the store that did not get here in time.
    pub fn too_large_version(wanted: ResourceVersion, current: ResourceVersion) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        let mut status = Self::timeout(message);
        if let Some(details) = &mut status.0.details {
            details.causes.push(StatusCause {
                reason: "ResourceVersionTooLarge".to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            });
        }
        status
    }

    /// A refusal with a code, reason and text that somebody else chose, such as an admission webhook.
    pub fn refused(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self::failure(code, reason, message.into(), None)
    }

    /// A refusal about an object, with its text as a cause, as admission policies have it.
    pub fn denied(
        target: Target<'_>,
        code: u16,
        reason: &str,
        message: String,
        cause: &str,
    ) -> Self {
        let mut details = target.details();
        details.causes.push(StatusCause {
            reason: String::new(),
            message: cause.to_owned(),
            field: String::new(),
        });
        Self::failure(code, reason, message, Some(details))
    }

    /// Whether it tells of a success.
    pub fn is_success(&self) -> bool {
        self.0.status == SUCCESS
    }

    /// The exit code, if it says that a command ended with one other than 0.
    pub fn exit_code(&self) -> Option<i32> {
        let causes = &self.details().filter(|_| self.reason() == NON_ZERO_EXIT_CODE)?.causes;
        causes.iter().find(|cause| cause.reason == EXIT_CODE)?.message.parse().ok()
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The failure in words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What it was about, if known.
    pub fn details(&self) -> Option<&StatusDetails> {
        self.0.details.as_ref()
    }

    fn failure(code: u16, reason: &str, message: String, details: Option<StatusDetails>) -> Self {
        Self(Box::new(Body {
            api_version: "v1".to_owned(),
            kind: "Status".to_owned(),
            metadata: Metadata::default(),
            status: "Failure".to_owned(),
            message,
            reason: reason.to_owned(),
            details,
            code,
        }))
    }
}

impl From<&FieldError> for StatusCause {
    fn from(error: &FieldError) -> Self {
        Self {
            reason: error.kind().reason().to_owned(),
            message: error.body(),
            field: error.path().to_string(),
        }
    }
}

fn is_zero<N: PartialEq + From<u8>>(number: &N) -> bool {
    *number == N::from(0)
}

/// One error stands alone; several stand in brackets, and equal ones once, as upstream prints them.
fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = HashSet::new();
    let told = errors.iter().take(MOST_CAUSES).map(ToString::to_string);
    let mut texts: Vec<_> = told.filter(|text| seen.insert(text.clone())).collect();
    if let Some(more @ 1..) = errors.len().checked_sub(MOST_CAUSES) {
        texts.push(format!("and {more} more"));
    }
    match texts.as_slice() {
        [text] => text.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::field::FieldPath;

    const POD: Subject<'_> = Subject { group: "", kind: "Pod", name: "web" };

    /// Hole: a small request got an answer of 262 MB.
    #[test]
    fn no_more_faults_are_told_than_somebody_reads() {
        let errors = vec![FieldError::required(FieldPath::new("a"), ""); MOST_CAUSES + 7];
        let status = Status::invalid(POD, &errors);
        let message = "Pod \"web\" is invalid: [a: Required value, and 7 more]";
        assert_eq!(status.message(), message);
        let value = serde_json::to_value(&status).unwrap();
        assert_eq!(value["details"]["causes"].as_array().unwrap().len(), MOST_CAUSES);
    }

    #[test]
    fn validation_errors_answer_422_with_one_cause_per_field_op_1() {
        let env = FieldPath::new("spec").child("containers").index(0).child("env").index(0);
        let errors = [
            FieldError::required(env.child("name"), ""),
            FieldError::invalid(env.child("valueFrom"), "", "must specify one of: `fieldRef`"),
        ];
        let status = serde_json::to_value(Status::invalid(POD, &errors)).unwrap();
        assert_eq!(
            status,
            json!({
                "apiVersion": "v1",
                "kind": "Status",
                "metadata": {},
                "status": "Failure",
                "message": "Pod \"web\" is invalid: [spec.containers[0].env[0].name: Required \
                    value, spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify \
                    one of: `fieldRef`]",
                "reason": "Invalid",
                "details": {
                    "name": "web",
                    "kind": "Pod",
                    "causes": [
                        {
                            "reason": "FieldValueRequired",
                            "message": "Required value",
                            "field": "spec.containers[0].env[0].name",
                        },
                        {
                            "reason": "FieldValueInvalid",
                            "message": "Invalid value: \"\": must specify one of: `fieldRef`",
                            "field": "spec.containers[0].env[0].valueFrom",
                        },
                    ],
                },
                "code": 422,
            })
        );
    }

    #[test]
    fn one_error_stands_without_brackets_and_groups_are_named() {
        let class = Subject { group: "storage.k8s.io", kind: "ProviderClass", name: "c" };
        let driver = FieldError::required(FieldPath::new("spec").child("driver"), "");
        let status = Status::invalid(class, &[driver.clone(), driver]);
        assert_eq!(
            status.message(),
            "ProviderClass.storage.k8s.io \"c\" is invalid: spec.driver: Required value"
        );
        assert_eq!(status.details().unwrap().causes.len(), 2);
    }

    #[test]
    fn exit_codes_travel_as_a_cause() {
        let status = Status::command_exited(7);
        assert_eq!(status.exit_code(), Some(7));
        let text = r#"{"metadata":{},"status":"Failure","reason":"NonZeroExitCode",
            "details":{"causes":[{"reason":"ExitCode","message":"137"}]}}"#;
        let from_others: Status = serde_json::from_str(text).unwrap();
        assert_eq!(from_others.exit_code(), Some(137));
        assert!(!from_others.is_success());

        let success = Status::command_succeeded();
        assert!(success.is_success());
        assert_eq!(success.exit_code(), None);
        assert_eq!(
            serde_json::to_value(success).unwrap(),
            json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"})
        );
        assert_eq!(Status::internal("broken").exit_code(), None);
    }
}
