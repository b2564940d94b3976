//! What the answer of the API server means for what was to be written.

use waybill_core::id::ResourceVersion;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is done, and the object has this version.
    Done(Option<ResourceVersion>),
    /// It may work later.
    Failed,
    /// There is no such pod.
    Gone,
    /// The same request can never work.
    Invalid,
    /// We may not, or not yet, or not any more.
    Refused,
}

/// What an error means; `None` if that depends on the pod that is there now.
pub(super) fn of(error: &kube::Error) -> Option<Outcome> {
    let code = match error {
        kube::Error::Api(status) => status.code,
        _ => return Some(Outcome::Failed),
    };
    match code {
        404 => Some(Outcome::Gone),
        409 => None,
        401 | 403 => Some(Outcome::Refused),
        400 | 405 | 406 | 413 | 415 | 422 => Some(Outcome::Invalid),
        _ => Some(Outcome::Failed),
    }
}
