//! Why a container has no environment.

use std::fmt;

use waybill_core::env::{
    limits::{KERNEL_TOTAL_BYTES, KernelLimitError},
    merge::SetError,
    name::EnvNameError,
    value::EnvValueError,
};

use super::{csi::CsiFault, field::FieldError, file::FileError, resource::ResourceError};
use crate::objects::{ObjectError, ObjectKind};

/// The message of a `CreateContainerConfigError`: what a kubelet would say, then whose variable it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({place} of container {container:?})")]
pub(crate) struct EnvironmentError {
    container: String,
    place: Place,
    reason: Box<Reason>,
}

impl EnvironmentError {
    pub(super) fn new(container: &str, fault: Fault) -> Self {
        let Fault { place, reason } = fault;
        Self { container: container.to_owned(), place, reason }
    }
}

/// What went wrong, and where in the spec of the container.
#[derive(Debug)]
pub(super) struct Fault {
    place: Place,
    reason: Box<Reason>,
}

/// Adds the place to a reason.
pub(super) trait At<T> {
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, Fault>;
}

impl<T, E: Into<Reason>> At<T> for Result<T, E> {
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, Fault> {
        self.map_err(|reason| Fault { place: place(), reason: Box::new(reason.into()) })
    }
}

/// Part of a container's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An entry of `env` by its name.
    Variable(String),
    /// Several of them.
    Variables(Vec<String>),
    /// An entry of `env` that has no usable name.
    Env(usize),
    /// An entry of `envFrom`.
    EnvFrom(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "variable {name:?}"),
            Self::Variables(names) => {
                let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
                let word = if names.len() == 1 { "variable" } else { "variables" };
                write!(f, "{word} {}", names.join(", "))
            }
            Self::Env(at) => write!(f, "env[{at}]"),
            Self::EnvFrom(at) => write!(f, "envFrom[{at}]"),
        }
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    #[error(transparent)]
    Csi(#[from] CsiFault),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("couldn't find key {key} in {} {namespace}/{name}", title(*kind))]
    Key { kind: ObjectKind, namespace: String, name: String, key: String },
    #[error(transparent)]
    Long(#[from] KernelLimitError),
    #[error(transparent)]
    Name(#[from] EnvNameError),
    #[error("valueFrom names no source that this node knows")]
    NoSource,
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error(
        "the variables up to this one take more than {KERNEL_TOTAL_BYTES} bytes together, which \
         Linux takes at most for variables and arguments"
    )]
    TooMany,
    #[error(transparent)]
    Value(#[from] EnvValueError),
}

impl From<SetError> for Reason {
    fn from(error: SetError) -> Self {
        match error {
            SetError::Long(error) => Self::Long(error),
            SetError::Value(error) => Self::Value(error),
        }
    }
}

/// The kind as it stands in manifests.
pub(super) fn title(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::ConfigMap => "ConfigMap",
        ObjectKind::Secret => "Secret",
        ObjectKind::ServiceAccountToken => "TokenRequest",
    }
}
