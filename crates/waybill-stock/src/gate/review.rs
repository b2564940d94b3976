//! `AdmissionReview` of `admission.k8s.io/v1`: the question of an API server, and the answer.
//!
//! Objects may hold what users typed where secrets belong, so no error repeats any of it.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use waybill_api::{status::Status, stock::AUDIT_ANNOTATION};

use super::records::UserInfo;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// How long a reason in the audit log may be; keys and names in it are what clients chose.
const DENIED_BYTES: usize = 1024;

/// What an API server asks about; what we do not judge by is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Review {
    /// To be repeated in the answer.
    pub(super) uid: String,
    pub(super) operation: String,
    pub(super) sub_resource: String,
    /// Of the object that is asked about; a new one may have none yet.
    pub(super) name: String,
    /// Empty for objects of the whole cluster.
    pub(super) namespace: String,
    /// Who asked the API server. One who acts as somebody else is that other one here.
    pub(super) user_info: UserInfo,
    /// Nothing will come of it.
    pub(super) dry_run: bool,
    pub(super) resource: Resource,
    /// Null when the object is deleted.
    pub(super) object: Value,
    /// Null when the object is created.
    pub(super) old_object: Value,
}

/// The resource that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) resource: String,
}

impl Review {
    pub(super) fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let document: Value = serde_json::from_slice(body).map_err(|_| ReviewError::Json)?;
        let is = |field: &str, expected: &str| document.get(field) == Some(&expected.into());
        if !is("apiVersion", API_VERSION) || !is("kind", KIND) {
            return Err(ReviewError::Kind);
        }
        let request = document.get("request").unwrap_or(&Value::Null);
        let review = Self::deserialize(request).map_err(|_| ReviewError::Request)?;
        if review.uid.is_empty() { Err(ReviewError::Request) } else { Ok(review) }
    }

    /// The name of the object, or how its name is to begin.
    pub(super) fn object_name(&self) -> &str {
        let text = |field: &str| {
            let metadata = self.object.get("metadata")?;
            metadata.get(field)?.as_str().filter(|text| !text.is_empty())
        };
        text("name").or_else(|| text("generateName")).unwrap_or_default()
    }
}

/// Why a body is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("it is not JSON")]
    Json,
    #[error("it is not an {KIND} of {API_VERSION}; name v1 in admissionReviewVersions")]
    Kind,
    #[error("its request is missing or has no uid, or one of its fields is of a wrong kind")]
    Request,
}

/// What we say to a question.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    refusal: Option<Status>,
    warnings: Vec<String>,
    /// Why variables of drivers are denied, for the audit log.
    denied: Option<String>,
    /// The sessions that begin with it, for the audit log.
    session: Option<String>,
    /// What is changed of the object, as a JSON patch.
    patch: Option<Value>,
}

impl Verdict {
    pub(super) fn allowed() -> Self {
        Self::default()
    }

    /// Allowed, with a word to whoever asked.
    pub(super) fn warned(warnings: Vec<String>) -> Self {
        Self { warnings, ..Self::default() }
    }

    /// Allowed, as the session of this ID.
    pub(super) fn session(id: String) -> Self {
        Self { session: Some(id), ..Self::default() }
    }

    /// The same, with the object changed.
    pub(super) fn patched(self, patch: Value) -> Self {
        Self { patch: Some(patch), ..self }
    }

    pub(super) fn refused(status: Status) -> Self {
        Self { refusal: Some(status), ..Self::default() }
    }

    /// Refused, with the reason for the audit log (CSI-63), where a client must not be able to write much.
    pub(super) fn denied(status: Status, reason: &str) -> Self {
        let end = reason.floor_char_boundary(DENIED_BYTES);
        let denied = reason.get(..end).map(str::to_owned);
        Self { denied, ..Self::refused(status) }
    }

    pub(super) fn is_allowed(&self) -> bool {
        self.refusal.is_none()
    }

    pub(super) fn refusal(&self) -> Option<&Status> {
        self.refusal.as_ref()
    }
}

#[derive(Serialize)]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
    /// The API server writes them into its audit log, with the name of the webhook before each key.
    #[serde(rename = "auditAnnotations", skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<&'a str, &'a str>,
    #[serde(rename = "patchType", skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

/// The answer to the question of this `uid`.
pub(super) fn answer(uid: &str, verdict: &Verdict) -> Value {
    let status = verdict.refusal().map(|status| {
        json!({
            "status": "Failure",
            "code": status.code(),
            "reason": status.reason(),
            "message": status.message(),
        })
    });
    let (allowed, warnings) = (verdict.is_allowed(), &verdict.warnings);
    let denied = verdict.denied.as_deref().map(|reason| ("denied", reason));
    let session = verdict.session.as_deref().map(|session| (AUDIT_ANNOTATION, session));
    let audit_annotations = denied.into_iter().chain(session).collect();
    let patch = verdict.patch.as_ref().map(|patch| STANDARD.encode(patch.to_string()));
    let patch_type = patch.as_ref().map(|_| "JSONPatch");
    let response =
        Response { uid, allowed, status, warnings, audit_annotations, patch_type, patch };
    json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &Value) -> Vec<u8> {
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request}).to_string().into()
    }

    #[track_caller]
    fn check_refused(body: &[u8], expected: ReviewError) {
        assert_eq!(Review::read(body), Err(expected));
    }

    /// CSI-21
    #[test]
    fn a_question_is_read_and_answered_under_its_uid_csi_21() {
        let object = json!({"metadata": {"generateName": "a-"}});
        let question = json!({
            "uid": "u", "operation": "CREATE", "namespace": "ns", "object": object,
            "oldObject": null, "resource": {"group": "g", "version": "v1", "resource": "r"},
            "userInfo": {"username": "ann"}});
        let review = Review::read(&body(&question)).unwrap();
        assert_eq!((&*review.uid, review.object_name()), ("u", "a-"));
        assert_eq!((&*review.resource.group, &*review.resource.resource), ("g", "r"));
        assert!(review.old_object.is_null());
        assert_eq!(
            answer("u", &Verdict::warned(vec!["w".to_owned()])),
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": "u", "allowed": true, "warnings": ["w"]}})
        );
        let refused = answer("u", &Verdict::refused(Status::unprocessable("no")));
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "no");
        assert_eq!(refused["response"]["status"]["code"], 422);
        assert!(refused["response"].get("auditAnnotations").is_none(), "it may hold what was sent");
    }

    #[test]
    fn a_session_is_for_the_audit_log_and_changes_its_request() {
        let patch = json!([{"op": "add", "path": "/command", "value": ["a"]}]);
        let verdict = Verdict::session("s".to_owned()).patched(patch.clone());
        let response = answer("u", &verdict)["response"].take();
        assert_eq!(response["auditAnnotations"], json!({"session": "s"}));
        assert_eq!(response["patchType"], "JSONPatch");
        let text = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), patch);
    }

    /// CSI-63
    #[test]
    fn why_variables_are_denied_is_for_the_audit_log_csi_63() {
        let said = |reason: &str| {
            let verdict = Verdict::denied(Status::unprocessable("no"), reason);
            answer("u", &verdict)["response"]["auditAnnotations"].take()
        };
        assert_eq!(said("no right"), json!({"denied": "no right"}));
        let long = said(&"ä".repeat(5_000));
        assert_eq!(long["denied"].as_str().map(str::len), Some(DENIED_BYTES));
    }

    #[test]
    fn other_bodies_are_refused_and_never_quoted() {
        check_refused(b"hunter2", ReviewError::Json);
        check_refused(b"[]", ReviewError::Kind);
        check_refused(b"{\"apiVersion\": \"admission.k8s.io/v1beta1\"}", ReviewError::Kind);
        for request in [json!(null), json!("hunter2"), json!({}), json!({"uid": ["hunter2"]})] {
            check_refused(&body(&request), ReviewError::Request);
        }
    }
}
