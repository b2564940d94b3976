//! AdmissionReview: what a webhook is sent and what it answers.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use waybill_api::status::Status;

use crate::request::AdmissionRequest;

/// A version of `admission.k8s.io` that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `v1`.
    V1,
    /// `v1beta1`, whose answers are checked less.
    V1Beta1,
}

impl ReviewVersion {
    /// The first of `versions` that we know.
    pub(crate) fn choose(versions: &[String]) -> Option<Self> {
        versions.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// Whether a webhook may change the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// It may.
    Mutating,
    /// It may not.
    Validating,
}

/// The document that a webhook is sent. It holds the whole object.
pub fn review(version: ReviewVersion, uid: &str, request: &AdmissionRequest<'_>) -> Json {
    let mut fields = request.fields();
    fields.insert("uid".to_owned(), Json::from(uid));
    fields.insert("object".to_owned(), request.object.cloned().unwrap_or_default());
    fields.insert("oldObject".to_owned(), request.old_object.cloned().unwrap_or_default());
    json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "request": fields})
}

/// What a webhook answered.
#[derive(Debug)]
pub struct ReviewAnswer {
    /// Whether the request may go on.
    pub allowed: bool,
    /// Why not, as the webhook says it.
    result: Option<ReviewResult>,
    /// What the client is told beside its answer.
    pub warnings: Vec<String>,
    /// What the audit event gets, under the name of the webhook.
    pub audit_annotations: BTreeMap<String, String>,
    /// The changes, if there are any: a list of operations of JSON Patch, which nobody has read yet.
    pub patch: Option<Json>,
}

/// Why an answer cannot be used; upstream's texts where it has some.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The answer is no AdmissionReview.
    #[error("the answer is no AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// There is none.
    #[error("webhook response was absent")]
    NoResponse,
    /// It answers something else.
    #[error("expected response.uid={expected:?}, got {found:?}")]
    OtherUid {
        /// What was sent.
        expected: String,
        /// What came back.
        found: String,
    },
    /// It is another document.
    #[error("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {0}")]
    OtherKind(String),
    /// Changes without their type.
    #[error("webhook returned response.patch but not response.patchType")]
    NoPatchType,
    /// A type without changes.
    #[error("webhook returned response.patchType but not response.patch")]
    NoPatch,
    /// A type that does not exist.
    #[error("unsupported patch type {0:?}")]
    PatchType(String),
    /// Changes that are none.
    #[error("received undecodable patch in webhook response: {0}")]
    Undecodable(String),
    /// A webhook that may change nothing wants to.
    #[error("validating webhook may not return response.patch")]
    MayNotPatch,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    status: Option<ReviewResult>,
    #[serde(default)]
    patch: Option<String>,
    #[serde(default)]
    patch_type: Option<String>,
    #[serde(default)]
    audit_annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct ReviewResult {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
}

impl ReviewAnswer {
    /// Reads the answer to the review `uid`.
    pub fn read(
        body: &[u8],
        version: ReviewVersion,
        kind: ReviewKind,
        uid: &str,
    ) -> Result<Self, ReviewError> {
        let document: Document = serde_json::from_slice(body)?;
        let response = document.response.ok_or(ReviewError::NoResponse)?;
        if version == ReviewVersion::V1 {
            if response.uid != uid {
                return Err(ReviewError::OtherUid {
                    expected: uid.to_owned(),
                    found: response.uid,
                });
            }
            if document.api_version != version.api_version() || document.kind != "AdmissionReview" {
                let found = format!("{}, Kind={}", document.api_version, document.kind);
                return Err(ReviewError::OtherKind(found));
            }
        }
        let patch = match kind {
            ReviewKind::Mutating => {
                read_patch(version, response.patch.as_deref(), response.patch_type.as_deref())?
            }
            ReviewKind::Validating if response.patch.is_some_and(|patch| !patch.is_empty()) => {
                return Err(ReviewError::MayNotPatch);
            }
            ReviewKind::Validating => None,
        };
        Ok(Self {
            allowed: response.allowed,
            result: response.status,
            warnings: response.warnings.unwrap_or_default(),
            audit_annotations: response.audit_annotations.unwrap_or_default(),
            patch,
        })
    }

    /// The answer to the client when the webhook `name` does not allow its request.
    pub fn refusal(&self, name: &str) -> Status {
        let denied = format!("admission webhook {name:?} denied the request");
        let (code, reason, message) = match &self.result {
            None => (400, "", format!("{denied} without explanation")),
            Some(result) => {
                let message = match (result.message.as_str(), result.reason.as_str()) {
                    ("", "") => format!("{denied} without explanation"),
                    ("", reason) => format!("{denied}: {reason}"),
                    (message, _) => format!("{denied}: {message}"),
                };
                // No refusal looks like a success.
                let code = u16::try_from(result.code).ok().filter(|code| (400..600).contains(code));
                (code.unwrap_or(400), result.reason.as_str(), message)
            }
        };
        Status::refused(code, reason, message)
    }
}

fn read_patch(
    version: ReviewVersion,
    patch: Option<&str>,
    patch_type: Option<&str>,
) -> Result<Option<Json>, ReviewError> {
    let patch = patch.filter(|patch| !patch.is_empty());
    let patch = match (patch, patch_type, version) {
        (None, None, _) | (None, Some(_), ReviewVersion::V1Beta1) => return Ok(None),
        (None, Some(_), ReviewVersion::V1) => return Err(ReviewError::NoPatch),
        (Some(_), None, ReviewVersion::V1) => return Err(ReviewError::NoPatchType),
        (Some(_), Some(other), ReviewVersion::V1) if other != "JSONPatch" => {
            return Err(ReviewError::PatchType(other.to_owned()));
        }
        (Some(patch), _, _) => patch,
    };
    let undecodable = |error: String| ReviewError::Undecodable(error);
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(error.to_string()))?;
    let patch: Json =
        serde_json::from_slice(&bytes).map_err(|error| undecodable(error.to_string()))?;
    match patch.as_array() {
        None => Err(undecodable("it is no list of operations".to_owned())),
        Some(operations) => Ok(if operations.is_empty() { None } else { Some(patch) }),
    }
}

#[cfg(test)]
mod tests;
