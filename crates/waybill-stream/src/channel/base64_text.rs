//! Base64 that arrives in pieces.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;

/// Writes padding, and reads with or without it.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes one text, and keeps what is no whole group of four yet.
#[derive(Debug, Default)]
pub(super) struct Base64Text {
    kept: Vec<u8>,
    /// Padding was seen, so nothing may follow.
    ended: bool,
}

/// The text is not base64.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotBase64;

impl Base64Text {
    /// Decodes the next part; `last` if none follows.
    pub(super) fn decode(&mut self, text: &[u8], last: bool) -> Result<Bytes, NotBase64> {
        if text.is_empty() && (self.kept.is_empty() || !last) {
            return Ok(Bytes::new());
        }
        if self.ended {
            return Err(NotBase64);
        }
        let mut text = [&self.kept, text].concat();
        let whole = if last { text.len() } else { text.len() - text.len() % 4 };
        self.kept = text.split_off(whole);
        self.ended = text.last() == Some(&b'=');
        BASE64.decode(text).map(Bytes::from).map_err(|_| NotBase64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(parts: &[&[u8]]) -> Option<Vec<u8>> {
        let mut state = Base64Text::default();
        let mut decoded = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            decoded.extend_from_slice(&state.decode(part, at + 1 == parts.len()).ok()?);
        }
        Some(decoded)
    }

    #[test]
    fn padding_may_be_left_out_and_ends_the_text() {
        assert_eq!(decode(&[b"YQ=="]).as_deref(), Some(&b"a"[..]));
        assert_eq!(decode(&[b"YQ"]).as_deref(), Some(&b"a"[..]));
        assert_eq!(decode(&[b""]).as_deref(), Some(&b""[..]));
        assert_eq!(decode(&[b"YQ==", b"YQ=="]), None);
        assert_eq!(decode(&[b"Y"]), None);
        assert_eq!(decode(&[b"Y!=="]), None);
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            text in "[A-Da-d0-9+/=]{0,40}",
            first in 0_usize..40,
            second in 0_usize..40,
        ) {
            let text = text.as_bytes();
            let (head, tail) = text.split_at(first.min(text.len()));
            let (middle, tail) = tail.split_at(second.min(tail.len()));
            prop_assert_eq!(decode(&[head, middle, tail]), decode(&[text]));
        }

        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let text = BASE64.encode(&bytes);
            prop_assert_eq!(decode(&[text.as_bytes()]), Some(bytes));
        }
    }
}
