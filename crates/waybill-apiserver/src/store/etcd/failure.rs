//! Why a call failed, told once.

use std::{error::Error, fmt};

use tonic::Status;

/// What etcd, or the connection to it, says about a call. A [`Status`] prints its cause within its
/// own text and names it as its source too, so this has no source and prints each part once.
#[derive(Debug)]
pub(crate) struct Failure(Box<Status>);

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mut cause) = self.0.source() else {
            return write!(f, "{} ({:?})", self.0.message(), self.0.code());
        };
        // The message of a status with a cause is a part of that cause.
        let mut last = cause.to_string();
        write!(f, "{last}")?;
        while let Some(deeper) = cause.source() {
            let text = deeper.to_string();
            // Wrappers often print what they wrap.
            if text != last {
                write!(f, ": {text}")?;
            }
            (cause, last) = (deeper, text);
        }
        Ok(())
    }
}

impl Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_says_comes_with_its_code() {
        let failure = Failure::from(Status::unavailable("etcdserver: no leader"));
        assert_eq!(failure.to_string(), "etcdserver: no leader (Unavailable)");
    }
}
