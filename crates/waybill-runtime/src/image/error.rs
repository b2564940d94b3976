//! What can go wrong with images.

use std::{fmt, io};

use super::{digest::Digest, name::ImageNameError};
use crate::NotDone;

/// What this module returns.
pub type Result<T> = std::result::Result<T, ImageError>;

/// Why something could not be done with an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Nothing of that name or id.
    #[error("there is no image `{0}`")]
    NotFound(String),
    /// The first digits of more than one id.
    #[error("`{0}` is the beginning of more than one image's id; give more digits")]
    Ambiguous(String),
    /// Not a name at all.
    #[error("`{name}` does not name an image: {reason}")]
    Name {
        /// As it was given.
        name: String,
        /// Which rule it breaks.
        reason: ImageNameError,
    },
    /// What was given is not an archive of images, or a broken or hostile one.
    #[error("{0}")]
    Archive(String),
    /// Content is not what its digest says.
    #[error("{what} is {found} and not {expected}: it was changed or damaged on the way")]
    Digest {
        /// Which content.
        what: String,
        /// What it ought to be.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// Content is larger than we take.
    #[error("{what} has more than {limit} {unit}, which is the limit")]
    Limit {
        /// Which content.
        what: String,
        /// How much would be fine.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// The registry did not give what was asked for.
    #[error("cannot pull {image} from {registry}: {reason}")]
    Registry {
        /// Host and port.
        registry: String,
        /// The name in full.
        image: String,
        /// What it said, or what happened to the connection.
        reason: String,
    },
    /// A container of this id has its root file system already.
    #[error("container {0} has a root file system already")]
    ContainerExists(String),
    /// An id that cannot be a directory.
    #[error("`{0}` cannot be the id of a container: use letters, digits, `-`, `_` and `.`")]
    ContainerId(String),
    /// The state directory belongs to another process.
    #[error("another runtime uses {0}; stop it, or give this one a state directory of its own")]
    Locked(String),
    /// The list of images was written by a newer runtime, or is damaged. Nothing is done to the store.
    #[error(
        "the image store cannot be used, and is left as it is: {path}: {reason}; run the version that wrote it, or move it \
         away to start with an empty store"
    )]
    Sealed {
        /// The list.
        path: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// A thread for it is missing, or it failed in a way that is a bug.
    #[error(transparent)]
    NotDone(#[from] NotDone),
    /// The file system or the kernel refused.
    #[error("{doing}")]
    Io {
        /// What was being done, and to what.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ImageError {
    pub(super) fn archive(what: impl fmt::Display) -> Self {
        Self::Archive(what.to_string())
    }
}

/// Says what was being done when an operation failed.
pub(super) trait Doing<T> {
    fn doing<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| {
            let source: io::Error = error.into();
            // An error of ours may have travelled inside, through a reader.
            match source.downcast::<ImageError>() {
                Ok(ours) => ours,
                Err(source) => ImageError::Io { doing: what().to_string(), source },
            }
        })
    }
}

impl From<ImageError> for io::Error {
    fn from(error: ImageError) -> Self {
        Self::other(error)
    }
}
