//! The one form of base64 on a stock cluster: for URLs, without padding.

use base64::{DecodeError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// The text of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of `text`.
pub fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    URL_SAFE_NO_PAD.decode(text)
}
