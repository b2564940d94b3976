//! Bytes of a session on their way.

use std::{fmt, ops::Deref};

use bytes::Bytes;

/// What somebody types or a process prints. Its `Debug` shows the length only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload(Bytes);

impl Payload {
    /// The bytes themselves, not copied.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}
