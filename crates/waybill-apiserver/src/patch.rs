//! Changing an object by a patch: JSON Patch, JSON Merge Patch, strategic merge patch.
//!
//! Pure: a patch and an object in, a new object out; whether the result is a valid object is for
//! admission to say. Patches come from peers, so every walk is bounded: `serde_json` refuses
//! documents nested deeper than 127, and no patch makes an object deeper than that.

mod json;
mod lists;
pub(crate) mod schema;
mod strategic;
mod strip;

use serde_json::Value;

/// The kinds of patches, told apart by their media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// Server-side apply, which is more than a patch: see `managers.rs`.
    Apply,
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, which knows the keys of lists.
    Strategic,
}

/// Why a patch was not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchError {
    /// Copying and moving would cost more than a request may.
    #[error("the accumulated size of what copy and move carry exceeds the limit {limit}")]
    CarriesTooMuch { limit: usize },
    /// An operation would nest the object too deeply.
    #[error("operation {position} at {path:?} nests the object deeper than {limit} levels")]
    Deep { position: usize, path: String, limit: usize },
    /// A `$patch` that does not exist.
    #[error("unknown patch type: {0:?}")]
    Directive(String),
    /// `$setElementOrder` names other elements than the list, or names them in another order.
    #[error("the order in patch list {0:?} doesn't match $setElementOrder list")]
    ElementOrder(String),
    /// `$setElementOrder` is not a list of the right kind.
    #[error("invalid patch format of setElementOrder list")]
    ElementOrderFormat,
    /// A list that is merged holds lists.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// The patch is not JSON, or not a list of operations.
    #[error("error decoding patch: {0}")]
    Malformed(serde_json::Error),
    /// No patch has this media type.
    #[error(
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, \
         application/strategic-merge-patch+json, application/apply-patch+yaml"
    )]
    MediaType,
    /// `$patch: merge` inside a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirectiveInList,
    /// An element of a list lacks the field that tells elements apart.
    #[error("map does not contain declared merge key: {0}")]
    MergeKey(&'static str),
    /// A list that is merged holds elements of several kinds.
    #[error("list element types are not identical")]
    MixedList,
    /// A merge patch is something else than an object.
    #[error("error decoding patch: must be a JSON object")]
    NotAnObject,
    /// An operation does not fit the object.
    #[error("operation {position} does not apply at {path:?}: {kind}")]
    Operation { position: usize, path: String, kind: json_patch::PatchErrorKind },
    /// `$deleteFromPrimitiveList` is not a list.
    #[error("invalid patch format of primitive list")]
    PrimitiveListFormat,
    /// `$retainKeys` is not a list of names, or leaves out a field that the patch sets.
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    /// A `test` found another value.
    #[error("testing value {path:?} failed: test failed")]
    Test { path: String },
    /// A JSON Patch has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {count}")]
    TooManyOperations { count: usize, limit: usize },
}

/// How a request with a refused patch is answered; the edge knows the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The patch cannot be understood.
    BadRequest,
    /// The patch is too large.
    RequestEntityTooLarge,
    /// The patch is understood and does not fit the object.
    UnprocessableEntity,
    /// There is no such kind of patch.
    UnsupportedMediaType,
}

/// Applies `patch` to the object `to`, which is one of `resource` (a plural name such as `pods`).
pub(crate) fn apply(
    kind: PatchType,
    patch: &[u8],
    to: &Value,
    fields: schema::Fields,
) -> Result<Value, PatchError> {
    match kind {
        PatchType::Apply => Err(PatchError::MediaType),
        PatchType::Json => json::apply(patch, to),
        PatchType::Merge => merge(patch, to),
        PatchType::Strategic => strategic::apply(patch, to, fields),
    }
}

/// The way in for fuzzing: bytes up to the first zero are the object, the rest is the patch.
pub(crate) fn apply_bytes(kind: PatchType, data: &[u8], fields: schema::Fields) -> Option<Value> {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let to: Value = serde_json::from_slice(parts.next()?).ok()?;
    apply(kind, parts.next()?, &to, fields).ok()
}

impl PatchType {
    /// The kind of patch that a `Content-Type` announces.
    pub(crate) fn from_content_type(content_type: &str) -> Result<Self, PatchError> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            _ => Err(PatchError::MediaType),
        }
    }
}

impl PatchError {
    /// How the request is to be answered.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::Directive(_)
            | Self::ElementOrder(_)
            | Self::ElementOrderFormat
            | Self::Malformed(_)
            | Self::NotAnObject
            | Self::PrimitiveListFormat
            | Self::RetainKeysFormat => Refusal::BadRequest,
            Self::CarriesTooMuch { .. } | Self::TooManyOperations { .. } => {
                Refusal::RequestEntityTooLarge
            }
            Self::Deep { .. }
            | Self::ListOfLists
            | Self::MergeDirectiveInList
            | Self::MergeKey(_)
            | Self::MixedList
            | Self::Operation { .. }
            | Self::Test { .. } => Refusal::UnprocessableEntity,
            Self::MediaType => Refusal::UnsupportedMediaType,
        }
    }
}

fn merge(patch: &[u8], to: &Value) -> Result<Value, PatchError> {
    let patch = Value::Object(parse_object(patch)?);
    let mut result = to.clone();
    json_patch::merge(&mut result, &patch);
    Ok(result)
}

fn parse_object(patch: &[u8]) -> Result<serde_json::Map<String, Value>, PatchError> {
    match serde_json::from_slice(patch).map_err(PatchError::Malformed)? {
        Value::Object(object) => Ok(object),
        _ => Err(PatchError::NotAnObject),
    }
}

#[cfg(test)]
mod tests;
