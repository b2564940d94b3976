//! Bytes that must not be shown.
//!
//! [`SecretBytes`] wipes its memory on drop and implements none of `Debug`, `Display`, `Clone` and
//! `PartialEq`, so a type that holds one cannot derive them by accident. [`SecretBytes::expose`] is
//! the only way to the content; search for that word to find every reader.

use alloc::vec::Vec;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes that are wiped on drop and readable only through [`SecretBytes::expose`].
///
/// ```compile_fail
/// let secret = waybill_core::secret::SecretBytes::from(b"hunter2".to_vec());
/// println!("{secret:?}");
/// ```
///
/// ```compile_fail
/// let secret = waybill_core::secret::SecretBytes::from(b"hunter2".to_vec());
/// let copy = secret.clone();
/// ```
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Copies `bytes` into memory that will be wiped; wiping the original is the caller's part.
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }

    /// The content. Every call is a place where the value may leave our care.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares in a time that depends on the lengths only.
    pub fn constant_time_eq(&self, other: &[u8]) -> bool {
        self.0.as_slice().ct_eq(other).into()
    }
}

/// Takes the vector as it is: shrinking it would leave an unwiped copy behind.
impl From<Vec<u8>> for SecretBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_reached_by_expose_only() {
        let secret = SecretBytes::copy_of(b"hunter2");
        assert_eq!(secret.expose(), b"hunter2");
        assert_eq!(secret.len(), 7);
        assert!(!secret.is_empty());
    }

    #[test]
    fn comparison_sees_every_byte_and_the_length() {
        let secret = SecretBytes::from(b"abc".to_vec());
        assert!(secret.constant_time_eq(b"abc"));
        assert!(!secret.constant_time_eq(b"abd"));
        assert!(!secret.constant_time_eq(b"ab"));
        assert!(!secret.constant_time_eq(b"abcd"));
    }
}
