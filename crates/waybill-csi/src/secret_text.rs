//! A text in JSON or YAML that is secret.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use waybill_core::secret::SecretBytes;

/// Copied at once into memory that is wiped; what is wrong with it is never told by quoting it.
pub(crate) struct SecretText(pub(crate) SecretBytes);

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = SecretText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<SecretText, E> {
                Ok(SecretText(SecretBytes::copy_of(text.as_bytes())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<SecretText, E> {
                Ok(SecretText(SecretBytes::from(text.into_bytes())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
