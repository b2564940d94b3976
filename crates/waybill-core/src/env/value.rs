//! Values of environment variables: bytes without NUL, plain or secret.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use crate::secret::SecretBytes;

/// The value of a variable. It is never printed: `Debug` shows kind and length.
pub struct EnvValue(Kind);

enum Kind {
    Plain(Box<[u8]>),
    Secret(SecretBytes),
}

impl EnvValue {
    /// A value that may be shown to who may read the pod.
    pub fn plain(bytes: impl Into<Box<[u8]>>) -> Result<Self, EnvValueError> {
        let bytes = bytes.into();
        no_nul(&bytes)?;
        Ok(Self(Kind::Plain(bytes)))
    }

    /// A value that stays in memory and is wiped afterwards; the vector becomes that memory.
    pub fn secret(bytes: Vec<u8>) -> Result<Self, EnvValueError> {
        let bytes = SecretBytes::from(bytes);
        no_nul(bytes.expose())?;
        Ok(Self(Kind::Secret(bytes)))
    }

    /// The bytes as they stand in `envp`, secret or not.
    pub fn expose(&self) -> &[u8] {
        match &self.0 {
            Kind::Plain(bytes) => bytes,
            Kind::Secret(bytes) => bytes.expose(),
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Plain(bytes) => bytes.len(),
            Kind::Secret(bytes) => bytes.len(),
        }
    }

    /// Whether the variable is set to nothing, which is not the same as unset (EXEC-07, FILE-33).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the value must not be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.0, Kind::Secret(_))
    }
}

impl fmt::Debug for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_secret() { "secret" } else { "plain" };
        write!(f, "EnvValue({kind}, {} bytes)", self.len())
    }
}

/// Why bytes cannot be a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvValueError {
    /// NUL ends a string of the environment, so none can contain it.
    #[error("an environment variable value cannot contain NUL (found at byte {at})")]
    Nul {
        /// Offset of the first NUL.
        at: usize,
    },
}

fn no_nul(bytes: &[u8]) -> Result<(), EnvValueError> {
    match memchr::memchr(0, bytes) {
        Some(at) => Err(EnvValueError::Nul { at }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    /// CSI-31
    #[test]
    fn nul_is_refused_and_every_other_byte_kept_csi_31() {
        for byte in 0..=u8::MAX {
            let plain = EnvValue::plain([b'a', byte]);
            let secret = EnvValue::secret([b'a', byte].to_vec());
            if byte == 0 {
                assert_eq!(plain.unwrap_err(), EnvValueError::Nul { at: 1 });
                assert_eq!(secret.unwrap_err(), EnvValueError::Nul { at: 1 });
            } else {
                assert_eq!(plain.unwrap().expose(), [b'a', byte]);
                assert_eq!(secret.unwrap().expose(), [b'a', byte]);
            }
        }
    }

    #[test]
    fn debug_output_never_shows_a_value() {
        let plain = EnvValue::plain(*b"hunter2").unwrap();
        let secret = EnvValue::secret(b"hunter2".to_vec()).unwrap();
        assert_eq!(
            format!("{plain:?} {secret:?}"),
            "EnvValue(plain, 7 bytes) EnvValue(secret, 7 bytes)"
        );
    }
}
