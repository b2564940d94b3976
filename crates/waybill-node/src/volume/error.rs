//! Why a volume is not there. The texts hold paths and names, never content.

use std::{io, path::Path};

use crate::{
    environment::{field::FieldError, resource::ResourceError},
    objects::ObjectError,
};

/// Which volume, when, and why. An event of reason `FailedMount`, or the message of a
/// `CreateContainerConfigError` when it is about the mounts of one container.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("failed to prepare volumeMount {volume:?} of container {container:?}: {fault}")]
    Mount { volume: String, container: String, fault: VolumeFault },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {fault}")]
    SetUp { volume: String, fault: VolumeFault },
    #[error("the volumes of the pod cannot be removed: {0}")]
    TearDown(VolumeFault),
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeFault {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("hostPath type check failed: {path} is not {what}")]
    HostPathType { path: String, what: &'static str },
    #[error("the work on the volume was interrupted")]
    Interrupted,
    #[error("{doing}: {error}")]
    Io { doing: String, error: io::Error },
    #[error("{} references non-existent {} key: {key}", whose.0, whose.1)]
    Key { whose: (&'static str, &'static str), key: String },
    #[error("volume kind {kind} is not supported by this node")]
    Kind { kind: String },
    #[error("missing value for {names}")]
    MissingVariable { names: String },
    #[error("{name:?} is not a good name: {why}")]
    Name { name: String, why: String },
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("invalid path {path:?}: {why}")]
    Path { path: String, why: &'static str },
    #[error("the amount of {what} cannot be read: {why}")]
    Quantity { what: &'static str, why: waybill_core::quantity::QuantityError },
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error("subPathExpr refers to a variable whose value is secret, and paths are not")]
    SecretPath,
    #[error("{path} is still mounted")]
    StillMounted { path: String },
    #[error("its files have {bytes} bytes, and a volume in memory has room for {most}")]
    TooLarge { bytes: u64, most: u64 },
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    Unknown { volume: String, container: String },
    #[error("{value:?} is not a {what} that this node knows")]
    Unsupported { what: &'static str, value: String },
}

/// Adds what was being done to errors of the system.
pub(super) trait Doing<T> {
    fn doing(self, what: &str, path: &Path) -> Result<T, VolumeFault>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &str, path: &Path) -> Result<T, VolumeFault> {
        self.map_err(|error| VolumeFault::Io {
            doing: format!("{what} {}", path.display()),
            error: error.into(),
        })
    }
}
