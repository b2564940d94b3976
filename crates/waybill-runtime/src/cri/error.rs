//! What can go wrong between a CRI request and the engine, and the one place that makes it a gRPC status.

use std::{io, path::PathBuf};

use oci_spec::OciSpecError;
use tonic::{Code, Status};
use waybill_core::chain::Chain;
use waybill_proto::env::VariableError;

use crate::{NotDone, engine::EngineError, image::ImageError, streaming::ParkError};

pub(crate) type Result<T> = std::result::Result<T, CriError>;

/// Why a request was not carried out. No variant holds the value of a variable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CriError {
    /// The request says something that cannot be.
    #[error("{reason}")]
    Invalid {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The request asks for what this runtime does not do.
    #[error("{what} is not supported: {advice}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        advice: String,
    },
    /// There is no such thing.
    #[error("{kind} {id:?} does not exist")]
    NotFound {
        /// What was looked for.
        kind: &'static str,
        /// By which id or name.
        id: String,
    },
    /// A prefix of an id that begins several.
    #[error("{kind} id {id:?} is ambiguous: it begins {count} ids")]
    Ambiguous {
        /// What was looked for.
        kind: &'static str,
        /// The prefix.
        id: String,
        /// How many there are.
        count: usize,
    },
    /// The name is taken by another.
    #[error("the name {name} is taken by {kind} {id:?}; remove that first")]
    NameTaken {
        /// What has the name.
        kind: &'static str,
        /// The name, made of its metadata.
        name: String,
        /// Who has it; empty while it is being made.
        id: String,
    },
    /// The thing is not in the state that the call needs.
    #[error("{reason}")]
    State {
        /// What state it is in, and what it needs.
        reason: String,
    },
    /// Its record was written by a newer runtime, or is damaged. It is left as it is.
    #[error(
        "{kind} {id:?} is not understood and left as it is: {reason}; run the version that made it, or end its processes and \
         remove its record by hand"
    )]
    Unknown {
        /// What it is.
        kind: &'static str,
        /// Its id.
        id: String,
        /// Which record cannot be understood, and why.
        reason: String,
    },
    /// The time that the caller gave is over.
    #[error("{what} did not end within {seconds} s and was killed")]
    Deadline {
        /// What took too long.
        what: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// A variable that no process can have.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The image store refused or failed.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The streaming server takes no more.
    #[error(transparent)]
    Park(#[from] ParkError),
    /// A part of the OCI specification is impossible.
    #[error("the OCI specification cannot be built")]
    Spec(#[from] OciSpecError),
    /// The machine refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A thread for it is missing, or it failed in a way that is a bug.
    #[error(transparent)]
    NotDone(#[from] NotDone),
    /// A task of ours ended early.
    #[error("the request was given up because the runtime is stopping")]
    Stopping,
}

impl CriError {
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    pub(crate) fn unsupported(what: &'static str, advice: impl Into<String>) -> Self {
        Self::Unsupported { what, advice: advice.into() }
    }

    pub(crate) fn state(reason: impl Into<String>) -> Self {
        Self::State { reason: reason.into() }
    }

    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the thing that the call is about does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Engine(EngineError::NotFound { .. }))
    }

    fn code(&self) -> Code {
        match self {
            Self::Invalid { .. } | Self::Ambiguous { .. } | Self::Variable(_) | Self::Spec(_) => {
                Code::InvalidArgument
            }
            Self::Unsupported { .. } => Code::Unimplemented,
            Self::NotFound { .. } => Code::NotFound,
            Self::NameTaken { .. } => Code::AlreadyExists,
            Self::State { .. } | Self::Unknown { .. } => Code::FailedPrecondition,
            Self::Deadline { .. } => Code::DeadlineExceeded,
            Self::Stopping => Code::Unavailable,
            Self::Io { .. } => Code::Internal,
            Self::Engine(error) => engine_code(error),
            Self::Image(error) => image_code(error),
            Self::Park(_) => Code::ResourceExhausted,
            Self::NotDone(error) => not_done_code(error),
        }
    }
}

fn engine_code(error: &EngineError) -> Code {
    match error {
        EngineError::NotFound { .. } => Code::NotFound,
        EngineError::AlreadyExists { .. } => Code::AlreadyExists,
        EngineError::Invalid { .. } | EngineError::SeccompFile { .. } => Code::InvalidArgument,
        EngineError::WrongState { .. } | EngineError::Unknown { .. } => Code::FailedPrecondition,
        EngineError::SpawnerLost | EngineError::SpawnerBusy => Code::Unavailable,
        EngineError::MonitorSilent { .. } => Code::DeadlineExceeded,
        EngineError::NotDone(error) => not_done_code(error),
        EngineError::Exec(_)
        | EngineError::Refused { .. }
        | EngineError::Dial { .. }
        | EngineError::Create { .. }
        | EngineError::MonitorLost { .. }
        | EngineError::Io { .. } => Code::Internal,
    }
}

fn image_code(error: &ImageError) -> Code {
    match error {
        ImageError::NotFound(_) => Code::NotFound,
        ImageError::Ambiguous(_)
        | ImageError::Name { .. }
        | ImageError::Archive(_)
        | ImageError::Digest { .. }
        | ImageError::Limit { .. }
        | ImageError::ContainerId(_) => Code::InvalidArgument,
        ImageError::ContainerExists(_) => Code::AlreadyExists,
        ImageError::Registry { .. } | ImageError::Locked(_) => Code::Unavailable,
        ImageError::Sealed { .. } => Code::FailedPrecondition,
        ImageError::Io { .. } => Code::Internal,
        ImageError::NotDone(error) => not_done_code(error),
    }
}

fn not_done_code(error: &NotDone) -> Code {
    match error {
        NotDone::NoThread(_) => Code::ResourceExhausted,
        NotDone::Panicked => Code::Internal,
    }
}

impl From<CriError> for Status {
    fn from(error: CriError) -> Self {
        Self::new(error.code(), Chain(&error).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_caused_it() {
        let error = CriError::io("read", "/a")(io::Error::from_raw_os_error(2));
        let status = Status::from(error);
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(status.message(), "cannot read /a: No such file or directory (os error 2)");
    }

    #[test]
    fn what_is_not_done_is_told_apart_from_what_is_wrong() {
        let status = Status::from(CriError::unsupported("seccomp", "use Unconfined"));
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.message(), "seccomp is not supported: use Unconfined");
        assert_eq!(Status::from(CriError::invalid("no")).code(), Code::InvalidArgument);
    }
}
